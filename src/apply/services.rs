//! The services are started, waited for, and sent away.

use super::{Outcome, Trouble, still};
use crate::host::cmd::cmd;
use crate::host::fs::Root;
use crate::host::http;
use crate::juju::tools;
use crate::observe::containers::busy;
use crate::observe::services::services;
use crate::observe::{lasting_link, linked};
use crate::step::Farewell;
use crate::view::farewell::{Leaving, Next, next};
use crate::view::pause;
use crate::view::tsa::registration;
use crate::world::{Role, Worker, World};
use anyhow::{Result, anyhow, bail};
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(250);
/// So many starts in a row are no accident.
const RESTARTS: u32 = 4;

/// Of waiting for a moment at which a worker has nothing being made.
const CALM_WITHIN: Duration = Duration::from_secs(30);
/// The same where a web node waits for the worker (view/pause.rs, `PATIENCE`).
const CALM_BEFORE_PAUSE: Duration = Duration::from_secs(8);

/// (Re)starts a service and waits until it works. Zero patience: starting it is all that can be done now.
pub fn restart(
    root: &Root,
    world: &World,
    role: Role,
    patience: Duration,
    links: &mut BTreeMap<Worker, u64>,
) -> Outcome {
    let worker = Worker::ALL.into_iter().find(|worker| worker.role() == role);
    // One that was paused may be back by now, with all that this hook has written.
    let paused = worker.is_some_and(|worker| pause::waits(world, worker));
    if let Some(worker) = worker.filter(|_| !paused) {
        halt(root, worker, Instant::now() + CALM_WITHIN)?;
    }
    // systemd goes on counting the restarts of what it stops between two of them. A unit not yet loaded has none.
    drop(cmd("systemctl").args(["reset-failed", role.unit()]).output()?);
    let verb = if paused { "start" } else { "restart" };
    // The units' own limits are 15 s for a web node and 60 s for a worker, before which GPUs are looked at, in 110 s.
    cmd("systemctl").args([verb, role.unit()]).deadline(Duration::from_secs(200)).run()?;
    std::thread::scope(|scope| {
        // Builds stand still no longer than they must, those of another worker that was paused neither.
        let workers = if worker.is_some() { &Worker::ALL[..] } else { &[] };
        let releases: Vec<_> =
            workers.iter().map(|worker| scope.spawn(|| still::release(root, *worker))).collect();
        let outcome = wait(root, world, role, patience, links);
        for release in releases {
            release.join().map_err(|_| anyhow!("containers may stand still"))??;
        }
        outcome
    })
}

fn wait(
    root: &Root,
    world: &World,
    role: Role,
    patience: Duration,
    links: &mut BTreeMap<Worker, u64>,
) -> Outcome {
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

/// Ends the process of a worker that runs, or leaves that to systemd, which is to start the next one.
fn halt(root: &Root, worker: Worker, end: Instant) -> Result<()> {
    let role = worker.role();
    let services = services(root)?;
    let Some(pid) = services.get(&role).filter(|service| service.active).and_then(|s| s.pid) else {
        return Ok(());
    };
    if !still::end(root, worker, pid, end)? {
        let what = role.noun();
        tools::log("WARNING", &format!("the {what} has steps started all the time: one of them may fail"));
    }
    Ok(())
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
    let calm = Instant::now() + CALM_BEFORE_PAUSE;
    for worker in workers {
        halt(root, *worker, calm)?;
        // A job of systemd's, which ends it also when this hook does not.
        cmd("systemctl").args(["restart", "--no-block", worker.role().unit()]).run()?;
    }
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

/// Lets workers land or retire as [`next`] says, and stops what is left of them after that time.
pub fn leave(
    root: &Root,
    workers: &[Worker],
    how: Farewell,
    patience: Duration,
    links: &BTreeMap<Worker, u64>,
) -> Result<()> {
    let end = Instant::now() + patience;
    let mut leaving: Vec<(Worker, bool, Instant)> =
        workers.iter().map(|worker| (*worker, false, Instant::now())).collect();
    while Instant::now() < end && !leaving.is_empty() {
        let (services, linked, busy) = (services(root)?, linked(root, links)?, busy(root)?);
        let mut going = vec![];
        for (worker, mut told, mut link) in leaving {
            let role = worker.role();
            let unlinked = if linked.contains(&worker) { Duration::ZERO } else { link.elapsed() };
            link = Instant::now().checked_sub(unlinked).unwrap_or(link);
            let runs = services.get(&role).is_some_and(|s| s.active || s.changing);
            match next(how, Leaving { runs, unlinked, told, busy }) {
                Next::Wait => {}
                Next::Tell => told = tell(role, how)?,
                Next::Forget => told = false,
                Next::Start => drop(cmd("systemctl").args(["start", "--no-block", role.unit()]).run()?),
                Next::Stop => continue,
            }
            going.push((worker, told, link));
        }
        leaving = going;
        sleep(PAUSE);
    }
    workers.iter().try_for_each(|worker| stop(worker.role()))
}

/// Whether there was a process to be told.
fn tell(role: Role, how: Farewell) -> Result<bool> {
    let signal = match how {
        Farewell::Land => "SIGUSR1",
        Farewell::Retire => "SIGUSR2",
    };
    let args = ["kill", "--kill-who=main", "--signal", signal, role.unit()];
    Ok(cmd("systemctl").args(args).output()?.status.success())
}
