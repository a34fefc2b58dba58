//! What a stopped worker leaves running on purpose, so that builds survive its restarts, is ended when it is not to
//! come back.

use crate::host::cmd::cmd;
use crate::host::fs::{Root, read};
use crate::observe::containers::processes;
use crate::paths;
use crate::world::Worker;
use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Where containerd's shims keep Concourse's containers, by namespace.
const TASKS: &str = "io.containerd.runtime.v2.task/concourse";

/// Ends shims and containers of the workers, and releases their mounts.
pub fn end(root: &Root, workers: &[Worker]) -> Result<()> {
    for worker in workers {
        // Fails when there is nothing left, which is what is wanted.
        drop(
            cmd("systemctl")
                .args(["kill", "--kill-who=all", "--signal", "SIGKILL", worker.role().unit()])
                .output()?,
        );
    }
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let mut left = processes(root)?;
        left.retain(|(worker, _)| workers.contains(worker));
        if left.is_empty() || Instant::now() > end {
            break;
        }
        for (_, pid) in left {
            // Gone in between is as good as killed.
            let _ = kill(pid, Signal::SIGKILL);
        }
        sleep(Duration::from_millis(50));
    }
    for worker in workers {
        release_mounts(root, *worker)?;
    }
    if workers.contains(&Worker::Untagged) {
        // Nothing runs in it any more; and where it never was, nothing is what is wanted.
        drop(cmd("systemctl").args(["stop", paths::UNTAGGED_SLICE]).output()?);
    }
    if Worker::ALL.iter().all(|worker| workers.contains(worker)) {
        // The bridge of all containers, which Concourse makes anew for the next one.
        drop(cmd("ip").args(["link", "delete", "concourse0"]).output()?);
    }
    Ok(())
}

fn release_mounts(root: &Root, worker: Worker) -> Result<()> {
    let work_dir = Path::new(worker.paths().work_dir);
    let tasks = Path::new(worker.paths().containerd).join(TASKS);
    let table = read(&root.path("/proc/self/mounts"))?.unwrap_or_default();
    let below = |mount: &str| [work_dir, &tasks].iter().any(|dir| Path::new(mount).starts_with(dir));
    let mut mounts: Vec<&str> =
        table.lines().filter_map(|line| line.split(' ').nth(1)).filter(|m| below(m)).collect();
    // A work dir that is a disk of its own stays mounted.
    mounts.retain(|mount| Path::new(mount) != work_dir);
    for mount in mounts.into_iter().rev() {
        drop(cmd("umount").args(["--lazy", mount]).output()?);
    }
    Ok(())
}
