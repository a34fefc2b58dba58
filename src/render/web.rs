//! The web node's settings.

use super::env::EnvFile;
use super::proxies;
use crate::config::{Config, Side, settings_for};
use crate::parse::{HostPort, Secret};
use crate::paths;
use std::collections::BTreeMap;
use std::net::IpAddr;

pub use crate::config::{METRICS_PORT, TSA_PORT};

/// How to connect to PostgreSQL.
#[derive(Clone, PartialEq, Eq)]
pub struct Postgres {
    /// Servers, the primary first.
    pub hosts: Vec<HostPort>,
    /// User.
    pub user: String,
    /// Password.
    pub password: String,
    /// Database.
    pub database: String,
    /// CA certificates in PEM, if the connection is to be encrypted and checked.
    pub ca: Option<String>,
    /// Whether the server speaks TLS.
    pub tls: bool,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{:?}/{} (tls {})", self.user, self.hosts, self.database, self.tls)
    }
}

/// All that the settings depend on.
pub struct WebInput<'a> {
    /// Options.
    pub config: &'a Config,
    /// The operator's secret settings, by their Concourse names.
    pub secrets: &'a BTreeMap<String, Secret>,
    /// Where the data are.
    pub postgres: &'a Postgres,
    /// The administrator's password.
    pub admin_password: &'a str,
    /// This unit's address.
    pub address: IpAddr,
}

/// The URL under which users reach the web node.
pub fn external_url(config: &Config, address: IpAddr) -> String {
    match &config.external_url {
        Some(url) => url.to_string().trim_end_matches('/').to_owned(),
        None => format!("http://{}", std::net::SocketAddr::new(address, config.web_port)),
    }
}

/// Renders `/etc/concourse/web.env`.
///
/// # Errors
/// A value that systemd can't hand on; the sentence names its variable only.
pub fn web_env(input: &WebInput<'_>) -> Result<String, String> {
    let WebInput { config, postgres, .. } = input;
    let mut env = EnvFile::default();
    let first = postgres.hosts.first().ok_or("the database has no address")?;
    // One port for all of them: the only form that Concourse takes.
    let same_port: Vec<String> = postgres
        .hosts
        .iter()
        .filter(|h| h.port() == first.port())
        .map(|h| h.host().to_string().trim_matches(['[', ']']).to_owned())
        .collect();

    env.set("CONCOURSE_POSTGRES_HOST", same_port.join(","));
    if same_port.len() > 1 {
        // The default is five minutes for a server that is gone; the next one has been waiting since.
        env.set("CONCOURSE_POSTGRES_CONNECT_TIMEOUT", "10s");
    }
    env.set("CONCOURSE_POSTGRES_PORT", first.port().to_string());
    env.set("CONCOURSE_POSTGRES_USER", &postgres.user);
    env.set("CONCOURSE_POSTGRES_PASSWORD", &postgres.password);
    env.set("CONCOURSE_POSTGRES_DATABASE", &postgres.database);
    match (&postgres.ca, postgres.tls) {
        (Some(_), _) => {
            env.set("CONCOURSE_POSTGRES_SSLMODE", "verify-ca");
            env.set("CONCOURSE_POSTGRES_CA_CERT", paths::POSTGRES_CA);
        }
        (None, true) => drop(env.set("CONCOURSE_POSTGRES_SSLMODE", "require")),
        (None, false) => drop(env.set("CONCOURSE_POSTGRES_SSLMODE", "disable")),
    }

    env.set("CONCOURSE_BIND_PORT", config.web_port.to_string());
    env.set("CONCOURSE_EXTERNAL_URL", external_url(config, input.address));
    // With several web nodes each must name itself: the default is 127.0.0.1.
    env.set("CONCOURSE_PEER_ADDRESS", input.address.to_string());
    env.set("CONCOURSE_TSA_PEER_ADDRESS", input.address.to_string());
    env.set("CONCOURSE_LOG_LEVEL", config.log_level.to_string());
    env.set("CONCOURSE_TSA_LOG_LEVEL", config.log_level.to_string());
    env.set("CONCOURSE_ADD_LOCAL_USER", format!("{}:{}", config.admin, input.admin_password));
    env.set("CONCOURSE_MAIN_TEAM_LOCAL_USER", config.admin.to_string());
    env.set("CONCOURSE_SESSION_SIGNING_KEY", paths::SESSION_KEY);
    env.set("CONCOURSE_TSA_HOST_KEY", paths::HOST_KEY);
    env.set("CONCOURSE_TSA_AUTHORIZED_KEYS", paths::AUTHORIZED_KEYS);
    env.set("CONCOURSE_TSA_BIND_PORT", TSA_PORT.to_string());
    let placement: Vec<String> = config.placement.iter().map(ToString::to_string).collect();
    env.set("CONCOURSE_CONTAINER_PLACEMENT_STRATEGY", placement.join(","));
    if config.metrics {
        env.set("CONCOURSE_PROMETHEUS_BIND_IP", "0.0.0.0");
        env.set("CONCOURSE_PROMETHEUS_BIND_PORT", METRICS_PORT.to_string());
    }
    proxies(&mut env, &config.proxy);
    for (name, value) in settings_for(Side::Web, &config.env) {
        env.set(name, value);
    }
    for (name, value) in settings_for(Side::Web, input.secrets) {
        env.set(name, value.expose());
    }
    env.render().map_err(|e| e.to_string())
}
