//! The worker's settings.

use super::env::EnvFile;
use super::proxies;
use crate::config::{Config, Side, settings_for};
use crate::parse::{Secret, Tag};
use crate::paths;
use crate::view::tsa::Tsa;
use crate::world::Volumes;
use std::collections::{BTreeMap, BTreeSet};

/// All that the settings depend on.
pub struct WorkerInput<'a> {
    /// Options.
    pub config: &'a Config,
    /// The operator's secret settings, by their Concourse names.
    pub secrets: &'a BTreeMap<String, Secret>,
    /// The worker's name, the same for ever.
    pub name: String,
    /// Where to register.
    pub servers: &'a [Tsa],
    /// Tags to advertise.
    pub tags: &'a BTreeSet<Tag>,
    /// How volumes are kept.
    pub volumes: Volumes,
}

/// Renders `/etc/concourse/worker.env`.
///
/// # Errors
/// A value that systemd can't hand on; the sentence names its variable only.
pub fn worker_env(input: &WorkerInput<'_>) -> Result<String, String> {
    let config = input.config;
    let mut env = EnvFile::default();
    let hosts: Vec<String> = input.servers.iter().map(|tsa| tsa.host.to_string()).collect();
    env.set("CONCOURSE_NAME", &input.name);
    env.set("CONCOURSE_WORK_DIR", paths::WORK_DIR);
    env.set("CONCOURSE_TSA_HOST", hosts.join(","));
    env.set("CONCOURSE_TSA_PUBLIC_KEY", paths::TSA_KEYS);
    env.set("CONCOURSE_TSA_WORKER_PRIVATE_KEY", paths::WORKER_KEY);
    env.set("CONCOURSE_RUNTIME", "containerd");
    env.set("CONCOURSE_BAGGAGECLAIM_DRIVER", input.volumes.driver());
    env.set("CONCOURSE_BIND_IP", "127.0.0.1");
    env.set("CONCOURSE_HEALTHCHECK_BIND_IP", "127.0.0.1");
    env.set("CONCOURSE_LOG_LEVEL", config.log_level.to_string());
    env.set("CONCOURSE_CONTAINERD_DNS_PROXY_ENABLE", config.dns_proxy.to_string());
    if !config.dns_servers.is_empty() {
        let servers: Vec<String> = config.dns_servers.iter().map(ToString::to_string).collect();
        env.set("CONCOURSE_CONTAINERD_DNS_SERVER", servers.join(","));
    }
    // A tag may hold a comma, at which CONCOURSE_TAG would split it; so tags are arguments (proven.md §1).
    let tags: Vec<String> = input.tags.iter().map(|tag| format!("--tag={tag}")).collect();
    env.set("WORKER_TAG_ARGS", tags.join(" "));
    proxies(&mut env, &config.proxy);
    for (name, value) in settings_for(Side::Worker, &config.env) {
        env.set(name, value);
    }
    for (name, value) in settings_for(Side::Worker, input.secrets) {
        env.set(name, value.expose());
    }
    env.render().map_err(|e| e.to_string())
}

/// Renders the drop-in for what differs between machines.
pub fn worker_dropin(volumes: Volumes) -> String {
    let mut text = String::from("# Written by the charm concourse-ci-machine.\n[Service]\n");
    if volumes == Volumes::OverlayMasked {
        text.push_str(
            "# Concourse mounts with metacopy=on where it sees this parameter, which the kernel refuses in a user\n\
             # namespace: every volume would fail.\n\
             InaccessiblePaths=-/sys/module/overlay/parameters\n",
        );
    }
    text
}

/// The host keys that the worker trusts: those of all its web nodes.
pub fn tsa_keys(servers: &[Tsa]) -> String {
    let keys: BTreeSet<String> = servers.iter().map(|tsa| tsa.key.to_string()).collect();
    keys.into_iter().map(|key| key + "\n").collect()
}
