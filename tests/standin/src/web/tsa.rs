//! The gate for workers: OpenSSH's own server, which checks host key and worker keys for real. It gives a shell to
//! nobody; all it lets a worker do is reach this program's session port on the loopback address, and start what speaks
//! to that port for it: see `command.rs`.

use super::Web;
use super::command::ARGUMENT;
use crate::log::Log;
use crate::pem;
use anyhow::{Context, Result, anyhow, bail};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PATIENT: [&str; 2] = ["-o", "PerSourcePenalties=no"];

/// The running gate.
pub struct Tsa {
    /// The ssh server.
    pub child: Child,
    dir: PathBuf,
    source: Option<String>,
    log: Log,
}

/// Starts the ssh server in front of a session port.
pub fn start(web: &Web, session_port: u16) -> Result<Tsa> {
    let log = Log::new("tsa");
    let dir = runtime_dir()?;
    let (host_key, keys, config) =
        (dir.join("host_key"), dir.join("authorized_keys"), dir.join("sshd_config"));
    pem::copy_for_openssh(&web.config.host_key, &host_key)?;
    let mut tsa_keys = String::new();
    if let Some(path) = &web.config.authorized_keys {
        tsa_keys = read_keys(path)?;
    }
    if tsa_keys.is_empty() {
        log.info("starting-tsa-without-authorized-keys", json!({}));
    }
    pem::write(&keys, &tsa_keys, 0o644)?;
    let (user, root) = login_user()?;
    if root {
        // Its absence would stop an ssh server that runs as root.
        std::fs::create_dir_all("/run/sshd")?;
    }
    let text = format!(
        "ListenAddress {ip}\nPort {port}\nHostKey {host_key}\nHostKeyAlgorithms rsa-sha2-512,rsa-sha2-256\nAuthorizedKeysFile {keys}\n\
         VersionAddendum concourse-stand-in user={user} session={session_port}\nAllowUsers {user}\nPermitOpen 127.0.0.1:{session_port}\n\
         AllowTcpForwarding local\nMaxSessions 1\nForceCommand exec {program} {ARGUMENT} {session_port}\nPermitTTY no\nX11Forwarding no\nAllowAgentForwarding no\nPermitTunnel no\n\
         AllowStreamLocalForwarding no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPubkeyAuthentication yes\nUsePAM no\n\
         StrictModes no\nPermitRootLogin no\nPidFile none\nUseDNS no\nLoginGraceTime 20\nMaxStartups 1000\nClientAliveInterval 5\n\
         ClientAliveCountMax 6\nLogLevel VERBOSE\n",
        program = std::env::current_exe()?.display(),
        ip = web.config.tsa_ip,
        port = web.config.tsa_port,
        host_key = host_key.display(),
        keys = keys.display(),
    );
    pem::write(&config, &text, 0o644)?;
    let sshd = find_sshd()?;
    let mut command = Command::new(&sshd);
    // Newer servers shut out an address that failed a few times; the real gate doesn't. Older ones don't know the option.
    let probe = Command::new(&sshd).arg("-tf").arg(&config).args(PATIENT).output().context("sshd")?;
    if probe.status.success() {
        command.args(PATIENT);
    }
    command
        .args(["-D", "-e", "-f"])
        .arg(&config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    die_with_parent(&mut command, libc::SIGTERM);
    let mut child = command.spawn().context("failed to start sshd")?;
    let lines = BufReader::new(child.stderr.take().context("sshd's output")?).lines();
    let address = format!("{}:{}", web.config.tsa_ip, web.config.tsa_port);
    let mut lines = lines.map_while(Result::ok);
    let mut said = Vec::new();
    loop {
        match lines.next() {
            Some(line) if line.contains("Server listening") => break,
            Some(line) => said.push(line),
            None => bail!("failed to listen on {address}: {}", said.join("; ")),
        }
    }
    log.info("listening", json!({"address": address, "stand-in": "OpenSSH"}));
    let tsa = Tsa { child, dir, source: web.config.authorized_keys.clone(), log: log.clone() };
    std::thread::spawn(move || lines.for_each(|line| translate(&log, &line)));
    Ok(tsa)
}

/// What sshd says about a refused worker, in the real one's words.
fn translate(log: &Log, line: &str) {
    let refused = [
        "Connection closed by authenticating user",
        "Connection closed by invalid user",
        "Connection reset by",
        "Failed publickey",
        "Too many authentication",
    ];
    if refused.iter().any(|r| line.contains(r)) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let remote = words
            .windows(3)
            .find(|w| w[1] == "port")
            .map(|w| format!("{}:{}", w[0], w[2]))
            .unwrap_or_default();
        let error = "[ssh: no auth passed yet, unknown public key]";
        log.session("connection").with("remote", remote).info("handshake-failed", json!({"error": error}));
    } else {
        log.debug("sshd", json!({"line": line}));
    }
}

