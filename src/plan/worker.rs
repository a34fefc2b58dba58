//! The worker runs with what it should; restarts interrupt no build, and a meant absence is announced.

use super::{removals, writes};
use crate::parse::Version;
use crate::paths;
use crate::step::{Farewell, File, FileOwner, KeyKind, Level, Status, Step};
use crate::view::roles::roles;
use crate::view::tsa::registration;
use crate::view::worker::{files, key_is_known, start_digest, volume_candidates, waits_for_drain};
use crate::world::{Concern, Role, World};
use std::time::Duration;

/// How long a worker gets to register.
const UP: Duration = Duration::from_secs(60);
/// How long builds get to end when the worker must go.
pub const FAREWELL: Duration = Duration::from_secs(120);

/// Brings the worker to where it should be, or away.
pub fn steps(world: &World) -> Vec<Step> {
    if !roles(world).worker {
        let mut steps = gone(world, Farewell::Retire);
        steps.extend(away(world));
        return steps;
    }
    if world.machine.drained {
        let mut steps = gone(world, Farewell::Land);
        steps.extend(other_volumes(world));
        return steps;
    }
    let mut steps = preparations(world);
    if !registration(world).related {
        steps.extend(gone(world, Farewell::Retire));
        return steps;
    }
    if steps.is_empty() {
        steps.extend(run(world));
    }
    steps
}

/// What a worker needs that does not depend on a web node.
fn preparations(world: &World) -> Vec<Step> {
    let mut steps = vec![];
    if world.file(paths::WORKER_KEY).is_none() || world.file(paths::WORKER_KEY_PUB).is_none() {
        steps.push(Step::GenerateKey(KeyKind::Ssh, paths::WORKER_KEY));
    }
    let Some(config) = &world.config else { return steps };
    if world.machine.volumes.is_none() && !world.troubles.contains_key(&Concern::Volumes) {
        steps.push(Step::ProbeVolumes(volume_candidates(config.volume_driver)));
    }
    steps
}

fn run(world: &World) -> Vec<Step> {
    let (Ok(files), Some(current), Some(key)) =
        (files(world), &world.machine.current, world.file(paths::WORKER_KEY))
    else {
        return vec![];
    };
    let service = world.service(Role::Worker);
    let mut steps = writes(world, &files);
    let unit_changed = |s: &Step| matches!(s, Step::Write(f) if [paths::WORKER_UNIT, paths::WORKER_DROPIN].contains(&f.path.as_str()));
    if service.stale || steps.iter().any(unit_changed) {
        steps.push(Step::DaemonReload);
    }
    if let Some(lost) = work_dir(world) {
        steps.extend(lost);
        return steps;
    }
    if !service.enabled {
        steps.push(Step::Enable(Role::Worker, true));
    }
    let right = service.started_with.as_deref() == Some(&start_digest(&files, key, current));
    let down = !service.active && !service.changing;
    if (down || !right) && !world.started.contains(&Role::Worker) {
        let what = if service.active { "Restarting" } else { "Starting" };
        let message = format!("{what} the worker...");
        steps.push(Step::Say(Status { level: Level::Maintenance, message }));
        // The web node can't know a key that is published with the end of this very hook.
        let patience = if key_is_known(world) { UP } else { Duration::ZERO };
        steps.push(Step::Restart(Role::Worker, patience));
    } else if world.machine.connected && !roles(world).web && !world.machine.proven && right {
        steps.push(mark_proven(current));
    }
    steps
}

/// A worker that comes back under its name without its volumes would fail every build that looks for one
/// (proven.md §1); so the old registration goes first.
fn work_dir(world: &World) -> Option<Vec<Step>> {
    let (here, told) = (&world.machine.work_dir, &world.record.work_dir);
    match (here, told) {
        (Some(here), Some(told)) if here == told => None,
        (_, None) => Some(vec![Step::InitWorkDir]),
        _ if world.troubles.contains_key(&Concern::Leave) => Some(vec![]),
        _ => {
            let service = world.service(Role::Worker);
            let mut steps = vec![];
            if service.active || service.changing {
                steps.push(Step::Stop(Role::Worker));
            }
            if service.active || service.changing || world.machine.containers {
                steps.push(Step::EndContainers);
            }
            steps.extend([Step::ForgetWorker, Step::InitWorkDir]);
            Some(steps)
        }
    }
}

/// Volumes of one driver are nothing to another: a new choice begins with an empty work dir, which only a drained
/// worker can spare. That the work dir is lost takes the old registration off the list when it comes back.
fn other_volumes(world: &World) -> Vec<Step> {
    if !waits_for_drain(world) {
        return vec![];
    }
    let gone = |path: &str| Step::Remove(path.to_owned());
    vec![Step::EndContainers, gone(paths::WORK_DIR), gone(paths::VOLUMES)]
}

/// Away, with a word of farewell while there is somebody to hear it.
fn gone(world: &World, how: Farewell) -> Vec<Step> {
    let service = world.service(Role::Worker);
    let mut steps = vec![];
    if service.active || service.changing {
        steps.push(Step::Leave(how, FAREWELL));
    }
    if service.active || service.changing || world.machine.containers {
        steps.push(Step::EndContainers);
    }
    if service.enabled {
        steps.push(Step::Enable(Role::Worker, false));
    }
    steps
}

fn away(world: &World) -> Vec<Step> {
    let units = removals(world, &[paths::WORKER_UNIT, paths::WORKER_DROPIN]);
    let reload = !units.is_empty();
    let mut steps = units;
    if reload {
        steps.push(Step::DaemonReload);
    }
    steps.extend(removals(
        world,
        &[paths::WORKER_ENV, paths::WORKER_KEY, paths::WORKER_KEY_PUB, paths::TSA_KEYS],
    ));
    steps
}

/// The version has been seen working.
pub fn mark_proven(version: &Version) -> Step {
    let text = format!("{version}\n");
    Step::Write(File { path: paths::PROVEN.into(), text, mode: 0o644, owner: FileOwner::Root })
}
