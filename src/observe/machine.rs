//! The machine: files, versions, services.

use super::containers::processes;
use super::services::services;
use crate::gpu::trial::Outcome;
use crate::host::fs::{Owner, Root, UNFINISHED, mode_and_owner, read};
use crate::install;
use crate::juju::memory::Memory;
use crate::oci::devices::Devices;
use crate::oci::folders::{self, Found};
use crate::oci::lease::live::Kernel;
use crate::oci::lease::shown::Shown;
use crate::oci::policy::{Access, Gpus};
use crate::parse::Version;
use crate::paths;
use crate::world::{FileOnDisk, Machine, Worker};
use anyhow::Result;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};

/// Reads the machine under `root`.
///
/// # Errors
/// Something is there that can't be read.
pub fn machine(root: &Root, memory: &Memory) -> Result<Machine> {
    let mut files = BTreeMap::new();
    for path in paths::MANAGED {
        let real = root.path(path);
        if let (Some(text), Some((mode, owner))) = (read(&real)?, mode_and_owner(&real)) {
            files.insert(path.to_owned(), FileOnDisk { text, mode, owner });
        }
    }
    let installed = install::installed(root)?;
    let current = linked(root, paths::CURRENT);
    let proven = files.get(paths::PROVEN).map(|f| f.text.trim())
        == current.as_ref().map(ToString::to_string).as_deref();
    let others = installed.iter().map(|i| &i.version).filter(|v| Some(*v) != current.as_ref());
    let in_use = others.filter(|v| install::in_use(root, v)).cloned().collect();
    let services = services(root)?;
    let rests = |worker: &Worker| {
        let runs = services.get(&worker.role()).is_some_and(|s| s.active || s.changing);
        !runs && root.path(worker.paths().work_dir).exists()
    };
    // Only where a worker has been can it have left something; and looking through all processes takes its time.
    let resting: Vec<Worker> = Worker::ALL.into_iter().filter(rests).collect();
    let left = if root.is_machine() && !resting.is_empty() { processes(root)? } else { vec![] };
    let containers = left.into_iter().map(|(worker, _)| worker).filter(|w| resting.contains(w)).collect();
    let (mut volumes, mut work_dirs) = (BTreeMap::new(), BTreeMap::new());
    for worker in Worker::ALL {
        volumes.extend(json(root, worker.paths().volumes)?.map(|found| (worker, found)));
        let id = read(&root.path(worker.paths().work_dir_id))?;
        work_dirs.extend(id.map(|id| (worker, id.trim().to_owned())));
    }
    let watched = paths::GPU_WATCHED.map(|link| root.path(link).symlink_metadata().is_ok());
    Ok(Machine {
        claim: read(&root.path(paths::CLAIM))?.filter(|claim| is_alive(root, claim)),
        user: user(root)?,
        drained: files.contains_key(paths::DRAINED),
        files,
        in_use,
        installed,
        previous: linked(root, paths::PREVIOUS),
        proven: proven && current.is_some(),
        current,
        failed: json(root, paths::FAILED)?,
        resource: memory.resource.as_deref().and_then(install::resource_stamp),
        override_version: json(root, paths::OVERRIDE)?,
        arch: match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
        .to_owned(),
        programs: programs(root)?,
        folders: Found::default(),
        gpus: json(root, paths::GPU_REPORT)?,
        devices: None,
        gpu_test: None,
        leases: None,
        hostname: String::new(),
        gpus_watched: !watched.contains(&false),
        gpus_watched_at_all: watched.contains(&true),
        gpus_persist: root.path(paths::GPU_PERSISTENCE).exists(),
        packages: json(root, paths::PACKAGES)?.unwrap_or_default(),
        no_toolkit: json(root, paths::NO_TOOLKIT)?,
        system: crate::gpu::scan::system(root)?,
        boot: read(&root.path("/proc/sys/kernel/random/boot_id"))?.unwrap_or_default().trim().to_owned(),
        services,
        containers,
        web: None,
        connected: BTreeSet::new(),
        volumes,
        work_dirs,
        dns_port_taken: false,
        leftovers: paths::OURS
            .iter()
            .filter(|path| root.path(path).symlink_metadata().is_ok())
            .map(|path| (*path).to_owned())
            .collect(),
        half_installed: install::has_leftovers(root)?,
        unfinished: paths::WRITTEN.iter().flat_map(|dir| unfinished(root, dir)).collect(),
    })
}

