//! Tells Juju at once what has changed between two of its hooks: it is asked to run the charm, which looks at the world as
//! in any hook and sets tags and status.
//!
//! `juju-exec` waits for Juju's lock on the machine, so nobody may wait for this who could hold it: systemd starts it
//! apart from all hooks. Whoever gets the lock first tells; what waited behind it finds nothing new and runs no charm.

use super::decide::Report;
use crate::host::cmd::{cmd, tail};
use crate::host::fs::{Root, read};
use crate::juju::exec::HOOK;
use crate::paths;
use anyhow::{Result, bail};
use std::time::Duration;

/// So often at most in a row: something that comes and goes all the time is not told each time.
const ROUNDS: u32 = 4;

/// What was seen and is not yet told; `None`: the last hook has told it.
///
/// # Errors
/// A file can't be read.
pub fn news(root: &Root) -> Result<Option<String>> {
    let report = read(&root.path(paths::GPU_REPORT))?;
    // What can't be read any more is of another version of this program: the next look writes it anew.
    let report: Option<Report> = report.and_then(|text| serde_json::from_str(&text).ok());
    let Some(telling) = report.map(|report| report.telling()) else { return Ok(None) };
    Ok((read(&root.path(paths::GPU_TOLD))?.as_deref() != Some(&telling)).then_some(telling))
}

/// Lets Juju run the charm if there is something new, and waits for it; says what came of it.
///
/// # Errors
/// Juju's agent is not there, the charm failed, or neither ended in time: to be tried again.
pub fn tell(root: &Root, patience: Duration) -> Result<String> {
    for _ in 0..ROUNDS {
        let Some(news) = news(root)? else { return Ok("the charm knows".into()) };
        let Some(unit) = unit(root)? else { return Ok("there is no unit to tell it to".into()) };
        let out = cmd("juju-exec").arg(unit).arg(script()).deadline(patience).output()?;
        if !out.status.success() {
            bail!("juju-exec failed ({}): {}", out.code(), tail(&out.stderr));
        }
        // A charm that still does not know it has its reasons, as options that are wrong; its status says so.
        if self::news(root)?.is_none_or(|now| now == news) {
            return Ok(format!("told: {}", news.trim_end()));
        }
    }
    bail!("it changed all the time")
}

/// Our program is gone where a hook before it switched GPUs off.
fn script() -> String {
    format!("if {} news; then {HOOK}; fi", paths::GPU_PROGRAM)
}

/// The unit that this machine belongs to, while Juju has it here.
fn unit(root: &Root) -> Result<Option<String>> {
    let claim = read(&root.path(paths::CLAIM))?.unwrap_or_default();
    let Some(unit) = claim.split_whitespace().next().map(str::to_owned) else { return Ok(None) };
    let agent = format!("/var/lib/juju/agents/unit-{}", unit.replace('/', "-"));
    Ok(root.path(agent).exists().then_some(unit))
}
