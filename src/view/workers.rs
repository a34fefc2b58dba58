//! The workers that may register with this web node.

use super::pause::answers;
use super::roles::{peers_exchange, roles};
use crate::parse::{PublicKey, UnitName};
use crate::paths;
use crate::world::World;
use std::collections::BTreeSet;

/// Authorised keys, rendered whole from the related units: who is not related is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workers {
    /// Public keys.
    pub keys: BTreeSet<PublicKey>,
    /// Names under which related workers register, as far as this side can know them.
    pub names: BTreeSet<String>,
    /// What is wrong with data from the other side.
    pub bad: Vec<String>,
}

/// Reads the workers' keys.
pub fn workers(world: &World) -> Workers {
    // What stands in the file was a key when it was written: to parse a thousand of them takes longer than a hook.
    let known: BTreeSet<&str> =
        world.file(paths::AUTHORIZED_KEYS).map(|text| text.lines().collect()).unwrap_or_default();
    let parse = |key: &str| if known.contains(key) { Ok(PublicKey::known(key)) } else { key.parse() };
    let mut found = Workers::default();
    let peers = peers_exchange(world).then_some("concourse-peer");
    for endpoint in peers.into_iter().chain(["web-tsa"]) {
        for (id, relation) in world.memory.of(endpoint) {
            for (unit, bag) in &relation.units {
                let Some(key) = bag.get("worker-public-key").filter(|v| !v.is_empty()) else { continue };
                match parse(key) {
                    Ok(key) => drop(found.keys.insert(key)),
                    Err(why) => {
                        found.bad.push(format!("{id}: {unit} says worker-public-key that is bad: {why}"))
                    }
                }
                if let Err(why) = answers(bag) {
                    found.bad.push(format!("{id}: {unit} says paused that is bad: {why}"));
                }
                if let Ok(unit) = unit.parse::<UnitName>() {
                    found.names.extend(unit.worker_names());
                }
            }
        }
    }
    if roles(world).worker {
        found.names.extend(world.unit.worker_names());
        found
            .keys
            .extend(world.file(paths::WORKER_KEY_PUB).and_then(|text| text.trim().parse::<PublicKey>().ok()));
    }
    found
}

impl Workers {
    /// The file that the TSA reads.
    pub fn authorized_keys(&self) -> String {
        self.keys.iter().map(|key| format!("{key}\n")).collect()
    }
}
