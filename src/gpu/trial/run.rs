//! Makes the container, asks what it saw, and takes it away.
//!
//! What is left when this is killed is taken away by [`clean`], which systemd starts after it in any case.

use super::bundle::{PROGRAM, Place, last_user};
use super::judge::{Trial, judge};
use super::order::{Order, order};
use super::{Asked, Outcome, Seen, Verdict};
use crate::host::cmd::{Output, cmd, tail};
use crate::host::fs::{read, remove, write_atomic};
use crate::oci::devices::Devices;
use crate::oci::exec::Equipment;
use crate::oci::next;
use crate::oci::policy::{Access, Policy};
use crate::oci::report::rfc3339;
use anyhow::{Context, Result};
use nix::sys::stat::{major, minor};
use std::collections::BTreeMap;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the test waits for a GPU that is leased: whoever started it waits with it.
const LEASE: u64 = 10;
/// How long one call of the runtime may take beyond that.
const CALL: Duration = Duration::from_secs(20);
/// How long the program in the container may take: a driver that sleeps takes its time to wake.
const LOOK: Duration = Duration::from_secs(30);
/// How the containers' names begin.
const PREFIX: &str = "gpu-test-";

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The runtime policy.
    pub policy: PathBuf,
    /// `runc` as the worker's containerd finds it.
    pub runc: PathBuf,
    /// `concourse-gpu`, which looks in the container as well.
    pub program: PathBuf,
    /// The first process of Concourse's containers.
    pub init: PathBuf,
    /// A directory of our own, from which programs may be started.
    pub scratch: PathBuf,
    /// Where the worker's containerd has its bundles. A lease table that is lost is put together from the bundles beside
    /// the one that asks first: a test must not be the one that finds none.
    pub bundles: PathBuf,
    /// Where the result goes.
    pub outcome: PathBuf,
}

/// Tests, and writes the result; that of a test which is killed says so.
///
/// # Errors
/// Nothing can be written.
pub fn run(paths: &Paths, asked: &Asked) -> Result<Outcome> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let write = |outcome: Outcome| -> Result<Outcome> {
        let outcome = Outcome { at: rfc3339(now), ..outcome };
        write_atomic(&paths.outcome, serde_json::to_string(&outcome)?.as_bytes(), 0o644, None)?;
        Ok(outcome)
    };
    write(Outcome::without(Verdict::Failed, "the test was cut off before its end"))?;
    clean(paths)?;
    let outcome = attempt(paths, asked);
    clean(paths)?;
    write(outcome.unwrap_or_else(|why| Outcome::without(Verdict::NotTried, format!("{why:#}"))))
}

fn attempt(paths: &Paths, asked: &Asked) -> Result<Outcome> {
    let mut policy = next::policy(&paths.policy).map_err(anyhow::Error::msg)?;
    let gpus = policy.gpus.as_mut().context("the runtime policy has no GPUs")?;
    let devices = read(&gpus.devices)?.context("the GPUs were not looked at yet")?;
    let devices: Devices = serde_json::from_str(&devices)?;
    let order = match order(asked, gpus.access, &devices) {
        Ok(order) => order,
        Err(why) => return Ok(Outcome::without(Verdict::NotTried, why)),
    };
    anyhow::ensure!(paths.init.exists(), "{} is missing: is Concourse installed?", paths.init.display());
    gpus.leases.wait_s = gpus.leases.wait_s.min(LEASE);
    let container = Container::make(paths, &policy, &order)?;
    Ok(container.test(&policy, &order, &devices))
}

struct Container<'a> {
    paths: &'a Paths,
    id: String,
    bundle: PathBuf,
    policy: PathBuf,
}

