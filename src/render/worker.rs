//! The workers' settings.

use super::env::EnvFile;
use super::proxies;
use crate::config::{APART, Config, Side, WORKER_PORTS, settings_for};
use crate::parse::{HostPort, PublicKey, Secret, Tag, Version};
use crate::paths;
use crate::world::{Volumes, Worker};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// One web node's registration service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tsa {
    /// Where it listens.
    pub host: HostPort,
    /// The key that proves it.
    pub key: PublicKey,
    /// What its web node runs.
    pub version: Option<Version>,
}

/// All that the settings depend on.
pub struct WorkerInput<'a> {
    /// Options.
    pub config: &'a Config,
    /// The operator's secret settings, by their Concourse names.
    pub secrets: &'a BTreeMap<String, Secret>,
    /// Which of the unit's workers.
    pub worker: Worker,
    /// The worker's name, the same for ever.
    pub name: String,
    /// Where to register.
    pub servers: &'a [Tsa],
    /// Tags of the main worker.
    pub tags: &'a BTreeSet<Tag>,
    /// How volumes are kept.
    pub volumes: Volumes,
    /// An address of this machine, where containers find its DNS proxy.
    pub address: Option<IpAddr>,
}

/// Renders `/etc/concourse/worker.env` or `worker-untagged.env`.
///
/// # Errors
/// A value that systemd can't hand on; the sentence names its variable only.
pub fn worker_env(input: &WorkerInput<'_>) -> Result<String, String> {
    let config = input.config;
    let mut env = EnvFile::default();
    let hosts: Vec<String> = input.servers.iter().map(|tsa| tsa.host.to_string()).collect();
    env.set("CONCOURSE_NAME", &input.name);
    env.set("CONCOURSE_WORK_DIR", input.worker.paths().work_dir);
    env.set("CONCOURSE_TSA_HOST", hosts.join(","));
    env.set("CONCOURSE_TSA_PUBLIC_KEY", paths::TSA_KEYS);
    env.set("CONCOURSE_TSA_WORKER_PRIVATE_KEY", paths::WORKER_KEY);
    env.set("CONCOURSE_RUNTIME", "containerd");
    env.set("CONCOURSE_CONTAINERD_BIN", paths::LAUNCHER);
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
    if input.worker == Worker::Main {
        let tags: Vec<String> = input.tags.iter().map(|tag| format!("--tag={tag}")).collect();
        env.set("WORKER_TAG_ARGS", tags.join(" "));
    }
    proxies(&mut env, &config.proxy);
    for (name, value) in settings_for(Side::Worker, &config.env) {
        env.set(name, value);
    }
    for (name, value) in settings_for(Side::Worker, input.secrets) {
        env.set(name, value.expose());
    }
    if input.worker == Worker::Untagged {
        second(&mut env, input);
    }
    env.render().map_err(|e| e.to_string())
}

/// A second worker listens elsewhere. The network of containers it shares with the first one: Concourse gives the
/// bridge, the list of leased addresses and the chains of the firewall fixed names (worker/runtime/cni_network.go), so
/// that only equal settings leave one worker's containers their network when the other one starts.
fn second(env: &mut EnvFile, input: &WorkerInput<'_>) {
    let config = input.config;
    for (name, usual) in WORKER_PORTS {
        // An operator who moved the first one's port has moved this one's as well.
        let first = config.env.get(name).and_then(|port| port.parse().ok()).unwrap_or(usual);
        let port: u16 = first.checked_add(APART).unwrap_or_else(|| first - APART);
        env.set(name, port.to_string());
    }
    if config.dns_proxy {
        // Only one process can have port 53: the first worker's proxy answers for both.
        let mut servers: Vec<String> = config.dns_servers.iter().map(ToString::to_string).collect();
        servers.extend(input.address.map(|ip| ip.to_string()));
        env.set("CONCOURSE_CONTAINERD_DNS_PROXY_ENABLE", "false");
        env.set("CONCOURSE_CONTAINERD_DNS_SERVER", servers.join(","));
        env.set("CONCOURSE_CONTAINERD_ALLOW_HOST_ACCESS", "true");
    }
}

/// Renders the drop-in for what differs between machines.
pub fn worker_dropin(volumes: Volumes, gpus: bool) -> String {
    let mut text = String::from("# Written by the charm concourse-ci-machine.\n");
    if gpus {
        text.push_str(
            "[Unit]\n# What containers get of GPUs is known before the first of them starts.\n\
             Wants=concourse-gpu.service\nAfter=concourse-gpu.service\n",
        );
    }
    text.push_str("[Service]\n");
    if volumes == Volumes::OverlayMasked {
        text.push_str(
            "# Concourse mounts with metacopy=on where it sees this parameter, which the kernel refuses in a user\n\
             # namespace: every volume would fail.\n\
             InaccessiblePaths=-/sys/module/overlay/parameters\n",
        );
    }
    text
}

/// The host keys that the workers trust: those of all its web nodes.
pub fn tsa_keys(servers: &[Tsa]) -> String {
    let keys: BTreeSet<String> = servers.iter().map(|tsa| tsa.key.to_string()).collect();
    keys.into_iter().map(|key| key + "\n").collect()
}
