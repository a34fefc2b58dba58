//! The runtime that does the work: which one it is, and becoming it.

use super::bundle::read_json;
use super::policy::{FORMAT, Policy};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the policy is, unless [`POLICY_VARIABLE`] says otherwise.
pub const POLICY: &str = "/etc/concourse/runtime.json";
/// Names another policy file, for tests and benches.
pub const POLICY_VARIABLE: &str = "CONCOURSE_RUNTIME_POLICY";
/// How often the wrapper has passed a call on. A runtime behind it may look for `runc` in PATH and find it again.
pub const PASSED_VARIABLE: &str = "CONCOURSE_RUNTIME_PASSED";

/// Where the policy is.
pub fn policy_path() -> PathBuf {
    env::var_os(POLICY_VARIABLE).map_or_else(|| POLICY.into(), PathBuf::from)
}

/// Reads the policy.
///
/// # Errors
/// There is none, or it can't be used; says why.
pub fn policy(path: &Path) -> Result<Policy, String> {
    let policy: Policy = read_json(path)?;
    match policy.format {
        FORMAT => Ok(policy),
        other => Err(format!("{}: has format {other}, this wrapper reads {FORMAT}", path.display())),
    }
}

/// How often the call was passed on already.
pub fn passed() -> u32 {
    env::var(PASSED_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The real runc: the policy's at first; without one, or when a runtime behind us called us again, the first `runc` in
/// PATH that is not this program. `None`: there is none, or the call goes in circles.
pub fn runtime(policy: Option<&Policy>, passed: u32) -> Option<PathBuf> {
    let me = fs::metadata("/proc/self/exe").ok();
    let other =
        |path: &Path| program(path).is_some_and(|found| !me.as_ref().is_some_and(|me| same(me, &found)));
    match (passed, policy) {
        (0, Some(policy)) if policy.runc.is_absolute() && other(&policy.runc) => Some(policy.runc.clone()),
        // Once more is a runtime that looks for runc in PATH; yet once more is a circle.
        (0 | 1, _) => {
            let path = env::var_os("PATH")?;
            env::split_paths(&path).map(|dir| dir.join("runc")).find(|runc| runc.is_absolute() && other(runc))
        }
        _ => None,
    }
}

/// Becomes `runtime`, with the arguments byte for byte, our name in PATH included. Returns only what went wrong.
pub fn become_it(runtime: &Path, name: &OsStr, args: &[OsString], passed: u32) -> String {
    let error = Command::new(runtime)
        .arg0(name)
        .args(args)
        .env(PASSED_VARIABLE, passed.saturating_add(1).to_string())
        .exec();
    format!("{} can't be started: {error}", runtime.display())
}

fn program(path: &Path) -> Option<Metadata> {
    let found = fs::metadata(path).ok()?;
    (found.is_file() && found.mode() & 0o111 != 0).then_some(found)
}

fn same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}