impl<'a> Container<'a> {
    /// Writes the bundle.
    fn make(paths: &'a Paths, policy: &Policy, order: &Order) -> Result<Self> {
        let id = format!("{PREFIX}{}", std::process::id());
        let bundles = if paths.bundles.is_dir() { &paths.bundles } else { &paths.scratch.join("bundles") };
        let bundle = bundles.join(&id);
        let maps = ["/proc/self/uid_map", "/proc/self/gid_map"].map(|map| read(Path::new(map)));
        let [users, groups] = maps.map(|map| last_user(&map.ok().flatten().unwrap_or_default()));
        let root = users.min(groups);
        let dir = |name: &str| -> Result<PathBuf> {
            let path = paths.scratch.join(name);
            std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&path)?;
            chown(&path, Some(root), Some(root))?;
            Ok(path)
        };
        let place = Place {
            id: &id,
            rootfs: &dir("rootfs")?,
            work: &dir("work")?,
            init: &paths.init,
            image: &image(&paths.program)?,
            last_user: root,
            params: &order.params,
        };
        std::fs::DirBuilder::new().recursive(true).mode(0o711).create(&bundle)?;
        let own = Container { paths, id: id.clone(), policy: paths.scratch.join("policy.json"), bundle };
        own.write("config.json", &place.config())?;
        own.write("process.json", &place.process())?;
        write_atomic(&own.policy, &serde_json::to_vec(policy)?, 0o644, None)?;
        Ok(own)
    }

    fn write(&self, name: &str, value: &serde_json::Value) -> Result<()> {
        write_atomic(&self.bundle.join(name), value.to_string().as_bytes(), 0o644, None)
    }

    /// As containerd's shim calls it.
    fn runc(&self, args: &[&str], deadline: Duration) -> Result<Output> {
        let log = self.bundle.join("log.json");
        let mut words = vec!["--root".into(), state(self.paths), "--log".into(), log];
        words.extend(["--log-format", "json"].map(PathBuf::from));
        words.extend(args.iter().map(PathBuf::from));
        words.push(self.id.clone().into());
        // The wrapper finds the bundle by the working directory.
        let there = format!("cd '{}' && exec \"$0\" \"$@\"", self.bundle.display());
        let call = cmd("/bin/sh").args(["-c", &there]).arg(&self.paths.runc).args(words);
        call.env(next::POLICY_VARIABLE, &self.policy).deadline(deadline).output()
    }

    /// What the runtime itself said last, to its log or else aloud.
    fn complaint(&self, out: &Output) -> String {
        let log = read(&self.bundle.join("log.json")).ok().flatten().unwrap_or_default();
        let mut lines = log.lines().filter_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            line["msg"].as_str().map(str::to_owned)
        });
        lines.next_back().unwrap_or_else(|| tail(&out.stderr).to_owned())
    }

    fn test(&self, policy: &Policy, order: &Order, devices: &Devices) -> Outcome {
        let failed = |why: String| order.failed(devices, why);
        let began = std::time::Instant::now();
        let wait = policy.gpus.as_ref().map_or(0, |gpus| gpus.leases.wait_s);
        let bundle = self.bundle.to_string_lossy();
        let [pid, process] = ["init.pid", "process.json"].map(|name| self.bundle.join(name));
        let create =
            ["create", "--bundle", &bundle, "--pid-file", &pid.to_string_lossy(), "--no-new-keyring"];
        let calls = [
            (&create[..], Duration::from_secs(wait) + CALL),
            (&["start"], CALL),
            (&["exec", "--process", &process.to_string_lossy()], LOOK),
        ];
        let mut said = String::new();
        for (args, deadline) in calls {
            match self.runc(args, deadline) {
                Ok(out) if out.status.success() => said = out.stdout,
                Ok(out) => {
                    let exclusive = policy.gpus.as_ref().is_some_and(|g| g.access == Access::Exclusive);
                    let waited = exclusive && args[0] == "create" && began.elapsed().as_secs() >= wait;
                    let verdict = if waited { Verdict::NotTried } else { Verdict::Failed };
                    return Outcome { verdict, ..failed(self.complaint(&out)) };
                }
                Err(why) => return failed(format!("the container hangs at {}: {why:#}", args[0])),
            }
        }
        let Ok(seen) = serde_json::from_str::<Seen>(&said) else {
            return failed(format!("the program in the container said nothing that can be read: {said:?}"));
        };
        let config = read(&self.bundle.join("config.json")).ok().flatten().unwrap_or_default();
        let given = Equipment::noted(&config).unwrap_or_default();
        judge(&Trial { order, devices, given: &given, numbers: &live(devices), seen: &seen })
    }
}

