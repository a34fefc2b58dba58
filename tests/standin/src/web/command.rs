//! What a worker may ask of the TSA by a plain `ssh HOST COMMAND`: the ssh server starts this instead of the command.

use crate::protocol::{FromWeb, FromWorker, Worker};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

/// The argument by which the ssh server starts it; the session port follows.
pub const ARGUMENT: &str = "--standin-tsa-command";

/// Carries out the command that the client asked for, about the worker that it describes on standard input.
pub fn run(args: &[String]) -> Result<()> {
    let port: u16 = args.first().context("no session port")?.parse()?;
    let asked = std::env::var("SSH_ORIGINAL_COMMAND").unwrap_or_default();
    let worker = || -> Result<Worker> { Ok(serde_json::from_reader(std::io::stdin())?) };
    let message = match asked.split(' ').next().unwrap_or_default() {
        "land-worker" => FromWorker::LandWorker { worker: worker()? },
        "retire-worker" => FromWorker::RetireWorker { worker: worker()? },
        "delete-worker" => FromWorker::DeleteWorker { worker: worker()? },
        other => bail!("unknown command: {other}"),
    };
    let mut session = TcpStream::connect(("127.0.0.1", port)).context("the web node has gone")?;
    let mut line = serde_json::to_vec(&message)?;
    line.push(b'\n');
    session.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(session).read_line(&mut answer)?;
    match serde_json::from_str(&answer).context("the web node has hung up")? {
        FromWeb::Exit { status: 0, .. } => Ok(()),
        FromWeb::Exit { message, .. } => bail!(message),
        other => bail!("unexpected answer: {other:?}"),
    }
}