impl Tsa {
    /// Reads the workers' keys again; connections that exist stay.
    pub fn reload(&self) {
        self.log.info("reloading-config", json!({}));
        let Some(path) = &self.source else { return };
        let result = read_keys(path).and_then(|keys| {
            let fresh = self.dir.join("authorized_keys.new");
            pem::write(&fresh, &keys, 0o644)?;
            Ok(std::fs::rename(fresh, self.dir.join("authorized_keys"))?)
        });
        if let Err(e) = result {
            self.log.error("failed to reload authorized keys file : %s", format!("{e:#}"));
        }
    }

    /// Ends the ssh server and removes its files.
    pub fn stop(&mut self) {
        // SAFETY: a plain kill(2) of our own child.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The keys of a file, one per line, without options and comments; what is no key is left out, as in the real one.
fn read_keys(path: &str) -> Result<String> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| anyhow!("failed to read authorized keys: open {path}: {e}"))?;
    Ok(text.lines().filter_map(key_of_line).map(|k| k + "\n").collect())
}

fn key_of_line(line: &str) -> Option<String> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let found = words.windows(2).find(|w| {
        (w[0].starts_with("ssh-") || w[0].starts_with("ecdsa-") || w[0].starts_with("sk-"))
            && w[1].starts_with("AAAA")
    });
    found.map(|w| format!("{} {}", w[0], w[1]))
}

/// The account that workers log in to. An ssh server that isn't root can only let in its own user; one that is
/// root takes an account that can't be locked and owns nothing.
fn login_user() -> Result<(String, bool)> {
    // SAFETY: geteuid has no preconditions.
    let uid = unsafe { libc::geteuid() };
    if uid == 0 {
        return Ok(("nobody".into(), true));
    }
    let passwd = std::fs::read_to_string("/etc/passwd").context("/etc/passwd")?;
    let mine = passwd
        .lines()
        .map(|l| l.split(':').collect::<Vec<_>>())
        .find(|f| f.get(2) == Some(&uid.to_string().as_str()));
    Ok((
        mine.and_then(|f| f.first().map(|s| s.to_string()))
            .ok_or_else(|| anyhow!("uid {uid} has no entry in /etc/passwd"))?,
        false,
    ))
}

fn find_sshd() -> Result<PathBuf> {
    let bundled = crate::version::asset("bin/sshd");
    let places = ["/usr/sbin/sshd", "/usr/local/sbin/sshd"].map(PathBuf::from);
    bundled
        .into_iter()
        .chain(places)
        .find(|p| p.exists())
        .ok_or_else(|| anyhow!("the stand-in's TSA needs OpenSSH's server (apt install openssh-server)"))
}

fn runtime_dir() -> Result<PathBuf> {
    let base = std::env::var_os("RUNTIME_DIRECTORY")
        .map_or_else(std::env::temp_dir, |d| Path::new(&d).to_path_buf());
    let dir = base.join(format!("concourse-stand-in-tsa-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir)?;
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755))?;
    Ok(dir)
}

/// Makes a child get a signal when the thread that started it ends.
pub fn die_with_parent(command: &mut Command, signal: i32) {
    // SAFETY: prctl is async-signal-safe and touches only the new process.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, signal);
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::key_of_line;

    #[test]
    fn keys_lose_options_and_comments() {
        assert_eq!(key_of_line("  ssh-rsa AAAAB3 worker/0 "), Some("ssh-rsa AAAAB3".into()));
        assert_eq!(
            key_of_line("restrict,command=\"x y\" ssh-ed25519 AAAAC3 c"),
            Some("ssh-ed25519 AAAAC3".into())
        );
        assert_eq!(key_of_line("# ssh-rsa AAAA"), None);
        assert_eq!(key_of_line("rubbish"), None);
    }
}