/// What containers get of GPUs.
pub fn devices(root: &Root) -> Result<Option<Devices>> {
    json(root, paths::GPU_DEVICES)
}

/// What the last test of GPUs in a container has seen.
pub fn gpu_test(root: &Root) -> Result<Option<Outcome>> {
    json(root, paths::GPU_TEST)
}

/// Who has them; `None`: they are not leased.
pub fn leases(root: &Root, policy: Option<Gpus>, devices: &Devices) -> Option<Result<Shown, String>> {
    let mut gpus = policy.filter(|gpus| gpus.access == Access::Exclusive)?;
    gpus.leases.dir = root.path(&gpus.leases.dir);
    let shown = || -> Result<Shown, String> {
        let here = Kernel::here().map_err(|e| format!("/proc: {e}"))?;
        let kernel = Kernel { proc: root.path("/proc"), cgroups: root.path("/sys/fs/cgroup"), ..here };
        let boot = kernel.boot().map_err(|e| format!("the boot's id: {e}"))?;
        Shown::now(&gpus, &devices.units, &kernel, &boot)
    };
    Some(shown())
}

/// What the machine is called.
pub fn hostname(root: &Root) -> Result<String> {
    Ok(read(&root.path("/proc/sys/kernel/hostname"))?.unwrap_or_default().trim().to_owned())
}

/// Folders that steps see.
pub fn folders(root: &Root) -> Found {
    folders::scan(&root.path(paths::FOLDERS)).unwrap_or_else(|why| Found {
        folders: vec![],
        skipped: vec![format!("{} can't be read: {why}", paths::FOLDERS)],
    })
}

/// Which charm the programs came with; of none, if they are not all in their places.
fn programs(root: &Root) -> Result<Option<String>> {
    let there = |path: &&str| root.path(path).symlink_metadata().is_ok();
    let stamp = read(&root.path(paths::PROGRAMS_STAMP))?;
    if [paths::WRAPPER, paths::GPU_PROGRAM, paths::WRAPPER_LINK, paths::RUNC_LINK].iter().all(there) {
        return Ok(Some(stamp.unwrap_or_default()));
    }
    let rest = stamp.is_some() || [paths::PROGRAMS, paths::WRAPPER_LINK].iter().any(there);
    Ok(rest.then(String::new))
}

/// No other hook of this unit runs now that could still want it.
fn unfinished(root: &Root, dir: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root.path(dir)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(UNFINISHED)).map(|name| format!("{dir}/{name}")).collect()
}

/// A claim holds while its unit's agent is there: a unit that was removed by force leaves its claim behind.
fn is_alive(root: &Root, claim: &str) -> bool {
    let unit = claim.split(' ').next().unwrap_or_default().replace('/', "-");
    root.path(format!("/var/lib/juju/agents/unit-{unit}")).exists()
}

/// The version that a symlink names.
fn linked(root: &Root, link: &str) -> Option<Version> {
    let target = std::fs::read_link(root.path(link)).ok()?;
    target.file_name()?.to_str()?.parse().ok()
}

/// A file of the charm's own; one that it can't read any more counts as absent.
fn json<T: DeserializeOwned>(root: &Root, path: &str) -> Result<Option<T>> {
    Ok(read(&root.path(path))?.and_then(|text| serde_json::from_str(&text).ok()))
}

/// The system user, from the machine's own list.
fn user(root: &Root) -> Result<Option<Owner>> {
    let Some(text) = read(&root.path("/etc/passwd"))? else { return Ok(None) };
    Ok(text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some("concourse")).then_some(())?;
        let (_password, uid, gid) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Owner { uid: uid.parse().ok()?, gid: gid.parse().ok()? })
    }))
}
