//! What a worker has left running: its containers and their shims.

use crate::host::fs::Root;
use crate::paths;
use crate::world::{Role, Worker};
use anyhow::Result;
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Processes of the workers, with whose they are.
///
/// # Errors
/// There is no `/proc`.
pub fn processes(root: &Root) -> Result<Vec<(Worker, Pid)>> {
    let all = cgroups(root)?.into_iter();
    Ok(all.filter_map(|(pid, cgroups)| owner(&cgroups).map(|worker| (worker, pid))).collect())
}

/// Whether a container has a process besides its init, as while a step runs; one that is kept for later has none.
///
/// # Errors
/// There is no `/proc`.
pub fn busy(root: &Root) -> Result<bool> {
    let mut seen = BTreeSet::new();
    let all = cgroups(root)?.into_iter().filter(|(_, cgroups)| owner(cgroups).is_some());
    Ok(all.filter_map(|(_, cgroups)| handle(&cgroups)).any(|container| !seen.insert(container)))
}

/// What a worker starts when it makes a container, or starts a process in one: the runtime and the network's plugins.
const MAKERS: [&str; 6] = ["runc", "bridge", "host-local", "firewall", "iptables", "ip6tables"];

/// Whether the service has a container being made. What a container calls so is none of ours.
///
/// # Errors
/// There is no `/proc`.
pub fn makes(root: &Root, role: Role) -> Result<bool> {
    let maker = |pid: Pid| {
        let name = std::fs::read_to_string(root.path(format!("/proc/{pid}/comm")));
        name.is_ok_and(|name| MAKERS.contains(&name.trim_end()))
    };
    Ok(cgroups(root)?.into_iter().any(|(pid, cgroups)| is_own(&cgroups, role) && maker(pid)))
}

/// The cgroups, as directories, of a worker's containers in which a step runs: besides their init they have a process.
/// None where the machine has cgroups of version 1.
///
/// # Errors
/// There is no `/proc`.
pub fn at_work(root: &Root, worker: Worker) -> Result<Vec<PathBuf>> {
    let mut found: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for (_, cgroups) in cgroups(root)?.into_iter().filter(|(_, cgroups)| owner(cgroups) == Some(worker)) {
        if let Some(dir) = cgroups.lines().find_map(|line| line.strip_prefix("0::")).and_then(directory) {
            *found.entry(root.path("/sys/fs/cgroup").join(dir)).or_default() += 1;
        }
    }
    Ok(found.into_iter().filter(|(_, processes)| *processes > 1).map(|(dir, _)| dir).collect())
}

/// Up to the container, without what it has made below.
fn directory(cgroup: &str) -> Option<PathBuf> {
    let parts: Vec<&str> = cgroup.split('/').skip_while(|part| part.is_empty()).collect();
    let container = parts.iter().position(|part| is_handle(part))?;
    Some(parts[..=container].iter().collect())
}

fn cgroups(root: &Root) -> Result<Vec<(Pid, String)>> {
    let mut found = vec![];
    for entry in std::fs::read_dir(root.path("/proc"))? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that ended while we look is nothing to kill.
        let Ok(cgroups) = std::fs::read_to_string(entry.path().join("cgroup")) else { continue };
        found.push((Pid::from_raw(pid), cgroups));
    }
    Ok(found)
}

/// The container that a process is in.
fn handle(cgroups: &str) -> Option<String> {
    cgroups.split(['/', '\n']).find(|part| is_handle(part)).map(str::to_owned)
}

/// A container has a cgroup beside its worker's unit (proven.md §1.1): `garden/<handle>`, or just `<handle>` for a
/// privileged step (worker/runtime/spec/spec.go, OciCgroupsPath). So the second worker's unit is in a slice of its own.
/// With cgroups of version 1 a process is in several, and not all of them tell the slice.
fn owner(cgroups: &str) -> Option<Worker> {
    let paths: Vec<Vec<&str>> = cgroups
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .map(|path| path.split('/').collect())
        .collect();
    if paths.iter().flatten().any(|part| *part == paths::UNTAGGED_SLICE) {
        return Some(Worker::Untagged);
    }
    let unit = Worker::Main.role().unit();
    let container = |path: &Vec<&str>| {
        let privileged = |pair: &[&str]| (pair[0] == "system.slice" || pair[0] == unit) && is_handle(pair[1]);
        path.contains(&"garden") || path.windows(2).any(privileged)
    };
    let main = |path: &Vec<&str>| path.last() == Some(&unit) || container(path);
    paths.iter().any(main).then_some(Worker::Main)
}

/// Concourse names containers by UUIDs.
fn is_handle(name: &str) -> bool {
    let parts = name.split('-').map(|part| part.bytes().all(|b| b.is_ascii_hexdigit()).then_some(part.len()));
    parts.eq([8, 4, 4, 4, 12].map(Some))
}

/// The sockets that processes of a worker have open, by their inodes.
///
/// # Errors
/// There is no `/proc`.
pub fn sockets(root: &Root, of: Worker) -> Result<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    for (_, pid) in processes(root)?.into_iter().filter(|(worker, _)| *worker == of) {
        let inode = |file: String| file.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok();
        found.extend(open(root, pid).filter_map(inode));
    }
    Ok(found)
}

