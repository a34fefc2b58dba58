//! What a worker has left running: its containers and their shims.

use crate::host::fs::Root;
use crate::paths;
use crate::world::Worker;
use anyhow::Result;
use nix::unistd::Pid;
use std::collections::BTreeSet;

/// Processes of the workers, with whose they are.
///
/// # Errors
/// There is no `/proc`.
pub fn processes(root: &Root) -> Result<Vec<(Worker, Pid)>> {
    let mut found = vec![];
    for entry in std::fs::read_dir(root.path("/proc"))? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that ended while we look is nothing to kill.
        let Ok(cgroups) = std::fs::read_to_string(entry.path().join("cgroup")) else { continue };
        found.extend(owner(&cgroups).map(|worker| (worker, Pid::from_raw(pid))));
    }
    Ok(found)
}

/// Containers are in `garden/<handle>` beside the worker's unit, not in it (proven.md §1.1); so the second worker's unit
/// is in a slice of its own. With cgroups of version 1 a process is in several, and not all of them tell the slice.
fn owner(cgroups: &str) -> Option<Worker> {
    let paths: Vec<&str> = cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).collect();
    let any = |is: &dyn Fn(&str) -> bool| paths.iter().any(|path| is(path));
    let container = any(&|path| path.contains("/garden/"));
    if any(&|path| path.split('/').any(|part| part == paths::UNTAGGED_SLICE)) {
        let of_unit = any(&|path| path.ends_with("/concourse-worker-untagged.service"));
        (container || of_unit).then_some(Worker::Untagged)
    } else {
        (container || any(&|path| path.ends_with("/concourse-worker.service"))).then_some(Worker::Main)
    }
}

/// The sockets that processes of a worker have open, by their inodes.
///
/// # Errors
/// There is no `/proc`.
pub fn sockets(root: &Root, of: Worker) -> Result<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    for (_, pid) in processes(root)?.into_iter().filter(|(worker, _)| *worker == of) {
        // A process that has ended holds nothing.
        let descriptors = std::fs::read_dir(root.path(format!("/proc/{pid}/fd"))).into_iter().flatten();
        found.extend(descriptors.flatten().filter_map(|entry| {
            let target = std::fs::read_link(entry.path()).ok()?;
            target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
        }));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_a_process_is() {
        let slice = "/system.slice/system-concourse_untagged.slice";
        let rows = [
            ("0::/system.slice/concourse-worker.service".to_owned(), Some(Worker::Main)),
            ("0::/system.slice/garden/h".to_owned(), Some(Worker::Main)),
            (format!("0::{slice}/concourse-worker-untagged.service"), Some(Worker::Untagged)),
            (format!("0::{slice}/garden/h"), Some(Worker::Untagged)),
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
