//! The unit goes. Every part is safe to repeat, and goes on past what is already gone.

use crate::paths;
use crate::step::{Farewell, Step};
use crate::view::worker::running;
use crate::world::{Concern, Role, Worker, World};
use std::time::Duration;

/// In most removals the worker has retired with its relation, and this finds nothing to do.
const LAST_WORDS: Duration = Duration::from_secs(60);

/// Services stop; files stay.
pub fn stop(world: &World) -> Vec<Step> {
    let mut steps = vec![];
    let workers = running(world);
    let some = !workers.is_empty();
    if some && !world.troubles.contains_key(&Concern::Leave) {
        steps.push(Step::Leave(workers, Farewell::Retire, LAST_WORDS));
    }
    if some || !world.machine.containers.is_empty() {
        steps.push(Step::EndContainers(Worker::ALL.to_vec()));
    }
    let web = world.service(Role::Web);
    if web.active || web.changing {
        steps.push(Step::Stop(Role::Web));
    }
    if world.machine.gpus_watched_at_all {
        steps.push(Step::WatchGpus(false));
    }
    for role in [Role::Untagged, Role::Worker, Role::Web] {
        if world.service(role).enabled {
            steps.push(Step::Enable(role, false));
        }
    }
    steps
}

/// The machine is left as it was found; the operator's own `*.local.env` and drop-ins are not ours to remove.
pub fn remove(world: &World) -> Vec<Step> {
    let mut steps = stop(world);
    steps.extend(super::gpu::restored(world));
    steps.extend(super::packages::leave(world));
    let left = &world.machine.leftovers;
    let units = left.iter().any(|path| path.starts_with("/etc/systemd/"));
    steps.extend(world.machine.unfinished.iter().chain(left).cloned().map(Step::Remove));
    if !left.is_empty() {
        steps.extend(paths::SHARED_DIRS.map(|dir| Step::RemoveEmptyDir(dir.to_owned())));
    }
    if units {
        steps.push(Step::DaemonReload);
    }
    if world.machine.user.is_some() {
        steps.push(Step::RemoveUser);
    }
    steps
}
