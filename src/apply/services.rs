//! The services are started, waited for, and sent away.

use super::{Outcome, Trouble};
use crate::host::cmd::cmd;
use crate::host::fs::Root;
use crate::host::http;
use crate::observe::containers::busy;
use crate::observe::services::services;
use crate::observe::{is_linked, lasting_link};
use crate::step::Farewell;
use crate::view::tsa::registration;
use crate::world::{Role, Worker, World};
use anyhow::{Result, bail};
use std::collections::BTreeMap;
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
    links: &mut BTreeMap<Worker, u64>,
) -> Outcome {
    // systemd goes on counting the restarts of what it stops between two of them. A unit not yet loaded has none.
    drop(cmd("systemctl").args(["reset-failed", role.unit()]).output()?);
    // The units' own limits are 15 s for a web node and 60 s for a worker.
    cmd("systemctl").args(["restart", role.unit()]).deadline(Duration::from_secs(150)).run()?;
    let end = Instant::now() + patience;
    while Instant::now() < end {
        if works(root, world, role, links)? {
            return Ok(Ok(()));
        }
        if restarts(role)? >= RESTARTS {
            return Ok(Err(Trouble(format!(
                "The {} ends again and again right after its start",
                role.noun()
            ))));
        }
        sleep(PAUSE);
    }
    Ok(if patience.is_zero() {
        Ok(())
    } else {
        let what = if role == Role::Web { "answer" } else { "register" };
        Err(Trouble(format!("The {} did not {what} within {} s", role.noun(), patience.as_secs())))
    })
}

fn works(root: &Root, world: &World, role: Role, links: &mut BTreeMap<Worker, u64>) -> Result<bool> {
    let worker = match role {
        Role::Web => {
            let port = world.config.as_ref().map_or(0, |c| c.web_port);
            return Ok(http::info(port, Duration::from_secs(2)).is_some());
        }
        Role::Worker => Worker::Main,
        Role::Untagged => Worker::Untagged,
    };
    links.remove(&worker);
    let link = lasting_link(root, worker, &registration(world).servers, Duration::from_secs(5))?;
    links.extend(link.map(|link| (worker, link)));
    Ok(link.is_some())
}

fn restarts(role: Role) -> Result<u32> {
    let text = cmd("systemctl").args(["show", "--property=NRestarts", "--value", role.unit()]).run()?;
    Ok(text.trim().parse().unwrap_or(0))
}

/// Stops a service.
pub fn stop(role: Role) -> Result<()> {
    cmd("systemctl").args(["stop", role.unit()]).deadline(Duration::from_secs(150)).run().map(drop)
}

/// Stops workers; they come back by themselves when their start no longer waits for the pause's end.
pub fn pause(root: &Root, workers: &[Worker]) -> Result<()> {
    let units: Vec<&str> = workers.iter().map(|worker| worker.role().unit()).collect();
    // One job for systemd, which ends it also when this hook does not.
    cmd("systemctl").args(["restart", "--no-block"]).args(units).run()?;
    let end = Instant::now() + Duration::from_secs(90);
    loop {
        let services = services(root)?;
        let gone = |worker: &Worker| services.get(&worker.role()).is_none_or(|s| s.pid.is_none());
        if workers.iter().all(gone) {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("a worker did not stop");
        }
        sleep(PAUSE);
    }
}

/// A worker that goes for good and has had no connection for so long has nobody to say farewell to: it was revoked
/// before it left.
const CUT_OFF: Duration = Duration::from_secs(10);

/// Tells workers to land or retire, lets their builds end, and stops what is left of them after that time.
pub fn leave(
    root: &Root,
    workers: &[Worker],
    how: Farewell,
    patience: Duration,
    links: &BTreeMap<Worker, u64>,
) -> Result<()> {
    let signal = match how {
        Farewell::Land => "SIGUSR1",
        Farewell::Retire => "SIGUSR2",
    };
    let tell = |role: Role| -> Result<bool> {
        let args = ["kill", "--kill-who=main", "--signal", signal, role.unit()];
        Ok(cmd("systemctl").args(args).output()?.status.success())
    };
    let mut told = vec![];
    for role in workers.iter().map(|worker| worker.role()) {
        // A worker that is just between two starts has nobody to be told; then stopping is all there is.
        if tell(role)? {
            told.push(role);
        }
    }
    let end = Instant::now() + patience;
    let mut linked = Instant::now();
    let mut away = false;
    // Builds of a worker that lands go on without a web node as well, and it may come back.
    while Instant::now() < end && (how == Farewell::Land || linked.elapsed() < CUT_OFF) {
        let services = services(root)?;
        let runs = |role: &Role| services.get(role).is_some_and(|s| s.active || s.changing);
        if !told.iter().any(runs) {
            if how == Farewell::Retire || !busy(root)? {
                break;
            }
            // A worker that lands ends by itself when no web node is left, builds or not: it comes back with them.
            for role in &told {
                cmd("systemctl").args(["start", "--no-block", role.unit()]).run()?;
            }
        }
        if is_linked(root, links)? {
            linked = Instant::now();
            // A web node that was away may not have heard it, and would go on giving out work.
            for role in told.iter().filter(|role| away && runs(role)) {
                tell(*role)?;
            }
        }
        away = linked.elapsed() > PAUSE * 2;
        sleep(PAUSE);
    }
    workers.iter().try_for_each(|worker| stop(worker.role()))
}
