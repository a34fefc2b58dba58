//! Looking at GPUs, always in another process: a driver that hangs must not hang a hook.

use super::{Outcome, Trouble};
use crate::gpu::trial::{self, Asked, Verdict};
use crate::host::cmd::{Output, cmd, tail};
use crate::host::fs::{self, Root, write_atomic};
use crate::juju::tools;
use crate::paths;
use anyhow::Result;
use nix::sys::signal::Signal;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

/// The program bounds itself to less.
const PATIENCE: Duration = Duration::from_secs(110);

/// Looks, and leaves what was seen for the next observation.
pub fn look() -> Outcome {
    match cmd(paths::GPU_PROGRAM).arg("refresh").deadline(PATIENCE).output() {
        Ok(out) if out.status.success() => Ok(Ok(())),
        Ok(out) => Ok(Err(Trouble(format!("The GPUs can't be looked at: {}", complaint(&out))))),
        Err(why) => Ok(Err(Trouble(format!("The GPUs can't be looked at: {why:#}")))),
    }
}

/// Why a look came to nothing: the alarm that bounds it ends it without a word.
fn complaint(out: &Output) -> String {
    match tail(&out.stderr) {
        "" if out.status.signal() == Some(Signal::SIGALRM as i32) => {
            "it did not end in time: another look or the driver holds it up; journalctl -u concourse-gpu tells"
                .to_owned()
        }
        "" => format!("it ended with {} and without a word", out.status),
        said => said.to_owned(),
    }
}

/// The unit in which a test runs: whatever becomes of it or of us, systemd ends it in time and tidies up after it.
const TEST: [&str; 7] = [
    "--unit=concourse-gpu-test",
    "--description=Concourse CI: a container with GPUs, for a test",
    "--collect",
    "--wait",
    "--quiet",
    "--property=RuntimeMaxSec=120",
    "--property=TimeoutStopSec=45",
];

/// The unit's two limits, and some for systemd itself.
const TEST_PATIENCE: Duration = Duration::from_secs(180);

/// Tests, and leaves what came of it for the next observation.
pub fn test(root: &Root, asked: &Asked) -> Result<()> {
    let words = [("--count", &asked.count), ("--devices", &asked.devices)];
    let words = words.into_iter().filter_map(|(name, value)| Some([name, value.as_deref()?])).flatten();
    let path = root.path(paths::GPU_TEST);
    let before = fs::read(&path)?;
    let ran = cmd("systemd-run")
        .args(TEST)
        .arg(format!("--property=ExecStopPost={} test-clean", paths::GPU_PROGRAM))
        .args(["--", paths::GPU_PROGRAM, "test"])
        .args(words)
        .deadline(TEST_PATIENCE)
        .output();
    let why = match ran {
        Ok(out) if out.status.success() => return Ok(()),
        Ok(out) if out.stderr.contains("already") => "another test still runs: try again later".to_owned(),
        Ok(out) => format!(
            "the test failed ({}): {}: see journalctl -u concourse-gpu-test",
            out.code(),
            tail(&out.stderr)
        ),
        Err(why) => format!("{why:#}"),
    };
    let now = fs::read(&path)?;
    if now.is_some() && now != before {
        // It began, and its own word, that it was cut off, holds.
        tools::log("WARNING", &why);
        return Ok(());
    }
    let outcome = serde_json::to_vec(&trial::Outcome::without(Verdict::NotTried, why))?;
    write_atomic(&path, &outcome, 0o644, None)
}

/// Undoes what was changed about the GPUs. They may be gone, or hang: then there is nothing to undo.
pub fn restore(root: &Root) -> Result<()> {
    if let Err(why) = cmd(paths::GPU_PROGRAM).arg("restore").deadline(PATIENCE).run() {
        tools::log("WARNING", &format!("GPUs are not as they were found: {why:#}"));
    }
    fs::remove(&root.path(paths::GPU_PERSISTENCE))
}

/// Lets systemd look again when something changes, or no more.
pub fn watch(on: bool) -> Result<()> {
    if on {
        cmd("systemctl").args(["enable", "--now", "--quiet"]).args(paths::GPU_WATCHES).run()?;
    } else {
        // One by one, and its link in any case: of some the file may be gone, for which systemctl refuses all.
        for (watch, link) in paths::GPU_WATCHES.iter().zip(paths::GPU_WATCHED) {
            if let Err(why) = cmd("systemctl").args(["disable", "--now", "--quiet", watch]).run() {
                tools::log("WARNING", &format!("{why:#}"));
            }
            fs::remove(Path::new(link))?;
        }
        // It may wait for this very hook to end, or not be known at all.
        cmd("systemctl").args(["stop", "--quiet", "concourse-gpu-tell.service"]).output()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_says_nothing_still_has_a_reason() {
        let why = |script: &str| complaint(&cmd("sh").args(["-c", script]).output().unwrap());
        assert!(why("kill -ALRM $$").starts_with("it did not end in time: another look or the driver"));
        assert_eq!(why("exit 3"), "it ended with exit status: 3 and without a word");
        assert_eq!(why("echo why >&2; kill -ALRM $$"), "why");
    }
}
