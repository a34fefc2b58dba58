//! The containerd that a worker starts, and the client tool that talks to it.

use super::config::Config;
use crate::log::Log;
use crate::web::die_with_parent;
use anyhow::{Context, Result, bail};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where containerd listens; the same path as the real worker's.
pub const SOCKET: &str = "/run/containerd/containerd.sock";
const NAMESPACE: &str = "concourse";
const PATIENCE: Duration = Duration::from_secs(60);

const CONFIG: &str = "version = 2\noom_score = -999\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.snapshotter.v1.aufs\", \
    \"io.containerd.snapshotter.v1.btrfs\", \"io.containerd.snapshotter.v1.zfs\", \"io.containerd.snapshotter.v1.devmapper\"]\n\n[debug]\n  format = \"json\"\n";

/// Puts the packed tree's `bin` first in PATH, as the real worker does before it starts anything.
pub fn own_bin_first() {
    if let Some(bin) = crate::version::asset("bin") {
        let path = std::env::var("PATH").unwrap_or_default();
        // SAFETY: called before any other thread exists.
        unsafe { std::env::set_var("PATH", format!("{}:{path}", bin.display())) };
    }
}

/// Starts containerd and waits until its socket is there. Like the real worker this takes a socket file that was
/// already there for a ready containerd.
pub fn start(config: &Config, log: &Log) -> Result<Child> {
    let root = config.work_dir.join("containerd");
    std::fs::create_dir_all(&root).with_context(|| format!("mkdir {}", root.display()))?;
    let file = match &config.containerd_config {
        Some(file) => PathBuf::from(file),
        None => {
            let file = config.work_dir.join("containerd.toml");
            std::fs::write(&file, CONFIG)
                .with_context(|| format!("write default containerd config: {}", file.display()))?;
            file
        }
    };
    let mut command = Command::new(&config.containerd);
    command
        .arg(format!("--address={SOCKET}"))
        .arg(format!("--root={}", root.display()))
        .arg(format!("--config={}", file.display()));
    command.arg(format!("--log-level={}", config.containerd_log_level)).process_group(0);
    die_with_parent(&mut command, libc::SIGKILL);
    let mut child = command.spawn().with_context(|| format!("exec: \"{}\"", config.containerd))?;
    let begin = Instant::now();
    while !Path::new(SOCKET).exists() {
        if let Some(status) = child.try_wait()? {
            bail!("containerd exited: {status}");
        }
        if begin.elapsed() > PATIENCE {
            bail!("timed out trying to start process");
        }
        log.info(
            "failed-to-connect-to-containerd",
            serde_json::json!({"error": format!("dial unix {SOCKET}: connect: no such file or directory")}),
        );
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(child)
}

/// The first thing that is asked of containerd.
pub fn list_containers() -> Result<Vec<String>> {
    if let Err(e) = UnixStream::connect(SOCKET) {
        let why = if e.kind() == std::io::ErrorKind::ConnectionRefused {
            "connection refused".into()
        } else {
            e.to_string()
        };
        bail!(
            "list containers: connection error: desc = \"transport: Error while dialing: dial unix {SOCKET}: connect: {why}\""
        );
    }
    let text = ctr(&["containers", "ls", "-q"]).context("list containers")?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Runs containerd's client tool; gives what it prints.
pub fn ctr(args: &[&str]) -> Result<String> {
    let output = Command::new("ctr")
        .args(["--address", SOCKET, "--namespace", NAMESPACE])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .context("ctr")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}", said.trim().trim_start_matches("ctr: "));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
