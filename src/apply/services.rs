//! The services are started, waited for, and sent away.

use super::{Outcome, Trouble};
use crate::host::cmd::cmd;
use crate::host::fs::Root;
use crate::host::http;
use crate::observe::services::services;
use crate::observe::{is_linked, lasting_link};
use crate::step::Farewell;
use crate::view::tsa::registration;
use crate::world::{Role, World};
use anyhow::Result;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(250);
/// So many starts in a row are no accident.
const RESTARTS: u32 = 4;

/// (Re)starts a service and waits until it works. Zero patience: starting it is all that can be done now.
pub fn restart(
    root: &Root,
    world: &World,
    role: Role,
    patience: Duration,
    link: &mut Option<u64>,
) -> Outcome {
    // systemd goes on counting the restarts of what it stops between two of them. A unit not yet loaded has none.
    drop(cmd("systemctl").args(["reset-failed", role.unit()]).output()?);
    // The units' own limits are 15 s for a web node and 60 s for a worker.
    cmd("systemctl").args(["restart", role.unit()]).deadline(Duration::from_secs(150)).run()?;
    let end = Instant::now() + patience;
    while Instant::now() < end {
        if works(root, world, role, link)? {
            return Ok(Ok(()));
        }
        if restarts(role)? >= RESTARTS {
            return Ok(Err(Trouble(format!("{} ends again and again right after its start", name(role)))));
        }
        sleep(PAUSE);
    }
    Ok(if patience.is_zero() {
        Ok(())
    } else {
        let what = if role == Role::Web { "answer" } else { "register" };
        Err(Trouble(format!("{} did not {what} within {} s", name(role), patience.as_secs())))
    })
}

fn name(role: Role) -> &'static str {
    match role {
        Role::Web => "The web node",
        Role::Worker => "The worker",
    }
}

fn works(root: &Root, world: &World, role: Role, link: &mut Option<u64>) -> Result<bool> {
    Ok(match role {
        Role::Web => {
            let port = world.config.as_ref().map_or(0, |c| c.web_port);
            http::info(port, Duration::from_secs(2)).is_some()
        }
        Role::Worker => {
            *link = lasting_link(root, &registration(world).servers, Duration::from_secs(5))?;
            link.is_some()
        }
    })
}

fn restarts(role: Role) -> Result<u32> {
    let text = cmd("systemctl").args(["show", "--property=NRestarts", "--value", role.unit()]).run()?;
    Ok(text.trim().parse().unwrap_or(0))
}

/// Stops a service.
pub fn stop(role: Role) -> Result<()> {
    cmd("systemctl").args(["stop", role.unit()]).deadline(Duration::from_secs(150)).run().map(drop)
}

/// A worker that has had no connection for so long has nobody to say farewell to: it was revoked before it left.
const CUT_OFF: Duration = Duration::from_secs(10);

/// Tells the worker to land or retire, lets its builds end, and stops what is left of it after that time.
pub fn leave(root: &Root, how: Farewell, patience: Duration, link: Option<u64>) -> Result<()> {
    let signal = match how {
        Farewell::Land => "SIGUSR1",
        Farewell::Retire => "SIGUSR2",
    };
    let unit = Role::Worker.unit();
    // A worker that is just between two starts has nobody to be told; then stopping is all there is.
    let told = cmd("systemctl").args(["kill", "--kill-who=main", "--signal", signal, unit]).output()?;
    let end = Instant::now() + patience;
    let mut linked = Instant::now();
    while told.status.success() && Instant::now() < end && linked.elapsed() < CUT_OFF {
        let service = services(root)?.remove(&Role::Worker).unwrap_or_default();
        if !service.active && !service.changing {
            break;
        }
        if is_linked(root, link)? {
            linked = Instant::now();
        }
        sleep(PAUSE);
    }
    stop(Role::Worker)
}
