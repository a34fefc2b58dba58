//! The runtime wrapper is in its place before a worker starts, with the policy that it carries out.

use super::{removals, writes};
use crate::paths;
use crate::step::Step;
use crate::view::runtime::files;
use crate::view::worker::running;
use crate::world::World;

/// Brings the wrapper to where it should be, or away.
pub fn steps(world: &World) -> Vec<Step> {
    let Some(files) = files(world) else { return away(world) };
    let mut steps = vec![];
    if world.machine.programs.as_ref() != Some(&world.memory.charm) {
        steps.push(Step::InstallPrograms(world.memory.charm.clone()));
    }
    steps.extend(writes(world, &files));
    steps
}

fn away(world: &World) -> Vec<Step> {
    // It is the runc of every container that still runs.
    if !running(world).is_empty() || !world.machine.containers.is_empty() {
        return vec![];
    }
    let mut steps = removals(world, &[paths::POLICY]);
    if world.machine.programs.is_some() {
        steps.extend(
            [paths::WRAPPER_LINK, paths::PROGRAMS, paths::PROGRAMS_STAMP].map(|p| Step::Remove(p.into())),
        );
    }
    steps
}
