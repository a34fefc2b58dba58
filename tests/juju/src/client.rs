//! The client: sends its command line to the controller and prints what comes back.

use crate::wire::{Command, Printed, receive, send};
use anyhow::{Context as _, Result, bail};
use std::env;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

/// Where the controller listens unless JUJU_EMULATED_SOCKET says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/emulated-juju.sock";

/// Runs one command; returns the exit code.
pub fn main(argv: Vec<String>) -> Result<i32> {
    let socket = env::var("JUJU_EMULATED_SOCKET").unwrap_or_else(|_| DEFAULT_SOCKET.into());
    let mut stream = UnixStream::connect(&socket).with_context(|| format!("no controller at {socket}"))?;
    let mut stdin = None;
    if argv.iter().any(|arg| arg == "-" || arg == "--file=-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        stdin = Some(text);
    }
    let cwd = env::current_dir()?.display().to_string();
    send(&mut stream, &Command { argv, cwd, stdin })?;
    let mut reader = BufReader::new(stream);
    while let Some(printed) = receive::<Printed>(&mut reader)? {
        match printed {
            Printed::Out(text) => io::stdout().write_all(text.as_bytes())?,
            Printed::Err(text) => io::stderr().write_all(text.as_bytes())?,
            Printed::End(rc) => return Ok(rc),
        }
    }
    bail!("the controller has hung up")
}
