//! What a web is told, and what it refuses. Messages follow the real one's.

use crate::log::Level;
use crate::opts::{Opt, Values, dft, invalid, many, one, switch};
use crate::{db, log, pem, tls};
use anyhow::{Result, anyhow, bail};
use std::collections::HashMap;
use std::time::Duration;

/// The web's own options; those of the database come on top.
pub const OPTIONS: &[Opt] = &[
    dft("log-level", "info"),
    dft("tsa-log-level", "info"),
    dft("bind-ip", "0.0.0.0"),
    dft("bind-port", "8080"),
    one("tls-bind-port"),
    one("tls-cert"),
    one("tls-key"),
    one("external-url"),
    one("cluster-name"),
    dft("peer-address", "127.0.0.1"),
    dft("debug-bind-ip", "127.0.0.1"),
    dft("debug-bind-port", "8079"),
    one("session-signing-key"),
    many("add-local-user"),
    many("main-team-local-user"),
    one("main-team-config"),
    dft("tsa-bind-ip", "0.0.0.0"),
    dft("tsa-bind-port", "2222"),
    one("tsa-host-key"),
    one("tsa-authorized-keys"),
    dft("tsa-heartbeat-interval", "15s"),
    one("prometheus-bind-ip"),
    one("prometheus-bind-port"),
    many("container-placement-strategy"),
    dft("gc-interval", "1s"),
    dft("stalled-worker-timeout", "0s"),
    one("encryption-key"),
    one("old-encryption-key"),
    one("client-secret"),
    one("tsa-client-secret"),
    switch("enable-lets-encrypt"),
];

const STRATEGIES: &[&str] = &[
    "volume-locality",
    "random",
    "fewest-build-containers",
    "limit-active-tasks",
    "limit-active-containers",
    "limit-active-volumes",
];
const LEVELS: &[&str] = &["debug", "info", "error", "fatal"];

/// A checked configuration.
pub struct Config {
    /// `ip:port` for plain HTTP.
    pub http: String,
    /// `ip:port` and certificate for HTTPS.
    pub https: Option<(String, std::sync::Arc<rustls::ServerConfig>)>,
    /// Where the real one's debugger listens; only named in a log line.
    pub debug: String,
    /// The address that users see.
    pub external_url: String,
    /// The cluster's name, or empty.
    pub cluster_name: String,
    /// The address under which other webs reach this one.
    pub peer_address: String,
    /// Local users and their passwords (plain or bcrypt).
    pub users: HashMap<String, String>,
    /// Which of them may do everything.
    pub admins: Vec<String>,
    /// `ip:port` for the metrics page.
    pub prometheus: Option<String>,
    /// Where workers connect.
    pub tsa_ip: String,
    /// Where workers connect.
    pub tsa_port: u16,
    /// The private key that workers expect.
    pub host_key: String,
    /// The file with the workers' public keys.
    pub authorized_keys: Option<String>,
    /// A worker's life is twice this.
    pub heartbeat: Duration,
    /// How often time does its work on the workers' rows.
    pub gc_interval: Duration,
    /// After this a stalled worker is forgotten; 0: never.
    pub stalled_timeout: Duration,
}

