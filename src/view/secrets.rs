//! Juju secrets: those that web nodes of one application share, and the operator's own.

use super::database;
use super::roles::roles;
use crate::juju::tools::Bag;
use crate::world::World;

/// Label of the secret with the web nodes' keys, and key of its id in the peers' bag.
pub const KEYS: &str = "concourse-keys";
/// Label of the secret with the administrator's password, and key of its id in the peers' bag.
pub const ADMIN: &str = "concourse-admin";

/// The keys that all web nodes of an application have in common.
#[derive(Clone, PartialEq, Eq)]
pub struct WebKeys<'a> {
    /// Private key of the TSA.
    pub host_key: &'a str,
    /// Its public half.
    pub host_key_pub: &'a str,
    /// Key that signs sessions.
    pub session_key: &'a str,
}

/// Which secrets this unit needs, and no others: least privilege.
pub fn wanted(world: &World) -> Vec<&str> {
    let mut ids = vec![];
    ids.extend(world.config.as_ref().and_then(|c| c.secrets.as_ref()).map(|id| id.as_str()));
    if roles(world).web {
        ids.extend([KEYS, ADMIN].iter().filter_map(|label| world.peer_app_value(label)));
        if let Some((_, relation)) = world.memory.one("database") {
            ids.extend(database::secret_ids(&relation.app_bag));
        }
    }
    ids
}

/// The shared keys, once the leader has made them.
pub fn web_keys(world: &World) -> Option<WebKeys<'_>> {
    let content = shared(world, KEYS)?;
    Some(WebKeys {
        host_key: content.get("tsa-host-key")?,
        host_key_pub: content.get("tsa-public-key")?,
        session_key: content.get("session-signing-key")?,
    })
}

/// The administrator's password, once the leader has made it.
pub fn admin_password(world: &World) -> Option<&str> {
    shared(world, ADMIN)?.get("password").map(String::as_str)
}

fn shared<'a>(world: &'a World, label: &str) -> Option<&'a Bag> {
    world.memory.secret(world.peer_app_value(label)?)
}

/// The operator's secret settings; `None` if there is such an option and this unit may not read the secret.
pub fn operator(world: &World) -> Option<Option<&Bag>> {
    match world.config.as_ref().and_then(|c| c.secrets.as_ref()) {
        None => Some(None),
        Some(id) => world.memory.secret(id.as_str()).map(Some),
    }
}