/// Through how many pipes shims pass on what processes in containers print, and to how many of them the worker's process,
/// by its number, listens: `…/fifo/<number>/<process>-stdout`, a directory for each process (containerd's package cio).
///
/// # Errors
/// There is no `/proc`.
pub fn heard(root: &Root, role: Role, main: u32) -> Result<(usize, usize)> {
    let main = Pid::from_raw(main.cast_signed());
    let pipes = |pid: Pid| {
        let dir = |file: String| Some(Path::new(&file).parent()?.to_owned());
        let of_container = |dir: &PathBuf| dir.parent().is_some_and(|dir| dir.ends_with("fifo"));
        open(root, pid).filter_map(dir).filter(of_container).collect::<BTreeSet<PathBuf>>()
    };
    let shims = cgroups(root)?.into_iter().filter(|(pid, cgroups)| *pid != main && is_own(cgroups, role));
    let all: BTreeSet<PathBuf> = shims.into_iter().flat_map(|(shim, _)| pipes(shim)).collect();
    Ok((all.len(), all.intersection(&pipes(main)).count()))
}

/// What a process has open, as `/proc` tells it. One that has ended has nothing.
fn open(root: &Root, pid: Pid) -> impl Iterator<Item = String> {
    let descriptors = std::fs::read_dir(root.path(format!("/proc/{pid}/fd"))).into_iter().flatten().flatten();
    descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok()?.into_os_string().into_string().ok())
}

/// Whether a process is the service's own, and not in a container.
fn is_own(cgroups: &str, role: Role) -> bool {
    cgroups.lines().any(|line| line.rsplit('/').next() == Some(role.unit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_with_its_init_alone_is_not_busy() {
        let root = tempfile::tempdir().unwrap();
        let process = |pid: u32, cgroup: &str| {
            let dir = root.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        };
        let look = || busy(&Root::new(root.path())).unwrap();
        let at_work = || at_work(&Root::new(root.path()), Worker::Main).unwrap();
        process(1, "/init.scope");
        process(10, "/system.slice/concourse-worker.service");
        process(11, "/system.slice/concourse-worker.service");
        process(20, &format!("/system.slice/garden/{HANDLE}"));
        process(30, "/system.slice/garden/00000000-0000-0000-0000-000000000000");
        assert!(!look());
        assert_eq!(at_work(), Vec::<PathBuf>::new());
        process(21, &format!("/system.slice/garden/{HANDLE}/of-its-own"));
        assert!(look());
        assert_eq!(at_work(), [root.path().join("sys/fs/cgroup/system.slice/garden").join(HANDLE)]);
    }

    #[test]
    fn a_worker_hears_what_its_shims_tell() {
        let root = tempfile::tempdir().unwrap();
        let has = |pid: u32, files: &[&str]| {
            let dir = root.path().join(format!("proc/{pid}"));
            let _before = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(dir.join("fd")).unwrap();
            std::fs::write(dir.join("cgroup"), "0::/system.slice/concourse-worker.service\n").unwrap();
            for (fd, file) in files.iter().enumerate() {
                std::os::unix::fs::symlink(file, dir.join(format!("fd/{fd}"))).unwrap();
            }
        };
        let heard = || heard(&Root::new(root.path()), Role::Worker, 1).unwrap();
        has(1, &[]);
        has(2, &["/dev/null", "socket:[7]", "/run/containerd/io.containerd.runtime.v2.task/concourse/h/log"]);
        assert_eq!(heard(), (0, 0));
        has(3, &["/run/containerd/fifo/12/task-stdin", "/run/containerd/fifo/12/task-stdout"]);
        assert_eq!(heard(), (1, 0));
        has(1, &["/run/containerd/fifo/13/task-stdout"]);
        assert_eq!(heard(), (1, 0));
        has(1, &["/run/containerd/fifo/13/task-stdout", "/run/containerd/fifo/12/task-stdout"]);
        assert_eq!(heard(), (1, 1));
    }

    const HANDLE: &str = "429aa5c5-3589-4653-a08f-49b6ac618617";

    #[test]
    fn whose_a_process_is() {
        let slice = "/system.slice/system-concourse_untagged.slice";
        let rows = [
            ("0::/system.slice/concourse-worker.service".to_owned(), Some(Worker::Main)),
            ("0::/system.slice/garden/h".to_owned(), Some(Worker::Main)),
            (format!("0::{slice}/concourse-worker-untagged.service"), Some(Worker::Untagged)),
            (format!("0::{slice}/garden/h"), Some(Worker::Untagged)),
            (format!("0::/system.slice/{HANDLE}"), Some(Worker::Main)),
            (format!("0::/system.slice/{HANDLE}/docker/x"), Some(Worker::Main)),
            (format!("0::{slice}/{HANDLE}"), Some(Worker::Untagged)),
            (format!("0::/machine.slice/{HANDLE}"), None),
            ("0::/system.slice/ssh-1-2-3-4.service".to_owned(), None),
            ("0::/system.slice/concourse-web.service".to_owned(), None),
            ("0::/init.scope".to_owned(), None),
            // Version 1: below the unit where it is delegated, at the top where not.
            (
                format!(
                    "9:freezer:/garden/h\n1:name=systemd:{slice}/concourse-worker-untagged.service/garden/h"
                ),
                Some(Worker::Untagged),
            ),
            (
                "9:freezer:/garden/h\n1:name=systemd:/system.slice/concourse-worker.service/garden/h"
                    .to_owned(),
                Some(Worker::Main),
            ),
        ];
        for (cgroups, whose) in rows {
            assert_eq!(owner(&cgroups), whose, "{cgroups}");
        }
    }
}
