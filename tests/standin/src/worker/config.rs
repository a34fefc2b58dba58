//! What a worker is told, and what it refuses.

use crate::gate::GateOptions;
use crate::log::{self, Level};
use crate::opts::{Opt, Values, dft, many, one, switch};
use crate::protocol::Worker;
use crate::version::{WORKER_VERSION, asset};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// The worker's own options; those of the gate come on top.
pub const OPTIONS: &[Opt] = &[
    dft("log-level", "info"),
    one("name"),
    many("tag"),
    one("team"),
    one("http-proxy"),
    one("https-proxy"),
    one("no-proxy"),
    switch("ephemeral"),
    one("max-active-tasks"),
    one("certs-dir"),
    one("work-dir"),
    dft("bind-ip", "127.0.0.1"),
    dft("bind-port", "7777"),
    dft("debug-bind-ip", "127.0.0.1"),
    dft("debug-bind-port", "7776"),
    dft("healthcheck-bind-ip", "0.0.0.0"),
    dft("healthcheck-bind-port", "8888"),
    dft("healthcheck-timeout", "5s"),
    dft("sweep-interval", "30s"),
    dft("rebalance-interval", "4h"),
    dft("connection-drain-timeout", "1h"),
    dft("runtime", "containerd"),
    one("resource-types"),
    dft("baggageclaim-driver", "detect"),
    dft("baggageclaim-bind-ip", "127.0.0.1"),
    dft("baggageclaim-bind-port", "7788"),
    dft("baggageclaim-debug-bind-ip", "127.0.0.1"),
    dft("baggageclaim-debug-bind-port", "7787"),
    dft("baggageclaim-log-level", "info"),
    one("containerd-config"),
    one("containerd-bin"),
    one("containerd-init-bin"),
    one("containerd-seccomp-profile"),
    one("containerd-oci-hooks-dir"),
    one("containerd-cni-plugins-dir"),
    dft("containerd-log-level", "info"),
    dft("containerd-request-timeout", "5m"),
    dft("containerd-max-containers", "250"),
    dft("containerd-privileged-mode", "full"),
    many("containerd-allowed-device"),
    one("containerd-external-ip"),
    switch("containerd-dns-proxy-enable"),
    many("containerd-dns-server"),
    many("containerd-additional-hosts"),
    many("containerd-restricted-network"),
    dft("containerd-network-pool", "10.80.0.0/16"),
    one("containerd-mtu"),
    switch("containerd-allow-host-access"),
];

/// A checked configuration.
pub struct Config {
    /// How the worker describes itself.
    pub worker: Worker,
    /// The gates it may use and its key.
    pub gate: GateOptions,
    /// Where everything of the worker lies.
    pub work_dir: PathBuf,
    /// Which containerd to start.
    pub containerd: String,
    /// A containerd configuration that replaces the generated one.
    pub containerd_config: Option<String>,
    /// How much containerd says.
    pub containerd_log_level: String,
    /// The program that is a container's first process.
    pub init: PathBuf,
    /// overlay, naive, btrfs or detect.
    pub driver: String,
    /// full, fuse-only or ignore.
    pub privileged_mode: String,
    /// Further device rules (`c 10:229 rwm`).
    pub allowed_devices: Vec<String>,
    /// Name servers for containers; empty: the machine's own.
    pub dns_servers: Vec<String>,
    /// garden, baggageclaim, the two debug and health addresses.
    pub addresses: [String; 5],
}

impl Config {
    /// Checks everything that was said.
    pub fn new(v: &Values) -> Result<Config> {
        const LEVELS: &[&str] = &["debug", "info", "error", "fatal"];
        v.choice("log-level", LEVELS)?;
        v.choice("baggageclaim-log-level", LEVELS)?;
        v.choice("runtime", &["guardian", "containerd", "houdini"])?;
        v.choice("baggageclaim-driver", &["detect", "naive", "btrfs", "overlay"])?;
        v.choice("containerd-log-level", &["trace", "debug", "info", "warn", "error", "fatal", "panic"])?;
        v.choice("containerd-privileged-mode", &["full", "fuse-only", "ignore"])?;
        log::set_minimum(Level::parse(&v.text("log-level")).unwrap_or(Level::Info));
        let gate = GateOptions::new(v)?;
        let work_dir = PathBuf::from(v.required("work-dir")?);
        for name in [
            "healthcheck-timeout",
            "sweep-interval",
            "rebalance-interval",
            "connection-drain-timeout",
            "containerd-request-timeout",
        ] {
            v.duration(name)?;
        }
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            bail!("worker must be run as root");
        }
        if v.text("runtime") != "containerd" {
            bail!("the stand-in knows only the containerd runtime, not {}", v.text("runtime"));
        }
        if std::env::vars().any(|(k, _)| k.starts_with("CONCOURSE_GARDEN_")) {
            bail!("cannot use CONCOURSE_GARDEN_ environment variables with Containerd");
        }
        let init = v.get("containerd-init-bin").map(PathBuf::from).or_else(|| asset("bin/init"));
        let init = init.context("could not find init binary. Try setting the --containerd-init-bin flag")?;
        if v.get("containerd-cni-plugins-dir").is_none() && asset("bin").is_none() {
            bail!("could not find CNI Plugins dir. Try setting the --containerd-cni-plugins-dir flag");
        }
        let address = |ip: &str, port: &str| {
            Ok::<_, anyhow::Error>(format!("{}:{}", v.text(ip), v.number::<u16>(port)?.unwrap_or(0)))
        };
        Ok(Config {
            worker: Worker {
                name: v.get("name").map_or_else(hostname, str::to_owned),
                team: v.text("team"),
                tags: v.list("tag"),
                platform: "linux".into(),
                version: WORKER_VERSION.into(),
                start_time: crate::time::unix_now(),
                ephemeral: v.on("ephemeral")?,
                resource_types: resource_types(v)?,
                ..Worker::default()
            },
            gate,
            work_dir,
            containerd: v.get("containerd-bin").unwrap_or("containerd").into(),
            containerd_config: v.get("containerd-config").map(str::to_owned),
            containerd_log_level: v.text("containerd-log-level"),
            init,
            driver: v.text("baggageclaim-driver"),
            privileged_mode: v.text("containerd-privileged-mode"),
            allowed_devices: v.list("containerd-allowed-device"),
            dns_servers: v.list("containerd-dns-server"),
            addresses: [
                address("bind-ip", "bind-port")?,
                address("baggageclaim-bind-ip", "baggageclaim-bind-port")?,
                address("debug-bind-ip", "debug-bind-port")?,
                address("baggageclaim-debug-bind-ip", "baggageclaim-debug-bind-port")?,
                address("healthcheck-bind-ip", "healthcheck-bind-port")?,
            ],
        })
    }
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

fn resource_types(v: &Values) -> Result<Vec<serde_json::Value>> {
    let Some(base) = v.get("resource-types").map(PathBuf::from).or_else(|| asset("resource-types")) else {
        return Ok(Vec::new());
    };
    let mut list = Vec::new();
    for entry in std::fs::read_dir(&base).with_context(|| format!("open {}", base.display()))? {
        let dir = entry?.path();
        let meta = std::fs::read(dir.join("resource_metadata.json"))
            .with_context(|| format!("open {}/resource_metadata.json", dir.display()))?;
        let mut meta: serde_json::Value = serde_json::from_slice(&meta)?;
        meta["image"] = dir.join("rootfs.tgz").display().to_string().into();
        list.push(meta);
    }
    Ok(list)
}
