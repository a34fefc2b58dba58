//! Workers pause while their web node restarts.

use super::removals;
use crate::paths;
use crate::step::{File, FileOwner, Step};
use crate::view::pause::{Pause, pause, waits};
use crate::view::roles::roles;
use crate::view::worker::running;
use crate::world::{Worker, World};

/// Stops the workers that run, until the file is gone. One that is to go for good is no affair of a pause, and one whose
/// unit is of a charm that knew none would come back at once.
pub fn begin(world: &World) -> Vec<Step> {
    let stay = roles(world).workers();
    let mut reading = running(world);
    reading.retain(|worker| stay.contains(worker) && knows(world, *worker) && !waits(world, *worker));
    if reading.is_empty() {
        return vec![];
    }
    let text = "The web node restarts; workers wait.\n".to_owned();
    let file = File { path: paths::PAUSE.into(), text, mode: 0o644, owner: FileOwner::Root };
    vec![Step::Write(file), Step::Pause(reading)]
}

/// Whether a worker's start waits for the end of a pause.
fn knows(world: &World, worker: Worker) -> bool {
    let unit = world.file(worker.paths().unit);
    unit.is_some_and(|text| text.contains(paths::PAUSE)) && !world.service(worker.role()).stale
}

/// What a pause that ended has left.
pub fn end(world: &World) -> Vec<Step> {
    if pause(world) == Pause::No { removals(world, &[paths::PAUSE]) } else { vec![] }
}
