//! What lives: `/proc` and the cgroups.

use super::model::{Inside, Lease, Proc, World};
use crate::oci::policy::BUNDLES;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How long a container that is ready waits for its first process with its units kept: milliseconds. Concourse sends it
/// within a second; a web node that restarts in between takes a minute.
pub const FIRST_PROCESS: u64 = 120_000;

/// How often a container is looked at in which processes end all the time, before it counts as inhabited.
const ROUNDS: u32 = 16;

/// The machine.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// `/proc`
    pub proc: PathBuf,
    /// `/sys/fs/cgroup`
    pub cgroups: PathBuf,
    /// Milliseconds after boot: no clock that someone sets.
    pub now: u64,
    /// Inode of our pid namespace.
    pub namespace: u64,
    /// See [`BUNDLES`].
    pub bundles: Vec<PathBuf>,
}

impl Kernel {
    /// This machine, now.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn here() -> io::Result<Self> {
        let namespace = fs::metadata("/proc/self/ns/pid")?.ino();
        let bundles = BUNDLES.map(PathBuf::from).into();
        Ok(Kernel { proc: "/proc".into(), cgroups: "/sys/fs/cgroup".into(), now: now(), namespace, bundles })
    }

    /// Where we see a bundle that someone noted by the name that it has for him: containers of all workers have names of
    /// their own.
    pub fn seen(&self, bundle: &Path) -> PathBuf {
        // What can't be looked at is there: whoever reads it hears why not.
        let there = |path: &PathBuf| path.try_exists().unwrap_or(true);
        let noted = bundle.to_owned();
        let name = bundle.file_name().unwrap_or_default();
        let elsewhere = self.bundles.iter().map(|root| root.join(name));
        [noted.clone()].into_iter().chain(elsewhere).find(there).unwrap_or(noted)
    }

    /// Which boot it is.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn boot(&self) -> io::Result<String> {
        Ok(fs::read_to_string(self.proc.join("sys/kernel/random/boot_id"))?.trim().to_owned())
    }

    /// A process by its number; `None`: there is none, or it has ended and waits to be reaped.
    ///
    /// # Errors
    /// Nobody can say.
    pub fn process(&self, pid: i32) -> io::Result<Option<Proc>> {
        let Some(stat) = text(&self.proc.join(pid.to_string()).join("stat"))? else { return Ok(None) };
        let (start, dead) = parse_stat(&stat).ok_or(ErrorKind::InvalidData)?;
        Ok((!dead).then_some(Proc { pid, start, namespace: self.namespace }))
    }

    /// Where the processes of a container are, by the `init.pid` that runc leaves in its bundle. `None`: it has no init
    /// (any more). The number may be old and given again, so the cgroup has to have the container's name.
    ///
    /// # Errors
    /// Nobody can say.
    pub fn inside(&self, bundle: &Path, id: &str) -> io::Result<Option<Inside>> {
        let pid = text(&self.seen(bundle).join("init.pid"))?.and_then(|pid| pid.trim().parse().ok());
        let Some(pid) = pid else { return Ok(None) };
        let Some(init) = self.process(pid)? else { return Ok(None) };
        let groups = text(&self.proc.join(pid.to_string()).join("cgroup"))?.unwrap_or_default();
        let Some(cgroup) = self.directory(&groups, id)? else { return Ok(None) };
        // Read between two looks at the same process: both are of it.
        Ok((self.process(pid)? == Some(init)).then_some(Inside { init, cgroup }))
    }

    /// The directory of a cgroup, from a `/proc/<pid>/cgroup`. Both versions may be mounted; runc makes a device cgroup of
    /// version 1 wherever there is one.
    fn directory(&self, groups: &str, id: &str) -> io::Result<Option<PathBuf>> {
        let rank = |controllers: &str| match controllers {
            "" => Some(2),
            list => ["devices", "pids", "memory"].iter().position(|c| list.split(',').any(|l| l == *c)),
        };
        let mut found: Vec<(usize, PathBuf)> = vec![];
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            // A container may have groups of its own below, and have moved its init there: all of it is what counts.
            let parts: Vec<&OsStr> = Path::new(path.trim_start_matches('/')).iter().collect();
            let Some(own) = parts.iter().position(|part| part.to_string_lossy().contains(id)) else {
                continue;
            };
            let path: PathBuf = parts.iter().take(own + 1).collect();
            let roots = match controllers {
                "" => vec![self.cgroups.clone(), self.cgroups.join("unified")],
                name => vec![self.cgroups.join(name)],
            };
            for dir in roots.into_iter().map(|root| root.join(&path)) {
                if dir.join("cgroup.procs").try_exists()? {
                    found.extend(rank(controllers).map(|rank| (rank, dir)));
                    break;
                }
            }
        }
        Ok(found.into_iter().min().map(|(_, dir)| dir))
    }

    /// Processes of a cgroup and of those below it, init and those that have ended left out. What can't be seen counts as a
    /// process (`None`): who can't look must not say that nobody is there.
    pub fn inhabitants(&self, inside: &Inside) -> Vec<Option<Proc>> {
        let mut ended: BTreeSet<i32> = BTreeSet::new();
        // One that ended while we looked may have started another behind our back: only a look that brings nothing new says
        // that all is quiet; and where processes may move between groups, two of them.
        let mut quiet_before = false;
        for _ in 0..ROUNDS {
            let (listed, groups) = self.listed(&inside.cgroup);
            let pids: Vec<Option<i32>> =
                listed.into_iter().filter(|pid| *pid != Some(inside.init.pid)).collect();
            let alive = |pid: &Option<i32>| match pid.filter(|pid| *pid > 0) {
                Some(pid) => self.process(pid).map_or(Some(None), |found| found.map(Some)),
                None => Some(None),
            };
            let found: Vec<Option<Proc>> = pids.iter().filter_map(alive).collect();
            if !found.is_empty() {
                return found;
            }
            let quiet = pids.iter().flatten().all(|pid| ended.contains(pid));
            if quiet && (quiet_before || groups < 2) {
                return vec![];
            }
            quiet_before = quiet;
            ended.extend(pids.iter().flatten());
        }
        vec![None]
    }

    /// What the groups list, and how many groups there are.
    fn listed(&self, top: &Path) -> (Vec<Option<i32>>, usize) {
        let (mut found, mut groups) = (vec![], 0);
        let mut dirs = vec![top.to_owned()];
        while let Some(dir) = dirs.pop() {
            match fs::read_to_string(dir.join("cgroup.procs")) {
                Ok(list) => found.extend(list.lines().map(|line| line.parse().ok())),
                // It is threaded, and its processes are listed above.
                Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
                Err(e) if is_gone(&e) => {}
                Err(_) => found.push(None),
            }
            groups += 1;
            match below(&dir) {
                Ok(below) => dirs.extend(below),
                Err(e) if is_gone(&e) => {}
                Err(_) => found.push(None),
            }
        }
        (found, groups)
    }
}

