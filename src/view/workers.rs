//! The workers that may register with this web node.

use super::pause::answers;
use super::roles::{peers_exchange, roles};
use super::worker::running;
use crate::juju::tools::Bag;
use crate::parse::{PublicKey, UnitName};
use crate::paths;
use crate::world::World;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Authorised keys, rendered whole from the related units: who is not related is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workers<'a> {
    /// Public keys, each as [`PublicKey`] writes it, in the order of the units and this unit's own last.
    pub keys: Vec<Cow<'a, str>>,
    /// What is wrong with data from the other side.
    pub bad: Vec<String>,
}

/// The units on the other side, workers or not, with their relations' ids and their bags.
pub fn related(world: &World) -> impl Iterator<Item = (&str, &str, &Bag)> {
    let peers = peers_exchange(world).then_some("concourse-peer");
    let relations = peers.into_iter().chain(["web-tsa"]).flat_map(|endpoint| world.memory.of(endpoint));
    relations.flat_map(|(id, relation)| {
        relation.units.iter().map(move |(unit, bag)| (id.as_str(), unit.as_str(), bag))
    })
}

/// Reads the workers' keys.
pub fn workers(world: &World) -> Workers<'_> {
    // What stands in the file was a key when it was written: to parse a thousand of them takes longer than a hook.
    // It stands there in this order, unless an older charm wrote it, so that one walk finds them all.
    let known: Vec<&str> =
        world.file(paths::AUTHORIZED_KEYS).map(|text| text.lines().collect()).unwrap_or_default();
    let mut rest = &known[..];
    let parse = |text: &str| text.parse().map(|key: PublicKey| Cow::Owned(key.to_string()));
    let mut found = Workers::default();
    for (id, unit, bag) in related(world) {
        let Some(key) = bag.get("worker-public-key").filter(|v| !v.is_empty()) else { continue };
        match rest.iter().position(|line| line == key) {
            Some(at) => {
                found.keys.push(Cow::Borrowed(key));
                rest = &rest[at + 1..];
            }
            None => match parse(key) {
                Ok(key) => found.keys.push(key),
                Err(why) => found.bad.push(format!("{id}: {unit} says worker-public-key that is bad: {why}")),
            },
        }
        if let Err(why) = answers(bag) {
            found.bad.push(format!("{id}: {unit} says paused that is bad: {why}"));
        }
    }
    // One that is about to go says so with its key.
    if roles(world).worker || !running(world).is_empty() {
        found.keys.extend(world.file(paths::WORKER_KEY_PUB).and_then(|text| parse(text.trim()).ok()));
    }
    found
}

/// Names under which related workers register, as far as this side can know them.
pub fn names(world: &World) -> BTreeSet<String> {
    let workers = related(world).filter(|(_, _, bag)| bag.contains_key("worker-public-key"));
    let units = workers.filter_map(|(_, unit, _)| unit.parse::<UnitName>().ok());
    let own = roles(world).worker.then(|| world.unit.clone());
    units.chain(own).flat_map(|unit| unit.worker_names()).collect()
}

impl Workers<'_> {
    /// Whether `text` is [`Workers::authorized_keys`].
    pub fn are_in(&self, text: &str) -> bool {
        let mut rest = Some(text);
        for key in &self.keys {
            rest = rest.and_then(|text| text.strip_prefix(key.as_ref())?.strip_prefix('\n'));
        }
        rest == Some("")
    }

    /// The file that the TSA reads.
    pub fn authorized_keys(&self) -> String {
        let mut text = String::with_capacity(self.keys.iter().map(|key| key.len() + 1).sum());
        self.keys.iter().for_each(|key| text.extend([key.as_ref(), "\n"]));
        text
    }
}
