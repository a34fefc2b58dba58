//! The web node's files as they should be, or what they still lack.

use super::database::{Database, database};
use super::secrets::{WebKeys, admin_password, operator, web_keys};
use crate::config::secret_settings;
use crate::install::Installed;
use crate::juju::memory::PEERS;
use crate::parse::Secret;
use crate::paths;
use crate::render::web::{WebInput, web_env};
use crate::step::{File, FileOwner, Level, Status};
use crate::world::World;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The unit's text, as it ships.
pub const UNIT: &str = include_str!("../../charm/units/concourse-web.service");

/// This unit's address as others of its model reach it.
pub fn address(world: &World) -> Option<IpAddr> {
    world.memory.addresses.get(PEERS).copied()
}

/// Everything the web node reads but its workers' keys.
///
/// # Errors
/// What is missing, as the status that says so.
pub fn files(world: &World) -> Result<Vec<File>, Status> {
    let Settings { env, keys, ca } = settings(world)?;
    let file = |path: &str, text: String, mode, owner| File { path: path.into(), text, mode, owner };
    let mut files = vec![
        file(paths::WEB_UNIT, UNIT.into(), 0o644, FileOwner::Root),
        file(paths::WEB_ENV, env, 0o640, FileOwner::RootConcourse),
        file(paths::HOST_KEY, keys.host_key.into(), 0o600, FileOwner::Concourse),
        file(paths::HOST_KEY_PUB, keys.host_key_pub.into(), 0o644, FileOwner::Concourse),
        file(paths::SESSION_KEY, keys.session_key.into(), 0o600, FileOwner::Concourse),
    ];
    if let Some(ca) = ca {
        files.push(file(paths::POSTGRES_CA, ca, 0o644, FileOwner::Root));
    }
    Ok(files)
}

/// What the web node still lacks, as the status that says so.
pub fn missing(world: &World) -> Option<Status> {
    settings(world).err()
}

/// What does not depend on the workers, of which there may be a thousand.
struct Settings<'a> {
    env: String,
    keys: WebKeys<'a>,
    ca: Option<String>,
}

fn settings(world: &World) -> Result<Settings<'_>, Status> {
    let blocked = |message: String| Status { level: Level::Blocked, message };
    let waiting = |message: &str| Status { level: Level::Waiting, message: message.to_owned() };
    let config = world.config.as_ref().ok_or_else(|| blocked("The options have never been valid".into()))?;
    let app = world.unit.application();
    let postgres = match database(world) {
        Database::Ready(postgres) => postgres,
        Database::None => {
            return Err(blocked(format!(
                "PostgreSQL database required: juju integrate {app}:database postgresql:database"
            )));
        }
        Database::Ambiguous => {
            return Err(blocked(
                "Two databases are related: remove the relation `database` or `postgresql`".into(),
            ));
        }
        Database::Waiting(what) => return Err(waiting(&format!("Waiting for {what}"))),
        Database::Bad(why) => return Err(blocked(format!("The database relation has {why}"))),
    };
    let secrets = operator_settings(world)?;
    let keys =
        web_keys(world).ok_or_else(|| waiting("Waiting for the leader to share the web node's keys"))?;
    let password =
        admin_password(world).ok_or_else(|| waiting("Waiting for the leader to share the password"))?;
    let address = address(world).ok_or_else(|| waiting("Waiting for Juju to tell this unit's address"))?;

    let input =
        WebInput { config, secrets: &secrets, postgres: &postgres, admin_password: password, address };
    let env = web_env(&input).map_err(blocked)?;
    Ok(Settings { env, keys, ca: postgres.ca.clone() })
}

/// The operator's secret settings by their Concourse names.
///
/// # Errors
/// The secret can't be read, or has keys that Concourse does not know.
pub fn operator_settings(world: &World) -> Result<BTreeMap<String, Secret>, Status> {
    let blocked = |message: String| Status { level: Level::Blocked, message };
    let content = operator(world).ok_or_else(|| {
        let app = world.unit.application();
        blocked(format!("concourse-secrets: grant it to this application: juju grant-secret NAME {app}"))
    })?;
    let Some(content) = content else { return Ok(BTreeMap::new()) };
    let plain = world.config.as_ref().map(|c| c.env.clone()).unwrap_or_default();
    secret_settings(content, &plain).map_err(|problems| {
        let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
        blocked(all.join("; "))
    })
}

/// The digest that the unit's `ExecStartPre` will record when started with these files and this version.
pub fn start_digest(files: &[File], current: &Installed) -> String {
    digest(files, &[paths::WEB_UNIT, paths::WEB_ENV, paths::HOST_KEY, paths::SESSION_KEY], current)
}

/// SHA-256 over the named files, the link to the version and its archive's digest, as `sha256sum` prints it.
pub fn digest(files: &[File], inputs: &[&str], current: &Installed) -> String {
    let mut sum = Sha256::new();
    for path in inputs {
        if let Some(file) = files.iter().find(|f| f.path == *path) {
            sum.update(&file.text);
        }
    }
    sum.update(format!("versions/{}\n{}\n", current.version, current.sha256));
    hex(&sum.finalize())
}

/// SHA-256 of one text, as `sha256sum` prints it.
pub fn text_digest(text: &str) -> String {
    hex(&Sha256::digest(text))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
