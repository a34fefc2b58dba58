//! Asks an unpacked program which version it is: the only proof that it runs on this machine.

use super::{Refusal, Step, Stop, one_line, refuse};
use crate::host::cmd::{cmd, tail};
use crate::parse::Version;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Runs `concourse --version`.
pub(super) fn version(binary: &Path, deadline: Duration) -> Step<Version> {
    let unusable = |why: String| {
        Stop::Unusable(Refusal(format!(
            "the archive's bin/concourse {why}: use a release of Concourse for linux and {}",
            std::env::consts::ARCH
        )))
    };
    match std::fs::symlink_metadata(binary) {
        Ok(meta) if meta.is_file() && meta.permissions().mode() & 0o100 != 0 => {}
        Ok(meta) if meta.is_file() => return Err(unusable("is not executable".to_owned())),
        _ => return Err(unusable("is missing".to_owned())),
    }
    let output = loop_while_busy(binary, deadline);
    let output = match output {
        Ok(output) => output,
        Err(error) => return Err(no_start(&error, deadline, unusable)),
    };
    if !output.status.success() {
        return Err(refuse(format!(
            "the archive's bin/concourse --version fails ({}) on this machine: {}",
            output.code(),
            one_line(tail(&output.stderr), 300)
        )));
    }
    let line = output.stdout.lines().next().unwrap_or_default().trim().to_owned();
    line.parse::<Version>().map_err(|_| unusable(format!("tells no version (`{}`)", one_line(&line, 60))))
}

/// A file just written can't be started for a moment when another thread forks meanwhile: the child has it open.
fn loop_while_busy(binary: &Path, deadline: Duration) -> anyhow::Result<crate::host::cmd::Output> {
    let end = Instant::now() + Duration::from_secs(2).min(deadline);
    loop {
        match cmd(binary).arg("--version").deadline(deadline).output() {
            Err(error) if os_error(&error) == Some(libc::ETXTBSY) && Instant::now() < end => {
                sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
}

fn no_start(error: &anyhow::Error, deadline: Duration, unusable: impl Fn(String) -> Stop) -> Stop {
    match os_error(error) {
        Some(libc::ENOEXEC) => unusable("is no program for this machine".to_owned()),
        Some(libc::EACCES) => refuse("programs can't be run from /opt/concourse: mount it without noexec"),
        Some(_) => refuse(format!("the archive's bin/concourse can't be started: {}", error.root_cause())),
        None => refuse(format!(
            "the archive's bin/concourse --version did not end within {} s: is the machine overloaded?",
            deadline.as_secs()
        )),
    }
}

fn os_error(error: &anyhow::Error) -> Option<i32> {
    error.chain().find_map(|e| e.downcast_ref::<std::io::Error>()).and_then(std::io::Error::raw_os_error)
}
