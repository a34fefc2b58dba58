//! The machine is this unit's, and has the user that the web node runs as.

use crate::paths;
use crate::step::{File, FileOwner, Step};
use crate::world::World;

/// Whether another unit of this charm runs this machine: two would fight over one systemd unit.
pub fn belongs_to_another(world: &World) -> bool {
    world.machine.claim.as_ref().is_some_and(|claim| *claim != claim_text(world))
}

/// What the claim says when the machine is this unit's.
pub fn claim_text(world: &World) -> String {
    format!("{} {}", world.unit, world.model.1)
}

/// Claims the machine, makes the user, and removes what a killed hook left.
pub fn steps(world: &World) -> Vec<Step> {
    let mut steps = vec![];
    if world.machine.claim.is_none() {
        let text = claim_text(world);
        steps.push(Step::Write(File {
            path: paths::CLAIM.into(),
            text,
            mode: 0o644,
            owner: FileOwner::Root,
        }));
    }
    if world.machine.user.is_none() {
        steps.push(Step::CreateUser);
    }
    steps.extend(world.machine.unfinished.iter().cloned().map(Step::Remove));
    steps
}
