//! What a worker has left running: its containers and their shims.

use crate::host::fs::Root;
use anyhow::Result;
use nix::unistd::Pid;

/// Containers are in `garden/<handle>` beside the worker's unit, not in it (proven.md §1.1).
///
/// # Errors
/// There is no `/proc`.
pub fn processes(root: &Root) -> Result<Vec<Pid>> {
    let mut found = vec![];
    for entry in std::fs::read_dir(root.path("/proc"))? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that ended while we look is nothing to kill.
        let Ok(cgroups) = std::fs::read_to_string(entry.path().join("cgroup")) else { continue };
        let ours = |path: &str| path.contains("/garden/") || path.ends_with("/concourse-worker.service");
        if cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(ours) {
            found.push(Pid::from_raw(pid));
        }
    }
    Ok(found)
}
