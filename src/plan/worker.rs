//! The workers run with what they should; restarts interrupt no build, and a meant absence is announced.

use super::{pause, removals, writes};
use crate::parse::Version;
use crate::paths;
use crate::step::{Farewell, File, FileOwner, KeyKind, Level, Status, Step};
use crate::view::drain;
use crate::view::pause::{Pause, pause, waits};
use crate::view::roles::roles;
use crate::view::tsa::registration;
use crate::view::worker::{files, key_is_known, running, start_digest, volume_candidates, waits_for_drain};
use crate::world::{Concern, Worker, World};
use std::time::Duration;

/// How long a worker gets to register.
const UP: Duration = Duration::from_secs(60);
/// How long builds get to end when the worker must go.
pub const FAREWELL: Duration = Duration::from_secs(120);

/// Brings the workers to where they should be, or away.
pub fn steps(world: &World) -> Vec<Step> {
    let roles = roles(world);
    let workers = roles.workers();
    let mut steps = vec![];
    if !roles.worker {
        steps.extend(pause::end(world));
        steps.extend(gone(world, &Worker::ALL, Farewell::Retire));
        steps.extend(no_untagged(world));
        steps.extend(files_away(world, Worker::Main));
        steps.extend(removals(world, &[paths::WORKER_KEY, paths::WORKER_KEY_PUB, paths::TSA_KEYS]));
        return steps;
    }
    if !roles.untagged {
        steps.extend(gone(world, &[Worker::Untagged], Farewell::Retire));
        steps.extend(no_untagged(world));
    }
    if world.machine.drained {
        steps.extend(pause::end(world));
        steps.extend(gone(world, &workers, Farewell::Land));
        steps.extend(workers.into_iter().flat_map(|worker| other_volumes(world, worker)));
        return steps;
    }
    let preparations = preparations(world, &workers);
    let ready = preparations.is_empty();
    steps.extend(preparations);
    if !registration(world).related {
        steps.extend(pause::end(world));
        steps.extend(gone(world, &workers, Farewell::Retire));
        return steps;
    }
    match (pause(world), pause::begin(world)) {
        _ if !ready => {}
        (Pause::Begins, begin) if !begin.is_empty() => steps.extend(begin),
        (Pause::Lasts, _) => {}
        _ => {
            let all = workers.into_iter().flat_map(|worker| run(world, worker));
            let (starts, before): (Vec<Step>, Vec<Step>) =
                all.partition(|step| matches!(step, Step::Say(_) | Step::Restart(..)));
            steps.extend(before);
            // Paused ones come back at once, to what was written.
            steps.extend(pause::end(world));
            steps.extend(starts);
            return steps;
        }
    }
    steps.extend(pause::end(world));
    steps
}

/// What workers need that does not depend on a web node.
fn preparations(world: &World, workers: &[Worker]) -> Vec<Step> {
    let mut steps = vec![];
    if world.file(paths::WORKER_KEY).is_none() || world.file(paths::WORKER_KEY_PUB).is_none() {
        steps.push(Step::GenerateKey(KeyKind::Ssh, paths::WORKER_KEY));
    }
    let Some(config) = &world.config else { return steps };
    for worker in workers {
        if !world.machine.volumes.contains_key(worker) && !world.troubles.contains_key(&Concern::Volumes) {
            steps.push(Step::ProbeVolumes(*worker, volume_candidates(config.volume_driver)));
        }
    }
    steps
}

fn run(world: &World, worker: Worker) -> Vec<Step> {
    let (Ok(files), Some(current), Some(key)) =
        (files(world, worker), world.current(), world.file(paths::WORKER_KEY))
    else {
        return vec![];
    };
    let role = worker.role();
    let service = world.service(role);
    let mut steps = writes(world, &files);
    // What both read is written with the first one's.
    steps.retain(|s| worker == Worker::Main || !matches!(s, Step::Write(f) if f.path == paths::TSA_KEYS));
    let own = worker.paths();
    let unit_changed =
        |s: &Step| matches!(s, Step::Write(f) if [own.unit, own.dropin].contains(&f.path.as_str()));
    if service.stale || steps.iter().any(unit_changed) {
        steps.push(Step::DaemonReload);
    }
    if let Some(lost) = work_dir(world, worker) {
        steps.extend(lost);
        return steps;
    }
    if !service.enabled {
        steps.push(Step::Enable(role, true));
    }
    let right = service.started_with.as_deref() == Some(&start_digest(worker, &files, key, current));
    let down = (!service.active && !service.changing) || waits(world, worker);
    if (down || !right) && !world.started.contains(&role) {
        let what = if service.active { "Restarting" } else { "Starting" };
        let message = format!("{what} the {}...", role.noun());
        steps.push(Step::Say(Status { level: Level::Maintenance, message }));
        // The web node can't know a key that is published with the end of this very hook.
        let patience = if key_is_known(world) { UP } else { Duration::ZERO };
        steps.push(Step::Restart(role, patience));
    } else if worker == Worker::Main
        && world.machine.connected.contains(&worker)
        && !roles(world).web
        && !world.machine.proven
        && right
    {
        steps.push(mark_proven(&current.version));
    }
    steps
}

