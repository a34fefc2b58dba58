//! An operator drained the worker. Until when its builds may run is written down: the action that waits for them may be
//! cut off, and a hook goes on in its place.

use crate::parse::{Moment, TimeLimit};
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

/// How long builds may still run; `None`: nobody has said it.
pub fn patience(world: &World) -> Option<Duration> {
    let text = world.file(paths::DRAINED)?;
    let word = text.lines().find_map(|line| line.strip_prefix(UNTIL)?.split_whitespace().next())?;
    let until: Moment = word.parse().ok()?;
    // A clock that was set back must not hold up hooks for days.
    Some(until.since(world.now).unwrap_or_default().min(TimeLimit::LONGEST))
}
