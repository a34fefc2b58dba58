//! What a stopped worker leaves running on purpose, so that builds survive its restarts, is ended when it is not to
//! come back.

use crate::host::cmd::cmd;
use crate::host::fs::{Root, read};
use crate::observe::containers::processes;
use crate::paths;
use crate::world::Role;
use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Where containerd's shims keep Concourse's containers, by namespace.
const TASKS: &str = "/run/containerd/io.containerd.runtime.v2.task/concourse";

/// Ends shims and containers, and releases their mounts.
pub fn end(root: &Root) -> Result<()> {
    // Fails when there is nothing left, which is what is wanted.
    drop(
        cmd("systemctl")
            .args(["kill", "--kill-who=all", "--signal", "SIGKILL", Role::Worker.unit()])
            .output()?,
    );
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let left = processes(root)?;
        if left.is_empty() || Instant::now() > end {
            break;
        }
        for pid in left {
            // Gone in between is as good as killed.
            let _ = kill(pid, Signal::SIGKILL);
        }
        sleep(Duration::from_millis(50));
    }
    release_mounts(root)?;
    // The bridge that Concourse makes anew at its next start.
    drop(cmd("ip").args(["link", "delete", "concourse0"]).output()?);
    Ok(())
}

fn release_mounts(root: &Root) -> Result<()> {
    let table = read(&root.path("/proc/self/mounts"))?.unwrap_or_default();
    let below = |mount: &str| [paths::WORK_DIR, TASKS].iter().any(|dir| Path::new(mount).starts_with(dir));
    let mut mounts: Vec<&str> =
        table.lines().filter_map(|line| line.split(' ').nth(1)).filter(|m| below(m)).collect();
    // A work dir that is a disk of its own stays mounted.
    mounts.retain(|mount| *mount != paths::WORK_DIR);
    for mount in mounts.into_iter().rev() {
        drop(cmd("umount").args(["--lazy", mount]).output()?);
    }
    Ok(())
}
