//! A worker's process is taken away in such a moment that nobody has lost a thing when the next one is there.
//!
//! What a web node has being made is waited for ([`quiet`]). A process in a container whose end nobody sees is lost too:
//! the next worker's process knows only that it has stopped (worker/runtime/container.go, `Attach`), and its build errs. So
//! the containers in which steps run stand still (cgroup.freeze) until the web node listens to them again. That they go on
//! is systemd's to see to: whatever becomes of this hook, the unit that holds them ends, and with it their rest.

use super::quiet::{BRIEFLY, Look, Process};
use crate::host::cmd::cmd;
use crate::host::fs::Root;
use crate::observe::containers::{at_work, heard};
use crate::observe::services::services;
use crate::world::{Role, Worker};
use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// In seconds: longer than a pause, and the start after it as a rule (charm/units/concourse-worker.service).
const AT_MOST: &str = "35";
/// As systemd wants it: `$$` for the shell's own `$`. What has ended is gone.
const REST_ENDS: &str = "kill -CONT $$1 2>/dev/null; shift; for file; do echo 0 >$$file; done; true";
/// Web nodes try again after one second, and each time half as long again (retryhttp, NewExponentialBackOffFactory).
const HEARD_WITHIN: Duration = Duration::from_secs(15);
/// Longer than between two of the first tries: a step to which nobody has listened by then, such as a check whose web node
/// was restarted, does not hold up the others.
const NOBODY_ELSE: Duration = Duration::from_secs(5);
/// From a pipe's opening to the look at the process that must still run.
const LISTENS: Duration = Duration::from_millis(200);

/// Ends the worker's process in a moment when nothing is being made, with all steps at rest; whether such a moment came
/// before `end`. If not, they rest, and it is to be ended all the same.
///
/// # Errors
/// The unexpected.
pub fn end(root: &Root, worker: Worker, pid: u32, end: Instant) -> Result<bool> {
    let process = Process::new(root, worker.role(), pid);
    while let Some(calm) = process.calm(root, end)? {
        freeze(root, worker, pid)?;
        // What ended just before is told by the end of this.
        if process.stays(root, &calm)? && terminate(root, &process, &calm)? {
            return Ok(true);
        }
        thaw(worker)?;
    }
    freeze(root, worker, pid)?;
    sleep(BRIEFLY);
    Ok(false)
}

/// It stops for a look: what has come by then has come before. What comes now is cut off, so this is a matter of
/// milliseconds, and no program is started. At SIGTERM it takes no more requests within one.
fn terminate(root: &Root, process: &Process, calm: &Look) -> Result<bool> {
    let pid = Pid::from_raw(process.pid.cast_signed());
    // These fail where the process has ended by itself.
    let _ = kill(pid, Signal::SIGSTOP);
    let asked = process.is_asked(root, calm);
    if matches!(asked, Ok(false)) {
        let _ = kill(pid, Signal::SIGTERM);
    }
    let _ = kill(pid, Signal::SIGCONT);
    Ok(!asked?)
}

/// Waits, for some seconds at most, until a web node listens again to each container of a worker that has been started
/// anew, and lets those that stand still go on.
///
/// # Errors
/// The unexpected.
pub fn release(root: &Root, worker: Worker) -> Result<()> {
    let stands = |dir: &PathBuf| {
        std::fs::read_to_string(dir.join("cgroup.freeze")).is_ok_and(|frozen| frozen.trim() == "1")
    };
    if at_work(root, worker)?.iter().any(stands) {
        until_heard(root, worker.role())?;
    }
    thaw(worker)
}

fn until_heard(root: &Root, role: Role) -> Result<()> {
    let end = Instant::now() + HEARD_WITHIN;
    let (mut last, mut since) = (0, Instant::now());
    while Instant::now() < end {
        let pid = services(root)?.get(&role).and_then(|service| service.pid);
        if let Some((all, now)) = pid.map(|pid| heard(root, role, pid)).transpose()? {
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if enough(all, now).is_some_and(|enough| since.elapsed() >= enough) {
                return Ok(());
            }
        }
        sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// For how long so many of all steps have to be listened to, and no more of them; `None`: it is not enough.
fn enough(all: usize, heard: usize) -> Option<Duration> {
    match heard {
        _ if heard == all => Some(LISTENS),
        0 => None,
        _ => Some(NOBODY_ELSE),
    }
}

/// Containers stand still from now on; with their rest ends that of the worker's process.
fn freeze(root: &Root, worker: Worker, pid: u32) -> Result<()> {
    let dirs = at_work(root, worker)?.into_iter();
    let files: Vec<PathBuf> =
        dirs.map(|dir| dir.join("cgroup.freeze")).filter(|file| file.exists()).collect();
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let (unit, names) = (format!("--unit={}", unit(worker)), names.join(" "));
    let after = format!("--property=ExecStopPost=/bin/sh -c '{REST_ENDS}' sh {pid} {names}");
    thaw(worker)?;
    let what = "--description=Concourse CI: builds stand still while their worker is started anew";
    cmd("systemd-run").args(["--quiet", "--collect", what, &unit, &after, "/bin/sleep", AT_MOST]).run()?;
    for file in files {
        // Gone with its container.
        let _ = std::fs::write(file, "1");
    }
    Ok(())
}

fn thaw(worker: Worker) -> Result<()> {
    // Fails when there is none, which is what is wanted.
    cmd("systemctl").args(["stop", &unit(worker)]).output().map(drop)
}

fn unit(worker: Worker) -> String {
    format!("concourse-hold-{}.service", worker.role().record())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_wait_for_all_of_them_and_not_for_ever() {
        assert_eq!(enough(0, 0), Some(LISTENS), "nobody prints anything");
        assert_eq!(enough(2, 2), Some(LISTENS));
        assert_eq!(enough(2, 1), Some(NOBODY_ELSE));
        assert_eq!(enough(2, 0), None);
    }
}
