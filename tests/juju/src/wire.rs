//! What controller, machine agents, hook tools and clients say to each other: one JSON value per line.

use crate::model::Network;
use crate::tools::{ToolReply, ToolRequest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};

/// A hook, action or commands to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The context's id.
    pub context: String,
    /// Which unit.
    pub unit: String,
    /// The charm archive to have unpacked.
    pub blob: String,
    /// The charm's URL, `local:probe-0`.
    pub charm: String,
    /// Whether a new charm is unpacked now (install, upgrade-charm).
    pub unpack: bool,
    /// `hooks/NAME` or `actions/NAME`; empty for commands.
    pub dispatch: String,
    /// Commands for a shell.
    pub script: String,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// The tools that this Juju has.
    pub tools: Vec<String>,
    /// Version of the tools.
    pub version: String,
}

/// From an agent to the controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum FromAgent {
    /// First of all.
    Hello {
        /// The machine's number.
        machine: String,
        /// Differs after each boot.
        boot_id: String,
        /// Host name.
        hostname: String,
        /// Where the agent keeps its files.
        data_dir: String,
        /// The context that runs, after a reconnection.
        running: Option<String>,
    },
    /// The machine's addresses, at the beginning and when they change.
    Addresses {
        /// The interface by which the controller is reached.
        network: Network,
        /// All.
        all: Vec<String>,
    },
    /// A hook tool was called.
    Call {
        /// To tell replies apart.
        seq: u64,
        /// The call.
        request: ToolRequest,
    },
    /// A line that a hook printed.
    Line {
        /// The context.
        context: String,
        /// Whether it came from standard error.
        error: bool,
        /// The line.
        line: String,
    },
    /// A hook has ended.
    Done {
        /// The context.
        context: String,
        /// Exit code.
        rc: i32,
        /// What ended it.
        message: String,
        /// Standard output (actions and commands).
        stdout: String,
        /// Standard error (actions and commands).
        stderr: String,
    },
    /// `juju-exec` on the machine.
    Exec {
        /// To tell replies apart.
        seq: u64,
        /// Which unit.
        unit: String,
        /// The commands.
        script: String,
    },
    /// In place of a greeting: send this blob and hang up.
    Fetch {
        /// Which.
        blob: String,
    },
}

/// From the controller to an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ToAgent {
    /// Run this.
    Run(Job),
    /// The answer to a call or to `juju-exec`.
    Reply {
        /// Of which call.
        seq: u64,
        /// The answer.
        reply: ToolReply,
    },
    /// A unit is gone: take its files away.
    RemoveUnit {
        /// Which.
        unit: String,
    },
    /// Boot the machine.
    Reboot,
    /// Kill what runs in this context.
    Kill {
        /// Which.
        context: String,
    },
}

/// From a hook tool to the agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToolCall {
    /// JUJU_CONTEXT_ID.
    pub context: String,
    /// The tool's name.
    pub tool: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its working directory.
    pub cwd: String,
    /// Standard input, if the arguments ask for it.
    pub stdin: Option<String>,
}

/// From a client to the controller: a command line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Command {
    /// The verb and its arguments.
    pub argv: Vec<String>,
    /// The client's working directory.
    pub cwd: String,
    /// Standard input, where an argument is `-`.
    pub stdin: Option<String>,
}

/// From the controller to a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Printed {
    /// On standard output.
    Out(String),
    /// On standard error.
    Err(String),
    /// The end, with the exit code.
    End(i32),
}

/// Writes one value on one line.
pub fn send(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    out.write_all(&line)
}

/// Reads one value from one line; nothing at the end.
pub fn receive<T: DeserializeOwned>(input: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}
