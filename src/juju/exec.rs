//! The charm runs without an event of Juju's: `juju-exec`, which any program on the machine may call that is no hook.

use crate::host::cmd::cmd;
use anyhow::Result;
use std::time::Duration;

/// What `juju-exec` is given to run the charm as in a hook in which nothing happened.
pub const HOOK: &str = "JUJU_DISPATCH_PATH=hooks/update-status exec \"$JUJU_CHARM_DIR/dispatch\"";

/// Lets systemd run the charm after a while. A reboot forgets it, and brings a hook of its own.
///
/// # Errors
/// There is no systemd to ask.
pub fn later(unit: &str, after: Duration) -> Result<()> {
    let after = format!("--on-active={}", after.as_secs());
    cmd("systemd-run")
        .args(["--quiet", "--collect", "--description=Concourse CI: the charm looks again", &after])
        // As exact as a minute otherwise.
        .args(["--timer-property=AccuracySec=1s", "juju-exec", unit, HOOK])
        .run()
        .map(drop)
}