/// Where runc keeps the states of our containers.
fn state(paths: &Paths) -> PathBuf {
    paths.scratch.join("runc")
}

/// Files of this machine that make an image: our program and what it is linked to. There is nothing of a
/// driver among them, so what the container has of one it has from the wrapper.
fn image(program: &Path) -> Result<Vec<(PathBuf, String)>> {
    let maps = read(Path::new("/proc/self/maps"))?.unwrap_or_default();
    let mut libraries: Vec<&Path> = maps
        .lines()
        .filter_map(|line| line.split_once('/').map(|(_, path)| path))
        .filter(|path| path.contains(".so"))
        .map(Path::new)
        .collect();
    libraries.sort();
    libraries.dedup();
    let mut files = vec![(program.to_owned(), PROGRAM.to_owned())];
    let mut add = |from: PathBuf| {
        let Some(name) = from.file_name().and_then(|name| name.to_str()).map(str::to_owned) else { return };
        let Some(dir) = from.parent().and_then(Path::to_str) else { return };
        if name.starts_with("ld-") {
            // By these names programs ask for it.
            files.extend(["/lib64", "/lib"].map(|dir| (from.clone(), format!("{dir}/{name}"))));
        } else {
            files.push((from.clone(), format!("{dir}/{name}")));
        }
    };
    let here: Vec<PathBuf> = libraries.iter().map(|path| Path::new("/").join(path)).collect();
    // What drivers are linked to, where glibc still has it apart.
    let libc = here.iter().find(|path| path.file_name().is_some_and(|name| name == "libc.so.6"));
    let more = ["libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0"];
    let more = libc.into_iter().flat_map(|libc| more.map(|name| libc.with_file_name(name)));
    let more: Vec<PathBuf> = more.filter(|path| path.exists() && !here.contains(path)).collect();
    here.into_iter().chain(more).for_each(&mut add);
    Ok(files)
}

/// Numbers of the nodes on the worker, now.
fn live(devices: &Devices) -> BTreeMap<PathBuf, (u64, u64)> {
    let drivers = devices.vendors.values().map(|driver| &driver.edits);
    let nodes = drivers.chain(devices.units.iter().map(|unit| &unit.edits)).flat_map(|edits| &edits.nodes);
    let number = |path: &PathBuf| {
        let rdev = std::fs::metadata(path).ok()?.rdev();
        Some((path.clone(), (major(rdev), minor(rdev))))
    };
    nodes.filter_map(|node| number(&node.host)).collect()
}

/// Takes away what a test leaves: its container with all its processes, the bundle, the files. A lease ends with them.
///
/// # Errors
/// Something can't be removed.
pub fn clean(paths: &Paths) -> Result<()> {
    for entry in std::fs::read_dir(state(paths)).into_iter().flatten().flatten() {
        let delete = cmd(&paths.runc).arg("--root").arg(state(paths)).args(["delete", "--force"]);
        // What runc can't delete it tells in the journal; the rest is removed all the same.
        let gone = delete.arg(entry.file_name()).deadline(CALL).output();
        if let Some(why) = gone.ok().filter(|out| !out.status.success()) {
            eprintln!("{}: {}", entry.path().display(), tail(&why.stderr));
        }
    }
    for entry in std::fs::read_dir(&paths.bundles).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            remove(&entry.path())?;
        }
    }
    remove(&paths.scratch)
}
