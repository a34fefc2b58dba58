//! Keys that the web nodes share are made once, by the leader, and kept as Juju secrets.

use crate::paths;
use crate::step::{KeyKind, SecretSource, Step};
use crate::view::roles::{application_has_web, roles};
use crate::view::secrets::{ADMIN, KEYS};
use crate::world::World;

/// Makes what is missing. Files left by a hook that failed are used: the secret was lost with the hook, they were
/// not.
pub fn steps(world: &World) -> Vec<Step> {
    let mut steps = vec![];
    if !world.leader || !application_has_web(world) || !roles(world).web {
        return steps;
    }
    let Some((relation, _)) = world.memory.one("concourse-peer") else { return steps };
    let share = |label, content| Step::ShareSecret { label, relation: relation.clone(), content };
    if world.peer_app_value(KEYS).is_none() {
        let missing = |path: &str| world.file(path).is_none();
        if missing(paths::HOST_KEY) || missing(paths::HOST_KEY_PUB) {
            steps.push(Step::GenerateKey(KeyKind::Ssh, paths::HOST_KEY));
        }
        if missing(paths::SESSION_KEY) {
            steps.push(Step::GenerateKey(KeyKind::Rsa, paths::SESSION_KEY));
        }
        steps.push(share(KEYS, SecretSource::KeyFiles));
    }
    if world.peer_app_value(ADMIN).is_none() {
        steps.push(share(ADMIN, SecretSource::NewPassword));
    }
    steps
}
