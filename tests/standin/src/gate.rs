//! The worker's side of the gate: an OpenSSH client that checks the host key and shows the worker's key.

use crate::log::Log;
use crate::opts::{Opt, Values, invalid, many, one};
use crate::pem;
use crate::protocol::{FromWeb, FromWorker};
use crate::web::die_with_parent;
use anyhow::{Context, Result, anyhow, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The options of `worker`, `land-worker` and `retire-worker` that say where the gates are.
pub const OPTIONS: &[Opt] = &[many("tsa-host"), many("tsa-public-key"), one("tsa-worker-private-key")];

/// Where the gates are, which keys they may have, and the worker's own key.
pub struct GateOptions {
    hosts: Vec<String>,
    host_keys: Vec<String>,
    private_key: String,
}

/// The error after which the real worker's text says that no gate answered.
pub const ALL_UNREACHABLE: &str = "all worker SSH gateways unreachable";

impl GateOptions {
    /// Checks everything that was said.
    pub fn new(v: &Values) -> Result<GateOptions> {
        let private_key = v.required("tsa-worker-private-key")?.to_owned();
        pem::check(&private_key).map_err(|e| invalid("tsa-worker-private-key", &format!("{e:#}")))?;
        let mut hosts = v.list("tsa-host");
        if hosts.is_empty() {
            hosts.push("127.0.0.1:2222".into());
        }
        let mut host_keys = Vec::new();
        for path in v.list("tsa-public-key") {
            let text = std::fs::read_to_string(&path).map_err(|e| {
                invalid("tsa-public-key", &format!("failed to read authorized keys: open {path}: {e}"))
            })?;
            let keys = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
            host_keys.extend(keys.filter_map(|l| {
                Some(l.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).filter(|k| k.contains(' '))
            }));
        }
        Ok(GateOptions { hosts, host_keys, private_key })
    }

    /// Opens a connection through one of the gates, chosen by chance.
    pub fn dial(&self, log: &Log) -> Result<Connection> {
        let log = log.session("dial");
        let (host, greeting) = self.reach(&log)?;
        let (user, session) = parse_greeting(&greeting).ok_or_else(|| {
            handshake(&format!("{host} is not a stand-in's TSA: it greets with '{greeting}'"))
        })?;
        let dir = scratch_dir()?;
        let result = self.ssh(&dir, &host, user, session);
        if result.is_err() {
            let _ = std::fs::remove_dir_all(&dir);
        }
        result
    }

    /// The first gate that answers, in random order, with its greeting line.
    fn reach(&self, log: &Log) -> Result<(String, String)> {
        let mut hosts = self.hosts.clone();
        for i in (1..hosts.len()).rev() {
            hosts.swap(i, (random()? % (i as u64 + 1)) as usize);
        }
        for host in hosts {
            match greeting(&host) {
                Ok(greeting) => return Ok((host, greeting)),
                Err(e) => log.error("failed-to-connect-to-tsa", format!("dial tcp {host}: {e}")),
            }
        }
        log.error("failed-to-connect-to-any-tsa", ALL_UNREACHABLE);
        bail!(ALL_UNREACHABLE)
    }

    fn ssh(&self, dir: &Path, host: &str, user: &str, session: u16) -> Result<Connection> {
        let (name, port) = host
            .rsplit_once(':')
            .ok_or_else(|| anyhow!("dial tcp: address {host}: missing port in address"))?;
        let (key, known) = (dir.join("key"), dir.join("known_hosts"));
        pem::copy_for_openssh(&self.private_key, &key)?;
        pem::write(&known, &self.host_keys.iter().map(|k| format!("tsa {k}\n")).collect::<String>(), 0o600)?;
        let mut command = Command::new("ssh");
        command
            .args(["-F", "/dev/null", "-W", &format!("127.0.0.1:{session}"), "-l", user, "-p", port])
            .arg("-i")
            .arg(&key);
        for option in [
            "BatchMode=yes",
            "StrictHostKeyChecking=yes",
            "HostKeyAlias=tsa",
            "GlobalKnownHostsFile=/dev/null",
            "UpdateHostKeys=no",
            "CheckHostIP=no",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
            "PreferredAuthentications=publickey",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=12",
            "ConnectTimeout=10",
            "LogLevel=ERROR",
            &format!("UserKnownHostsFile={}", known.display()),
        ] {
            command.args(["-o", option]);
        }
        command
            .arg(name.trim_matches(['[', ']']))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        die_with_parent(&mut command, libc::SIGKILL);
        let mut child = command.spawn().context("failed to start ssh (apt install openssh-client)")?;
        let (stdin, stdout) = (child.stdin.take().context("stdin")?, child.stdout.take().context("stdout")?);
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if serde_json::from_str::<FromWeb>(&line)
                    .map_err(|_| ())
                    .and_then(|m| sender.send(m).map_err(|_| ()))
                    .is_err()
                {
                    break;
                }
            }
        });
        Ok(Connection { child, stdin, messages, dir: dir.to_owned() })
    }
}

