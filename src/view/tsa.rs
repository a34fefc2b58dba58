//! The web nodes that a worker registers with.

use super::pause::ask;
use super::roles::{peers_exchange, roles};
use crate::juju::tools::Bag;
use crate::paths;
use crate::world::World;

pub use crate::config::TSA_PORT;
pub use crate::render::worker::Tsa;

/// What the relation says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// Whether there is a relation at all.
    pub related: bool,
    /// The web nodes, in the order of their units' names.
    pub servers: Vec<Tsa>,
    /// What is wrong with data from the other side.
    pub bad: Vec<String>,
}

/// Reads the web nodes from wherever this unit's mode has them.
pub fn registration(world: &World) -> Registration {
    let roles = roles(world);
    if roles.web && roles.worker {
        return own(world);
    }
    let endpoint = if peers_exchange(world) { "concourse-peer" } else { "worker-tsa" };
    let mut found = Registration::default();
    for (id, relation) in world.memory.of(endpoint) {
        found.related = true;
        for (unit, bag) in &relation.units {
            match parse(bag) {
                Ok(Some(tsa)) => found.servers.push(tsa),
                Ok(None) => {}
                Err(why) => found.bad.push(format!("{id}: {unit} says {why}")),
            }
            if let Err(why) = ask(bag) {
                found.bad.push(format!("{id}: {unit} says pause that is bad: {why}"));
            }
        }
    }
    found
}

/// A unit that is both registers with itself.
fn own(world: &World) -> Registration {
    let key = world.file(paths::HOST_KEY_PUB).and_then(|text| text.trim().parse().ok());
    let host = format!("127.0.0.1:{TSA_PORT}").parse().ok();
    let servers = key.zip(host).map(|(key, host)| Tsa { host, key, version: None }).into_iter().collect();
    Registration { related: true, servers, bad: vec![] }
}

/// `None`: the unit is no web node, or not yet up.
fn parse(bag: &Bag) -> Result<Option<Tsa>, String> {
    let value = |key: &str| bag.get(key).map(String::as_str).filter(|v| !v.is_empty());
    let Some(host) = value("tsa-host") else { return Ok(None) };
    let key = value("tsa-public-key").ok_or("tsa-host without tsa-public-key")?;
    let version = value("concourse-version").map(str::parse);
    Ok(Some(Tsa {
        host: host.parse().map_err(|e| format!("tsa-host that is bad: {e}"))?,
        key: key.parse().map_err(|e| format!("tsa-public-key that is bad: {e}"))?,
        version: version.transpose().map_err(|e| format!("concourse-version that is bad: {e}"))?,
    }))
}
