//! Running dispatch (or commands) with exactly the environment of a hook.

use crate::operation::Outcome;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How long output may still come after the process has ended (a daemon may hold the pipe).
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// How often a silent process is looked at (one that closes its output is noticed at once).
const POLL: Duration = Duration::from_millis(50);

/// What is to be run in a charm directory.
pub enum What {
    /// A program of the charm.
    Program(PathBuf),
    /// Nothing: the charm does not have this hook.
    Nothing,
}

/// Finds the program for `hooks/NAME` or `actions/NAME`, as the agent does.
pub fn find(charm_dir: &Path, dispatch: &str) -> Result<What, String> {
    if !charm_dir.join("metadata.yaml").exists() {
        return Err("charm missing from disk".into());
    }
    for candidate in ["dispatch", dispatch] {
        let path = charm_dir.join(candidate);
        match fs::metadata(&path) {
            Err(_) => continue,
            Ok(found) if !found.is_file() || found.permissions().mode() & 0o111 == 0 => {
                return Err(format!("exec: {:?}: permission denied", path.display().to_string()));
            }
            Ok(_) => return Ok(What::Program(path)),
        }
    }
    if dispatch.starts_with("actions/") {
        return Err(format!("action not implemented: {dispatch}"));
    }
    Ok(What::Nothing)
}

/// Starts a program in the charm directory with nothing but `env`.
pub fn start(program: &Path, args: &[&str], cwd: &Path, env: &[(String, String)]) -> std::io::Result<Child> {
    Command::new(program)
        .args(args)
        .current_dir(cwd)
        .env_clear()
        .envs(env.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
}

/// Waits for a child; each line goes to `line(from standard error, text)` as it comes.
pub fn wait(mut child: Child, mut line: impl FnMut(bool, &str)) -> Outcome {
    let (sender, lines) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        follow(stdout, false, sender.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        follow(stderr, true, sender.clone());
    }
    drop(sender);
    let mut outcome = Outcome::default();
    let mut take = |(error, text): (bool, Vec<u8>), outcome: &mut Outcome| {
        let text = String::from_utf8_lossy(&text);
        line(error, text.trim_end_matches('\n'));
        if error { outcome.stderr.push_str(&text) } else { outcome.stdout.push_str(&text) }
    };
    let status = loop {
        match lines.recv_timeout(POLL) {
            Ok(item) => take(item, &mut outcome),
            Err(mpsc::RecvTimeoutError::Disconnected) => break child.wait(),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if let Ok(Some(status)) = child.try_wait() {
                    break Ok(status);
                }
            }
        }
    };
    let deadline = Instant::now() + OUTPUT_GRACE;
    while let Ok(item) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        take(item, &mut outcome);
    }
    match status {
        Ok(status) => (outcome.rc, outcome.message) = ended(status),
        Err(error) => (outcome.rc, outcome.message) = (1, error.to_string()),
    }
    outcome
}

fn ended(status: ExitStatus) -> (i32, String) {
    match (status.code(), status.signal()) {
        (Some(0), _) => (0, String::new()),
        (Some(code), _) => (code, format!("exit status {code}")),
        (None, Some(9)) => (-1, "signal: killed".into()),
        (None, Some(15)) => (-1, "signal: terminated".into()),
        (None, signal) => (-1, format!("signal: {}", signal.unwrap_or_default())),
    }
}

fn follow(pipe: impl Read + Send + 'static, error: bool, sender: mpsc::Sender<(bool, Vec<u8>)>) {
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        loop {
            let mut line = Vec::new();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if sender.send((error, line)).is_err() => return,
                Ok(_) => {}
            }
        }
    });
}
