//! Options of the application, parsed once into a typed [`Config`] or refused with all problems at once (PURE).
//!
//! `config.yaml` is the one place of the defaults: it is compiled in, and an option that Juju leaves out takes its
//! default from there. A [`Problem`] names its option and says what to do; no secret is ever in one.

mod choices;
mod gpus;
mod known;
mod options;
mod ports;
mod proxy;
mod settings;
mod urls;

pub use choices::{ComputeRuntime, DeploymentMode, FolderMounts, LogLevel, Placement, VolumeDriver};
pub use known::Side;
pub use ports::{APART, METRICS_PORT, TSA_PORT, WORKER_PORTS};
pub use proxy::{ModelProxy, Proxy, ProxyUrl};
pub use settings::{secret_settings, settings_for};
pub use urls::{ExternalUrl, UrlTemplate};

use crate::oci::policy::{Access, DefaultCount};
use crate::parse::{DriverBranch, Invalid, SecretId, Sha256, Tag, TimeLimit, UserName, Version, shown};
use options::{Options, list};
use ports::{free_port, usable_port};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// What is wrong with an option, and what to do: `web-port: 70000 is not a port; use 1 to 65535`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem(String);

impl Problem {
    pub(crate) fn new(option: &str, sentence: impl fmt::Display) -> Self {
        Self(format!("{option}: {sentence}"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Problem {}

/// All options, validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `deployment-mode`
    pub mode: DeploymentMode,
    /// `concourse-version`; `None`: the version that the charm pins, or that of the web node.
    pub version: Option<Version>,
    /// `concourse-download-url`; `None`: the release on GitHub. Without {version} in it only if `version` is set.
    pub download_url: Option<UrlTemplate>,
    /// `concourse-sha256`
    pub sha256: Option<Sha256>,
    /// `web-port`: never 0, the TSA's or that of enabled metrics.
    pub web_port: u16,
    /// `external-url`
    pub external_url: Option<ExternalUrl>,
    /// `initial-admin-username`
    pub admin: UserName,
    /// `log-level`
    pub log_level: LogLevel,
    /// `enable-metrics`
    pub metrics: bool,
    /// `container-placement-strategy`: one or more, in order, without duplicates.
    pub placement: Vec<Placement>,
    /// `containerd-dns-proxy-enable`
    pub dns_proxy: bool,
    /// `containerd-dns-server`, without duplicates.
    pub dns_servers: Vec<IpAddr>,
    /// `enable-gpu`
    pub enable_gpu: bool,
    /// `compute-runtime`
    pub compute_runtime: ComputeRuntime,
    /// `gpu-device-ids`; `None`: all.
    pub gpu_units: Option<Vec<String>>,
    /// `gpu-access`
    pub gpu_access: Access,
    /// `gpu-default-count`
    pub gpu_default_count: DefaultCount,
    /// `gpu-replicas`
    pub gpu_replicas: u32,
    /// `gpu-lease-wait`: at most [`crate::oci::policy::Leases::MAX_WAIT`].
    pub gpu_lease_wait: TimeLimit,
    /// `gpu-persistence-mode`
    pub gpu_persistence: bool,
    /// `install-drivers`
    pub install_drivers: bool,
    /// `nvidia-driver-branch`; `None`: the newest for servers.
    pub driver_branch: Option<DriverBranch>,
    /// `folder-mounts`
    pub folder_mounts: FolderMounts,
    /// `volume-driver`
    pub volume_driver: VolumeDriver,
    /// `tag`, in order, without duplicates.
    pub tags: Vec<Tag>,
    /// `worker-untagged`
    pub worker_untagged: bool,
    /// `concourse-env`: names that Concourse knows and the charm doesn't set itself; see [`settings_for`].
    pub env: BTreeMap<String, String>,
    /// `concourse-secrets`: the Juju secret to read; its content goes through [`secret_settings`].
    pub secrets: Option<SecretId>,
    /// `http-proxy`, `https-proxy` and `no-proxy`, each else that of the model.
    pub proxy: Proxy,
}

/// Parses what `config-get --format=json` prints.
///
/// # Errors
/// All problems, in the order of the options.
pub fn parse(options: &Map<String, Value>, model: &ModelProxy) -> Result<Config, Vec<Problem>> {
    let mut o = Options::new(options);

    // Each reader gives `None` for an option with a problem and goes on, so that all problems are found.
    let mode = o.parsed("deployment-mode", str::parse);
    let version = o.optional("concourse-version", str::parse);
    let download_url = o.optional("concourse-download-url", str::parse);
    let sha256 = o.optional("concourse-sha256", str::parse);
    let metrics = o.flag("enable-metrics");
    let web_port = o.number("web-port").and_then(|port| o.keep("web-port", usable_port(port, metrics)));
    let external_url = o.optional("external-url", str::parse);
    let admin = o.parsed("initial-admin-username", str::parse);
    let log_level = o.parsed("log-level", str::parse);
    let placement = o.parsed("container-placement-strategy", choices::placement);
    let dns_proxy = o.flag("containerd-dns-proxy-enable");
    let dns_servers = o.parsed("containerd-dns-server", |text| list(text, dns_server));
    let enable_gpu = o.flag("enable-gpu");
    let compute_runtime = o.parsed("compute-runtime", str::parse);
    let gpu_units = o.parsed("gpu-device-ids", gpus::gpu_units);
    let gpu_access = o.parsed("gpu-access", gpus::access);
    let gpu_default_count = o.parsed("gpu-default-count", gpus::default_count);
    let gpu_replicas = o.number("gpu-replicas").and_then(|n| o.keep("gpu-replicas", gpus::replicas(n)));
    let gpu_lease_wait = o.parsed("gpu-lease-wait", gpus::lease_wait);
    let gpu_persistence = o.flag("gpu-persistence-mode");
    let install_drivers = o.flag("install-drivers");
    let driver_branch = o.parsed("nvidia-driver-branch", gpus::driver_branch);
    let folder_mounts = o.parsed("folder-mounts", str::parse);
    let volume_driver = o.parsed("volume-driver", str::parse);
    let tags = o.parsed("tag", |text| list(text, |part| Tag::try_from(part)));
    let worker_untagged = o.flag("worker-untagged");
    let env = o.text("concourse-env").and_then(|text| o.keep_all(settings::env_settings(&text)));
    let workers: &[u16] = match (mode, worker_untagged) {
        (Some(DeploymentMode::All), Some(true)) => &[0, APART],
        (Some(DeploymentMode::All), _) => &[0],
        _ => &[],
    };
    let web_port = web_port.and_then(|port| {
        let env = env.clone().unwrap_or_default();
        o.keep("web-port", free_port(port, &env, workers))
    });
    let secrets = o.without_default("concourse-secrets", str::parse);
    let http = o.optional("http-proxy", str::parse);
    let https = o.optional("https-proxy", str::parse);
    let no = o.parsed("no-proxy", proxy::no_proxy);
    let model = o.keep_all(Proxy::of_model(model));

    // Only a version that stands still fits an address that does.
    if let (Some(Some(url)), Some(None)) = (&download_url, &version)
        && !UrlTemplate::has_version(url)
    {
        let sentence = "has no {version} in it; put it where the version stands, or set concourse-version";
        o.keep::<()>("concourse-download-url", Err(Invalid::new(sentence)));
    }

    let config = || {
        Some(Config {
            mode: mode?,
            version: version?,
            download_url: download_url?,
            sha256: sha256?,
            web_port: web_port?,
            external_url: external_url?,
            admin: admin?,
            log_level: log_level?,
            metrics: metrics?,
            placement: placement?,
            dns_proxy: dns_proxy?,
            dns_servers: dns_servers?,
            enable_gpu: enable_gpu?,
            compute_runtime: compute_runtime?,
            gpu_units: gpu_units?,
            gpu_access: gpu_access?,
            gpu_default_count: gpu_default_count?,
            gpu_replicas: gpu_replicas?,
            gpu_lease_wait: gpu_lease_wait?,
            gpu_persistence: gpu_persistence?,
            install_drivers: install_drivers?,
            driver_branch: driver_branch?,
            folder_mounts: folder_mounts?,
            volume_driver: volume_driver?,
            tags: tags?,
            worker_untagged: worker_untagged?,
            env: env?,
            secrets: secrets?,
            proxy: model?.overridden(http?, https?, no?),
        })
    };
    o.finish(config())
}

fn dns_server(text: &str) -> Result<IpAddr, Invalid> {
    let ip: IpAddr =
        text.parse().map_err(|_| Invalid::new(format!("{} is not an IP address", shown(text))))?;
    // A container has a loopback of its own.
    if ip.is_loopback() || ip.is_unspecified() {
        let sentence =
            format!("{ip} is out of reach for containers; use an address that other machines reach");
        return Err(Invalid::new(sentence));
    }
    Ok(ip)
}

#[cfg(test)]
mod any_tests;
#[cfg(test)]
mod tests;