/// The directories in one.
pub fn below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![];
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// What says that a process, a cgroup or a file is no longer there. Any other error says nothing: what it is about counts as
/// living, for a unit must not be given twice because the memory or the descriptors ran out.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH | libc::ENODEV))
}

/// A file's text; `None`: it is gone. Names of processes may be of any bytes.
pub fn text(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
        Err(e) if is_gone(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

impl World for Kernel {
    fn now(&self) -> u64 {
        self.now
    }

    fn lives(&self, process: &Proc) -> bool {
        process.namespace == self.namespace
            && self.process(process.pid).map_or(true, |found| found == Some(*process))
    }

    fn inhabited(&self, inside: &Inside) -> bool {
        !self.inhabitants(inside).is_empty()
    }

    fn fresh(&self, lease: &Lease) -> bool {
        let ready = || self.inside(&lease.bundle, &lease.id).map_or(true, |inside| inside.is_some());
        // One that was found, not given, may be in the making: then it has no init yet.
        let bundle = self.seen(&lease.bundle);
        let there = |path: &Path| path.try_exists().unwrap_or(true);
        let made = || lease.suspect && there(&bundle) && !there(&bundle.join("init.pid"));
        self.now.saturating_sub(lease.since) < FIRST_PROCESS && (ready() || made())
    }
}

/// Milliseconds after boot.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1000).saturating_add(part(time.tv_nsec) / 1_000_000)
}

/// Start time, and whether it has ended. The name may hold anything, parentheses too. A process whose first thread has ended
/// while others go on is a zombie to look at.
fn parse_stat(stat: &str) -> Option<(u64, bool)> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let (state, threads, start) = (fields.first()?, fields.get(17)?, fields.get(19)?);
    let ended = matches!(*state, "Z" | "X" | "x") && threads.parse().is_ok_and(|n: u32| n <= 1);
    Some((start.trim().parse().ok()?, ended))
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
