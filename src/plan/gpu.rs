//! GPUs are looked at: now, at each start of a worker, and when something about them changes.

use super::{removals, writes};
use crate::paths;
use crate::step::Step;
use crate::view::gpu::{files, report};
use crate::world::{Concern, World};

/// Brings the program that looks to where it should be, or away.
pub fn steps(world: &World) -> Vec<Step> {
    let Some(files) = files(world) else { return away(world) };
    let mut steps = writes(world, &files);
    if steps.iter().any(|step| matches!(step, Step::Write(file) if file.path != paths::GPU_WANTED)) {
        steps.push(Step::DaemonReload);
    }
    if !world.machine.gpus_watched {
        steps.push(Step::WatchGpus(true));
    }
    let answered = steps.is_empty() && report(world).is_some();
    if !answered && !world.troubles.contains_key(&Concern::Gpus) {
        steps.push(Step::LookAtGpus);
    }
    steps
}

/// GPUs are left as they were found.
pub fn restored(world: &World) -> Option<Step> {
    (world.machine.gpus_persist && world.machine.programs.is_some()).then_some(Step::RestoreGpus)
}

fn away(world: &World) -> Vec<Step> {
    let mut steps = vec![];
    if world.machine.gpus_watched_at_all {
        steps.push(Step::WatchGpus(false));
    }
    let units = removals(
        world,
        &[paths::GPU_PATH, paths::GPU_FOLDERS, paths::GPU_TIMER, paths::GPU_SERVICE, paths::GPU_TELL],
    );
    let reload = !units.is_empty();
    steps.extend(units);
    if reload {
        steps.push(Step::DaemonReload);
    }
    steps.extend(restored(world));
    steps.extend(removals(world, &[paths::GPU_WANTED, paths::GPU_TOLD]));
    if world.machine.gpus.is_some() {
        steps.push(Step::Remove(paths::GPU_RUN.into()));
    }
    steps
}
