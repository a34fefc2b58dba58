//! An operator drained the worker. Until when its builds may run is written down: the action that waits for them may be
//! cut off, and a hook goes on in its place.

use crate::parse::Moment;
use crate::paths;
use crate::step::{File, FileOwner};
use crate::world::World;
use std::time::Duration;

const UNTIL: &str = "Its builds may run until ";

/// The file that keeps the worker away.
pub fn note(now: Moment, patience: Duration) -> File {
    let until = now.after(patience);
    let text = format!(
        "An operator drained the worker; the action resume removes this file.\n{UNTIL}{until} (seconds since 1970).\n"
    );
    File { path: paths::DRAINED.into(), text, mode: 0o644, owner: FileOwner::Root }
}

/// How long builds may still run.
pub fn patience(world: &World) -> Duration {
    let text = world.file(paths::DRAINED).unwrap_or_default();
    let word = text.lines().find_map(|line| line.strip_prefix(UNTIL)?.split_whitespace().next());
    let until: Option<Moment> = word.and_then(|word| word.parse().ok());
    until.and_then(|until| until.since(world.now)).unwrap_or_default()
}
