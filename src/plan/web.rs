//! The web node runs with what it should, and is restarted only for what a reload can't do.

use super::{is_owned, pause, removals, writes};
use crate::parse::Moment;
use crate::paths;
use crate::step::{File, FileOwner, Level, Status, Step};
use crate::view::pause::{PATIENCE, asked, before_restart};
use crate::view::roles::roles;
use crate::view::web::{files, start_digest, text_digest};
use crate::view::worker::running;
use crate::view::workers::{names, workers};
use crate::world::{Concern, Role, Worker, World};
use std::time::Duration;

/// Migrations of a large database take their time.
const UP: Duration = Duration::from_secs(180);

/// What there is to do for the web node.
#[derive(Default)]
pub struct Web {
    /// Now.
    pub steps: Vec<Step>,
    /// Since when its workers are asked to pause, so that it can be restarted.
    pub ask: Option<Moment>,
}

impl From<Vec<Step>> for Web {
    fn from(steps: Vec<Step>) -> Self {
        Web { steps, ask: None }
    }
}

/// Brings the web node to where it should be, or away.
pub fn steps(world: &World) -> Web {
    if !roles(world).web {
        return away(world).into();
    }
    let Some(current) = world.current() else { return Web::default() };
    let Ok(files) = files(world) else { return keys_only(world).into() };
    let service = world.service(Role::Web);
    let mut steps = writes(world, &files);
    steps.extend(keys(world));
    let has_ca = files.iter().any(|f| f.path == paths::POSTGRES_CA);
    if !has_ca {
        steps.extend(removals(world, &[paths::POSTGRES_CA]));
    }
    if service.stale || steps.iter().any(|s| matches!(s, Step::Write(f) if f.path == paths::WEB_UNIT)) {
        steps.push(Step::DaemonReload);
    }
    if !service.enabled {
        steps.push(Step::Enable(Role::Web, true));
    }
    let tried = world.started.contains(&Role::Web);
    let right = service.started_with.as_deref() == Some(&start_digest(&files, current));
    let down = !service.active && !service.changing;
    if (down || !right) && !tried {
        let ask = before_restart(world);
        if ask.is_some() {
            // A worker that never answers is no event. Twice, after a hook that failed, does no harm.
            steps.extend(asked(world).is_none().then_some(Step::Wake(PATIENCE)));
            return Web { steps, ask };
        }
        if world.machine.web.is_some() {
            steps.extend(pause::begin(world));
        }
        let what = if service.active { "Restarting" } else { "Starting" };
        let message = format!("{what} the web node...");
        steps.push(Step::Say(Status { level: Level::Maintenance, message }));
        steps.push(Step::Restart(Role::Web, UP));
    } else {
        steps.extend(reload(world, steps.iter().any(writes_keys)));
        steps.extend(proven(world));
        steps.extend(prune(world));
    }
    steps.into()
}

/// Who may register is kept right even while something else is not.
fn keys_only(world: &World) -> Vec<Step> {
    if world.file(paths::AUTHORIZED_KEYS).is_none() {
        return vec![];
    }
    let steps: Vec<Step> = keys(world).into_iter().collect();
    let reload = reload(world, !steps.is_empty());
    steps.into_iter().chain(reload).collect()
}

/// Who may register. Of a thousand workers it is a long text, and made only if it is to be written.
fn keys(world: &World) -> Option<Step> {
    let (path, mode, owner) = (paths::AUTHORIZED_KEYS, 0o644, FileOwner::Concourse);
    let workers = workers(world);
    let right =
        is_owned(world, path, mode, owner) && world.file(path).is_some_and(|text| workers.are_in(text));
    let file = || File { path: path.into(), text: workers.authorized_keys(), mode, owner };
    (!right).then(|| Step::Write(file()))
}

fn writes_keys(step: &Step) -> bool {
    matches!(step, Step::Write(file) if file.path == paths::AUTHORIZED_KEYS)
}

/// The unit itself records which keys it has read, so that a reload can't get lost.
fn reload(world: &World, written: bool) -> Option<Step> {
    let service = world.service(Role::Web);
    let on_disk = || world.file(paths::AUTHORIZED_KEYS).map(text_digest);
    let needed = service.active && (written || service.loaded_keys != on_disk());
    needed.then_some(Step::Reload(Role::Web))
}

/// A version that answers is one to come back to.
fn proven(world: &World) -> Option<Step> {
    let current = world.machine.current.as_ref()?;
    let answers = world.machine.web.as_ref().is_some_and(|info| info.version == current.to_string());
    (answers && !world.machine.proven).then(|| super::worker::mark_proven(current))
}

/// Workers of units that are gone leave the list at once, and not after a minute as stalled ones.
fn prune(world: &World) -> Vec<Step> {
    let was_worker = was_worker(world);
    let possible = world.machine.web.is_some() && !world.troubles.contains_key(&Concern::Prune);
    if !possible || (world.memory.departed.is_empty() && !was_worker) {
        return vec![];
    }
    let mut gone: Vec<String> = world.memory.departed.difference(&names(world)).cloned().collect();
    if was_worker {
        gone.extend(world.unit.worker_names());
    }
    let mut steps = vec![];
    if !gone.is_empty() {
        steps.push(Step::Prune(gone));
    }
    if was_worker {
        steps.push(Step::RemoveWorkDir(Worker::Main));
    }
    steps
}

/// This very unit had a worker, whose web node may have been gone before it could say farewell: in mode auto the old
/// leader stops its web node as soon as it is told of the new one.
fn was_worker(world: &World) -> bool {
    let worker = Worker::Main;
    let gone = !running(world).contains(&worker) && !world.machine.containers.contains(&worker);
    !roles(world).worker && gone && world.record.work_dirs.contains_key(&worker)
}

fn away(world: &World) -> Vec<Step> {
    let service = world.service(Role::Web);
    let mut steps = vec![];
    if service.active || service.changing {
        steps.push(Step::Stop(Role::Web));
    }
    if service.enabled {
        steps.push(Step::Enable(Role::Web, false));
    }
    let unit = removals(world, &[paths::WEB_UNIT]);
    let reload = !unit.is_empty();
    steps.extend(unit);
    if reload {
        steps.push(Step::DaemonReload);
    }
    steps.extend(removals(
        world,
        &[
            paths::WEB_ENV,
            paths::HOST_KEY,
            paths::HOST_KEY_PUB,
            paths::SESSION_KEY,
            paths::AUTHORIZED_KEYS,
            paths::POSTGRES_CA,
        ],
    ));
    steps
}