impl Config {
    /// Checks everything that was said.
    pub fn new(v: &Values) -> Result<Config> {
        v.choice("log-level", LEVELS)?;
        v.choice("tsa-log-level", LEVELS)?;
        v.choice("container-placement-strategy", STRATEGIES)?;
        log::set_minimum(Level::parse(&v.text("log-level")).unwrap_or(Level::Info));
        let host_key = v.required("tsa-host-key")?.to_owned();
        pem::check(&host_key).map_err(|e| invalid("tsa-host-key", &format!("{e:#}")))?;
        if let Some(path) = v.get("session-signing-key") {
            pem::check(path).map_err(|e| invalid("session-signing-key", &format!("{e:#}")))?;
        }
        for name in ["encryption-key", "old-encryption-key"] {
            if let Some(key) = v.get(name).filter(|k| ![16, 24, 32].contains(&k.len())) {
                return Err(invalid(
                    name,
                    &format!("failed to construct AES cipher: crypto/aes: invalid key size {}", key.len()),
                ));
            }
        }
        let authorized_keys = v.get("tsa-authorized-keys").map(str::to_owned);
        if let Some(path) = &authorized_keys {
            std::fs::read(path).map_err(|e| {
                invalid("tsa-authorized-keys", &format!("failed to read authorized keys: open {path}: {e}"))
            })?;
        }
        let users = users(&v.list("add-local-user"))?;
        let admins: Vec<String> = v.list("main-team-local-user").iter().map(|u| u.to_lowercase()).collect();
        if admins.is_empty() && v.get("main-team-config").is_none() {
            bail!(
                "default team auth not configured: auth config for the team does not have users and groups configured"
            );
        }
        let (bind_ip, port) = (ip(v, "bind-ip")?, v.number::<u16>("bind-port")?.unwrap_or(8080));
        let https = https(v, &bind_ip)?;
        let external_url = match v.get("external-url") {
            Some(url) if url.contains("://") => url.trim_end_matches('/').to_owned(),
            Some(url) => return Err(invalid("external-url", &format!("missing scheme in '{url}'"))),
            None => format!("http://127.0.0.1:{port}"),
        };
        let prometheus = match (v.get("prometheus-bind-ip"), v.number::<u16>("prometheus-bind-port")?) {
            (Some(ip), Some(port)) => Some(format!("{ip}:{port}")),
            _ => None,
        };
        Ok(Config {
            http: address(&bind_ip, port),
            https,
            debug: format!("{}:{}", v.text("debug-bind-ip"), v.text("debug-bind-port")),
            external_url,
            cluster_name: v.text("cluster-name"),
            peer_address: v.text("peer-address"),
            users,
            admins,
            prometheus,
            tsa_ip: ip(v, "tsa-bind-ip")?,
            tsa_port: v.number("tsa-bind-port")?.unwrap_or(2222),
            host_key,
            authorized_keys,
            heartbeat: v.duration("tsa-heartbeat-interval")?.max(Duration::from_millis(200)),
            gc_interval: v
                .duration("gc-interval")?
                .clamp(Duration::from_millis(200), Duration::from_secs(30)),
            stalled_timeout: v.duration("stalled-worker-timeout")?,
        })
    }

    /// The database of this web.
    pub fn pool(v: &Values) -> Result<db::Pool> {
        db::Pool::new(v)
    }
}

fn https(v: &Values, bind_ip: &str) -> Result<Option<(String, std::sync::Arc<rustls::ServerConfig>)>> {
    let (cert, key) = (v.get("tls-cert"), v.get("tls-key"));
    let Some(port) = v.number::<u16>("tls-bind-port")?.filter(|p| *p != 0) else {
        if cert.is_some() || key.is_some() || v.on("enable-lets-encrypt")? {
            bail!("must specify --tls-bind-port to use TLS");
        }
        return Ok(None);
    };
    let Some((cert, key)) = cert.zip(key) else {
        bail!("must specify --tls-cert and --tls-key, or --enable-lets-encrypt to use TLS");
    };
    if !v.text("external-url").starts_with("https://") {
        bail!("must specify HTTPS external-url to use TLS");
    }
    Ok(Some((address(bind_ip, port), tls::server(cert, key)?)))
}

fn ip(v: &Values, name: &str) -> Result<String> {
    let text = v.text(name);
    text.parse::<std::net::IpAddr>().map_err(|_| invalid(name, &format!("invalid IP: '{text}'")))?;
    Ok(text)
}

fn address(ip: &str, port: u16) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

fn users(list: &[String]) -> Result<HashMap<String, String>> {
    let pair = |entry: &String| {
        let (name, password) = entry
            .split_once(':')
            .ok_or_else(|| anyhow!("invalid argument for flag `--add-local-user': {entry}"))?;
        Ok((name.to_lowercase(), password.to_owned()))
    };
    list.iter().map(pair).collect()
}