/// A worker that comes back under its name without its volumes would fail every build that looks for one
/// (proven.md §1); so the old registration goes first.
fn work_dir(world: &World, worker: Worker) -> Option<Vec<Step>> {
    let (here, told) = (world.machine.work_dirs.get(&worker), world.record.work_dirs.get(&worker));
    match (here, told) {
        (Some(here), Some(told)) if here == told => None,
        (_, None) => Some(vec![Step::InitWorkDir(worker)]),
        _ if world.troubles.contains_key(&Concern::Leave) => Some(vec![]),
        _ => {
            let runs = running(world).contains(&worker);
            let mut steps = vec![];
            if runs {
                steps.push(Step::Stop(worker.role()));
            }
            if runs || world.machine.containers.contains(&worker) {
                steps.push(Step::EndContainers(ending(world, &[worker])));
            }
            steps.extend([Step::ForgetWorker(worker), Step::InitWorkDir(worker)]);
            Some(steps)
        }
    }
}

/// Volumes of one driver are nothing to another: a new choice begins with an empty work dir, which only a drained
/// worker can spare. That the work dir is lost takes the old registration off the list when it comes back.
fn other_volumes(world: &World, worker: Worker) -> Vec<Step> {
    if !waits_for_drain(world, worker) {
        return vec![];
    }
    let gone = |path: &str| Step::Remove(path.to_owned());
    let own = worker.paths();
    vec![Step::EndContainers(ending(world, &[worker])), gone(own.work_dir), gone(own.volumes)]
}

/// Away, with a word of farewell while there is somebody to hear it.
fn gone(world: &World, workers: &[Worker], how: Farewell) -> Vec<Step> {
    let mut steps = vec![];
    let leaving: Vec<Worker> = running(world).into_iter().filter(|w| workers.contains(w)).collect();
    let left = |worker: &Worker| world.machine.containers.contains(worker);
    let ends = !leaving.is_empty() || workers.iter().any(left);
    if !leaving.is_empty() {
        let patience = match how {
            Farewell::Land => drain::patience(world).unwrap_or(FAREWELL),
            Farewell::Retire => FAREWELL,
        };
        steps.push(Step::Leave(leaving, how, patience));
    }
    if ends {
        steps.push(Step::EndContainers(ending(world, workers)));
    }
    for role in workers.iter().map(|worker| worker.role()) {
        if world.service(role).enabled {
            steps.push(Step::Enable(role, false));
        }
    }
    steps
}

/// Those that end, and those that have nothing to lose: with the last worker goes the network of containers.
pub fn ending(world: &World, workers: &[Worker]) -> Vec<Worker> {
    let (roles, running) = (roles(world), running(world));
    let stays = |worker: &Worker| {
        // One that belongs here and does not run may be started by the very same plan.
        roles.has(worker.role()) || running.contains(worker) || world.machine.containers.contains(worker)
    };
    Worker::ALL.into_iter().filter(|worker| workers.contains(worker) || !stays(worker)).collect()
}

fn files_away(world: &World, worker: Worker) -> Vec<Step> {
    let own = worker.paths();
    let mut steps = removals(world, &[own.unit, own.dropin]);
    if !steps.is_empty() {
        steps.push(Step::RemoveEmptyDir(own.dropin_dir.to_owned()));
        steps.push(Step::DaemonReload);
    }
    steps.extend(removals(world, &[own.env]));
    steps
}

/// Of a worker that is not to come back nothing stays, on the web node's list neither: what did not run could not
/// retire.
fn no_untagged(world: &World) -> Vec<Step> {
    let worker = Worker::Untagged;
    let mut steps = files_away(world, worker);
    let told = world.record.work_dirs.contains_key(&worker);
    if told && !world.service(worker.role()).active && !world.troubles.contains_key(&Concern::Leave) {
        steps.push(Step::ForgetWorker(worker));
    }
    let machine = &world.machine;
    if told || machine.work_dirs.contains_key(&worker) || machine.volumes.contains_key(&worker) {
        steps.push(Step::RemoveWorkDir(worker));
    }
    steps
}

/// The version has been seen working.
pub fn mark_proven(version: &Version) -> Step {
    let text = format!("{version}\n");
    Step::Write(File { path: paths::PROVEN.into(), text, mode: 0o644, owner: FileOwner::Root })
}
