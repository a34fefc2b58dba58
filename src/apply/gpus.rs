//! Looking at GPUs, always in another process: a driver that hangs must not hang a hook.

use super::{Outcome, Trouble};
use crate::host::cmd::{cmd, tail};
use crate::host::fs::{self, Root};
use crate::juju::tools;
use crate::paths;
use anyhow::Result;
use std::time::Duration;

/// The program bounds itself: at 20 s, and at 75 s where it has to copy a driver's files.
const PATIENCE: Duration = Duration::from_secs(110);

/// Looks, and leaves what was seen for the next observation.
pub fn look() -> Outcome {
    match cmd(paths::GPU_PROGRAM).arg("refresh").deadline(PATIENCE).output() {
        Ok(out) if out.status.success() => Ok(Ok(())),
        Ok(out) => Ok(Err(Trouble(format!("The GPUs can't be looked at: {}", tail(&out.stderr))))),
        Err(why) => Ok(Err(Trouble(format!("The GPUs can't be looked at: {why:#}")))),
    }
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
    let verb = if on { "enable" } else { "disable" };
    cmd("systemctl").args([verb, "--now", "--quiet"]).args(paths::GPU_WATCHES).run().map(drop)
}
