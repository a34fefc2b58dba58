//! Child processes: the one door to other programs. Each has a deadline, and its output is kept for the error.

use super::talk::talk;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// What a program left behind.
#[derive(Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Output {
    /// The exit code; a signal counts as 128 + its number, as in a shell.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }
}

/// A program about to be run. Arguments may be seen by every user of the machine: secrets go through [`Cmd::stdin`].
#[derive(Debug)]
pub struct Cmd {
    command: Command,
    stdin: Option<Vec<u8>>,
    deadline: Duration,
}

/// Looks `program` up on the PATH unless it is a path, and gives it 60 s.
pub fn cmd(program: impl AsRef<OsStr>) -> Cmd {
    Cmd { command: Command::new(program), stdin: None, deadline: Duration::from_secs(60) }
}

impl Cmd {
    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable of the child.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// What the child reads from its standard input.
    pub fn stdin(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(input.into());
        self
    }

    /// After how long it is killed.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Runs it and gives its standard output.
    ///
    /// # Errors
    /// It can't be started, overran its deadline, or ended with anything but 0; the last of its standard error is told.
    pub fn run(self) -> Result<String> {
        let name = self.name();
        let out = self.output()?;
        if !out.status.success() {
            bail!("{name} failed ({}): {}", out.code(), tail(&out.stderr));
        }
        Ok(out.stdout)
    }

    /// Runs it, whatever its exit code.
    ///
    /// # Errors
    /// It can't be started or overran its deadline.
    pub fn output(mut self) -> Result<Output> {
        let name = self.name();
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command.stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        let mut child = self.command.spawn().with_context(|| format!("failed to start {name}"))?;
        let told = talk(&mut child, self.stdin.unwrap_or_default(), self.deadline);
        let Some(told) = told.with_context(|| format!("failed to wait for {name}"))? else {
            bail!("{name} did not end within {} s and was killed", self.deadline.as_secs());
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Output { status: told.status, stdout: text(told.stdout), stderr: text(told.stderr) })
    }

    fn name(&self) -> String {
        let mut words = vec![self.command.get_program().to_string_lossy().into_owned()];
        words.extend(self.command.get_args().map(|a| a.to_string_lossy().into_owned()));
        words.join(" ")
    }
}

/// The end of a program's complaint: enough to understand, short enough for a log line.
pub fn tail(text: &str) -> &str {
    let text = text.trim();
    let start = text.len().saturating_sub(1024);
    let start = (start..text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(text.len());
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn sh(script: &str) -> Cmd {
        cmd("sh").args(["-c", script])
    }

    #[test]
    fn what_it_says_and_how_it_ends() {
        let out = sh("echo out; echo err >&2; exit 3").output().unwrap();
        assert_eq!((out.code(), out.stdout.as_str(), out.stderr.as_str()), (3, "out\n", "err\n"));
        assert_eq!(sh("kill -9 $$").output().unwrap().code(), 128 + 9);
        let why = sh("echo reason >&2; exit 1").run().unwrap_err().to_string();
        assert!(why.ends_with("failed (1): reason"), "{why}");
    }

    #[test]
    fn more_than_a_pipe_holds_goes_both_ways() {
        let input = "0123456789abcdef".repeat(64 * 1024);
        assert_eq!(cmd("cat").stdin(input.clone()).run().unwrap(), input);
        assert_eq!(sh("cat >&2").stdin(input.clone()).output().unwrap().stderr, input);
        assert_eq!(sh("exit 0").stdin(input).output().unwrap().code(), 0, "nobody read it");
    }

    #[test]
    fn neither_one_that_hangs_nor_one_that_it_leaves_behind_is_waited_for() {
        let before = Instant::now();
        let why = sh("exec sleep 600").deadline(Duration::from_millis(50)).output().unwrap_err().to_string();
        assert!(why.ends_with("did not end within 0 s and was killed"), "{why}");
        assert_eq!(sh("sleep 60 & echo done").run().unwrap(), "done\n");
        assert!(before.elapsed() < Duration::from_secs(30));
    }
}
