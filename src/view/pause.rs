//! A web node that has to restart first asks its workers to pause.
//!
//! A worker reads what builds print whether a web node listens or not, and throws away what it can't hand on. While the
//! worker is stopped, it stays in the builds' pipes, and the next worker process finds all of it. So the web node tells
//! in its bags since when it asks (`pause`), each worker stops and answers by the same moment (`paused`), and with the
//! last answer the web node restarts and asks no more.

use super::roles::roles;
use super::worker::{endpoint, running};
use super::workers::related;
use crate::juju::tools::Bag;
use crate::parse::{Invalid, Moment};
use crate::paths;
use crate::world::{Worker, World};
use std::collections::BTreeSet;
use std::time::Duration;

/// The key under which a web node asks.
pub const ASK: &str = "pause";
/// The key under which a worker answers: all that it has been asked and is not yet asked no more.
pub const ANSWER: &str = "paused";

/// A worker that has not answered in this time may never do so, and those that did come back by themselves 25 s after
/// they stopped.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The ask that has to stand before this web node, which runs and is wanted otherwise, may be restarted; `None`: now.
pub fn before_restart(world: &World) -> Option<Moment> {
    // A web node that does not answer reads nothing.
    world.machine.web.as_ref()?;
    let asked = asked(world);
    if silent(world, asked).is_empty() {
        return None;
    }
    match asked {
        None => Some(world.now),
        Some(asked) => world.now.since(asked).is_some_and(|waited| waited < PATIENCE).then_some(asked),
    }
}

/// Since when this web node asks, as it has told.
pub fn asked(world: &World) -> Option<Moment> {
    world.record.unit_bags.values().find_map(|bag| bag.get(ASK)?.parse().ok())
}

/// The workers that have not answered.
pub fn silent(world: &World, asked: Option<Moment>) -> Vec<&str> {
    let answers = |bag: &Bag| answers(bag).unwrap_or_default();
    related(world)
        .filter(|(_, _, bag)| bag.contains_key("worker-public-key"))
        .filter(|(_, _, bag)| !asked.is_some_and(|asked| answers(bag).contains(&asked)))
        .map(|(_, unit, _)| unit)
        .collect()
}

/// What a bag answers.
///
/// # Errors
/// It is no list of moments.
pub fn answers(bag: &Bag) -> Result<BTreeSet<Moment>, Invalid> {
    bag.get(ANSWER).into_iter().flat_map(|text| text.split_whitespace()).map(str::parse).collect()
}

/// What a web node's bag asks.
///
/// # Errors
/// It is no moment.
pub fn ask(bag: &Bag) -> Result<Option<Moment>, Invalid> {
    bag.get(ASK).filter(|text| !text.is_empty()).map(|text| text.parse()).transpose()
}

/// Since when the web nodes of a relation ask this unit's workers.
pub fn asks<'a>(world: &'a World, relation: &'a str) -> impl Iterator<Item = Moment> + 'a {
    let roles = roles(world);
    // A worker beside its web node is paused by the very plan that restarts it.
    let listens = roles.worker && !roles.web;
    let found = world.memory.of(endpoint(world)).filter(move |(id, _)| listens && *id == relation);
    found.flat_map(|(_, relation)| relation.units.values()).filter_map(|bag| ask(bag).ok().flatten())
}

/// What this unit answers in a relation: what it has answered, and the rest once its workers stand still.
pub fn answer(world: &World, relation: &str) -> BTreeSet<Moment> {
    let told = world.record.unit_bags.get(relation).and_then(|bag| answers(bag).ok()).unwrap_or_default();
    let still = running(world).iter().all(|worker| waits(world, *worker));
    asks(world, relation).filter(|asked| still || told.contains(asked)).collect()
}

/// Where a worker unit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Nobody asks, or the workers have paused and are back.
    No,
    /// They are to stop.
    Begins,
    /// They wait for the web node's restart.
    Lasts,
}

/// Reads it from what is asked, answered and seen.
pub fn pause(world: &World) -> Pause {
    let relations = || world.memory.of(endpoint(world)).map(|(id, _)| id);
    let unanswered = |id: &String| {
        let told = answer(world, id);
        asks(world, id).any(|asked| !told.contains(&asked))
    };
    let asked = relations().any(|id| asks(world, id).next().is_some());
    if relations().any(unanswered) {
        Pause::Begins
    } else if asked && roles(world).workers().into_iter().any(|worker| waits(world, worker)) {
        Pause::Lasts
    } else {
        Pause::No
    }
}

/// Whether a worker has stopped, and waits in its start for the end of a pause; or before it, where systemd looks at the
/// GPUs first.
pub fn waits(world: &World, worker: Worker) -> bool {
    let service = world.service(worker.role());
    world.file(paths::PAUSE).is_some() && !service.active && service.pid.is_none()
}