/// An open connection.
pub struct Connection {
    child: Child,
    stdin: ChildStdin,
    /// What the web says; disconnected when the connection is over.
    pub messages: Receiver<FromWeb>,
    dir: PathBuf,
}

impl Connection {
    /// Says something to the web.
    pub fn send(&mut self, message: &FromWorker) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        Ok(self.stdin.write_all(&line)?)
    }

    /// Why the connection ended, in the real worker's words.
    pub fn failure(&mut self) -> anyhow::Error {
        let _ = self.child.kill();
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        if said.contains("Permission denied") {
            handshake(
                "ssh: handshake failed: ssh: unable to authenticate, attempted methods [none publickey], no supported methods remain",
            )
        } else if said.contains("Host key verification failed") {
            handshake("ssh: handshake failed: remote host public key mismatch")
        } else if said.trim().is_empty() {
            anyhow!("wait: remote command exited without exit status or exit signal")
        } else {
            handshake(&said.trim().replace('\n', "; "))
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn handshake(why: &str) -> anyhow::Error {
    anyhow!("failed to establish SSH connection with gateway: {why}")
}

/// The line that an ssh server says first; the stand-in's names the account and the port behind the gate.
fn greeting(host: &str) -> Result<String> {
    let mut last = anyhow!("no such host");
    for address in host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
            Ok(stream) => {
                stream.set_read_timeout(Some(Duration::from_secs(10)))?;
                let mut line = String::new();
                BufReader::new(stream.take(300)).read_line(&mut line)?;
                return Ok(line.trim().to_owned());
            }
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => {
                last = anyhow!("connect: connection refused")
            }
            Err(e) => last = e.into(),
        }
    }
    Err(last)
}

fn parse_greeting(line: &str) -> Option<(&str, u16)> {
    line.strip_prefix("SSH-2.0-").filter(|l| l.contains("concourse-stand-in"))?;
    let field = |name: &str| line.split_whitespace().find_map(|w| w.strip_prefix(name));
    Some((field("user=")?, field("session=")?.parse().ok()?))
}

/// A private folder for one connection; those of processes that were killed are removed.
fn scratch_dir() -> Result<PathBuf> {
    const NAME: &str = "concourse-stand-in-ssh-";
    let base = std::env::temp_dir();
    for entry in std::fs::read_dir(&base).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(NAME).and_then(|n| n.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let dir = base.join(format!("{NAME}{}-{:x}", std::process::id(), random()?));
    std::fs::DirBuilder::new().mode(0o700).create(&dir)?;
    Ok(dir)
}

fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Runs one command that needs no conversation (`land-worker`, `retire-worker`, `delete-worker`).
pub fn command(options: &GateOptions, log: &Log, message: &FromWorker) -> Result<()> {
    let mut connection = options.dial(log).inspect_err(|e| log.error("failed-to-dial", format!("{e:#}")))?;
    let sent = connection.send(message);
    match connection.messages.recv() {
        Ok(FromWeb::Exit { status: 0, .. }) => Ok(()),
        Ok(FromWeb::Exit { message, .. }) => {
            log.session("run").error("command-failed", format!("Process exited with status 1: {message}"));
            bail!("Process exited with status 1")
        }
        _ => {
            drop(sent);
            let e = connection.failure();
            log.error("failed-to-dial", format!("{e:#}"));
            Err(e)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse_greeting;

    #[test]
    fn greetings() {
        let line = "SSH-2.0-OpenSSH_9.2p1 concourse-stand-in user=concourse session=40123";
        assert_eq!(parse_greeting(line), Some(("concourse", 40123)));
        assert_eq!(parse_greeting("SSH-2.0-Go"), None);
        assert_eq!(parse_greeting("SSH-2.0-OpenSSH_9.2p1 Debian-2"), None);
    }
}
