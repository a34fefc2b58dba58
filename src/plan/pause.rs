//! Workers pause while their web node restarts.

use super::removals;
use crate::paths;
use crate::step::{File, FileOwner, Step};
use crate::view::pause::{Pause, pause, waits};
use crate::view::roles::roles;
use crate::view::worker::running;
use crate::world::World;

/// Stops the workers that run, until the file is gone; one that is to go for good is no affair of a pause.
pub fn begin(world: &World) -> Vec<Step> {
    let stay = roles(world).workers();
    let mut reading = running(world);
    reading.retain(|worker| stay.contains(worker) && !waits(world, *worker));
    if reading.is_empty() {
        return vec![];
    }
    let text = "The web node restarts; workers wait.\n".to_owned();
    let file = File { path: paths::PAUSE.into(), text, mode: 0o644, owner: FileOwner::Root };
    vec![Step::Write(file), Step::Pause(reading)]
}

/// What a pause that ended has left.
pub fn end(world: &World) -> Vec<Step> {
    if pause(world) == Pause::No { removals(world, &[paths::PAUSE]) } else { vec![] }
}
