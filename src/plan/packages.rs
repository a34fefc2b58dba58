//! Packages for GPUs come last, when all else is at rest: a source that hangs holds up nothing.

use crate::packages::{Order, Purpose};
use crate::step::{Level, Status, Step};
use crate::view::gpu::wanted;
use crate::view::packages::{order, unwanted};
use crate::world::{Concern, World};

/// Removes what is not wanted any more, then installs what is missing.
pub fn steps(world: &World) -> Vec<Step> {
    if world.troubles.contains_key(&Concern::Packages) {
        return vec![];
    }
    let gone = unwanted(world);
    if !gone.is_empty() {
        let mut steps = remove(gone);
        steps.extend(wanted(world).map(|_| Step::LookAtGpus));
        return steps;
    }
    match order(world) {
        // What was missing at the last look may have come since, by a hook that was cut off or by hand.
        Some(_) if !world.looked => vec![Step::LookAtGpus],
        Some(order) if !world.troubles.contains_key(&Concern::Gpus) => install(order),
        _ => vec![],
    }
}

fn install(order: Order) -> Vec<Step> {
    vec![say(format!("Installing {}...", order.what)), Step::InstallPackages(order), Step::LookAtGpus]
}

/// At the end of a unit everything goes.
pub fn leave(world: &World) -> Vec<Step> {
    let all = [Purpose::Libraries, Purpose::Driver, Purpose::Toolkit];
    let there: Vec<Purpose> = all.into_iter().filter(|p| world.machine.packages.has(*p)).collect();
    match there.is_empty() || world.troubles.contains_key(&Concern::Packages) {
        true => vec![],
        false => vec![Step::RemovePackages(there)],
    }
}

fn remove(purposes: Vec<Purpose>) -> Vec<Step> {
    vec![say("Removing the charm's packages for GPUs...".into()), Step::RemovePackages(purposes)]
}

fn say(message: String) -> Step {
    Step::Say(Status { level: Level::Maintenance, message })
}
