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
    let written = writes(world, &files);
    if written.iter().any(|step| begins_leasing(world, step)) {
        steps.push(Step::Remove(paths::LEASES.into()));
    }
    steps.extend(written);
    steps
}

/// Without a table it is made anew from the containers that live, those with GPUs from before among them.
fn begins_leasing(world: &World, step: &Step) -> bool {
    let leases = |text: &str| text.contains("\"exclusive\"");
    matches!(step, Step::Write(file) if file.path == paths::POLICY && leases(&file.text))
        && !world.file(paths::POLICY).is_some_and(leases)
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
