//! Child processes: the one door to other programs. Each has a deadline, and its output is kept for the error.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

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

        let feeder = child.stdin.take().zip(self.stdin).map(|(mut pipe, input)| {
            // A child that ends without reading all of it is judged by its exit code.
            thread::spawn(move || drop(pipe.write_all(&input)))
        });
        let stdout = collect(child.stdout.take());
        let stderr = collect(child.stderr.take());
        let status = wait(&mut child, self.deadline).with_context(|| format!("failed to wait for {name}"))?;
        let Some(status) = status else {
            bail!("{name} did not end within {} s and was killed", self.deadline.as_secs());
        };
        if let Some(feeder) = feeder {
            drop(feeder.join());
        }
        Ok(Output {
            status,
            stdout: stdout.join().unwrap_or_default(),
            stderr: stderr.join().unwrap_or_default(),
        })
    }

    fn name(&self) -> String {
        let mut words = vec![self.command.get_program().to_string_lossy().into_owned()];
        words.extend(self.command.get_args().map(|a| a.to_string_lossy().into_owned()));
        words.join(" ")
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            drop(pipe.read_to_end(&mut bytes));
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// `None`: it overran and was killed.
fn wait(child: &mut Child, deadline: Duration) -> std::io::Result<Option<ExitStatus>> {
    let end = Instant::now() + deadline;
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// The end of a program's complaint: enough to understand, short enough for a log line.
pub fn tail(text: &str) -> &str {
    let text = text.trim();
    let start = text.len().saturating_sub(1024);
    let start = (start..text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(text.len());
    &text[start..]
}
