//! `juju-exec` on a machine: commands in a unit's hook context.

use crate::tools::ToolReply;
use crate::wire::{ToolCall, receive, send};
use anyhow::{Context as _, Result, bail};
use std::env;
use std::fs;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

fn agents_dir() -> PathBuf {
    let root = env::var("JUJU_EMULATED_ROOT").unwrap_or_else(|_| "/".into());
    PathBuf::from(root).join("var/lib/juju/agents")
}

/// Units on this machine, as `unit-app-0`.
fn units() -> Vec<String> {
    let found = fs::read_dir(agents_dir()).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.starts_with("unit-"));
    names.sort();
    names
}

/// Runs `juju-exec [-u UNIT] [UNIT] COMMANDS`; returns the exit code.
pub fn main(args: Vec<String>) -> Result<i32> {
    if let Some(context) = env::var("JUJU_CONTEXT_ID").ok().filter(|context| !context.is_empty()) {
        bail!("juju-exec cannot be called from within a hook, have context {context:?}");
    }
    let mut words = Vec::new();
    let mut unit = None;
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-u" | "--unit" => unit = args.next().filter(|unit| !unit.is_empty()),
            "--" => words.extend(args.by_ref()),
            _ => words.push(arg),
        }
    }
    let known = units();
    let tag = |name: &str| if name.starts_with("unit-") { name.into() } else { crate::model::tag_of(name) };
    if unit.is_none() && words.len() > 1 && known.contains(&tag(&words[0])) {
        unit = Some(words.remove(0));
    }
    let tag = match (&unit, known.as_slice()) {
        (Some(unit), _) => tag(unit),
        (None, [only]) => only.clone(),
        _ => bail!("unit name not specified, and there is not exactly one unit here"),
    };
    if words.is_empty() {
        bail!("missing commands");
    }
    let name = tag.trim_start_matches("unit-");
    let name = name.rsplit_once('-').map_or(name.to_string(), |(app, number)| format!("{app}/{number}"));
    let socket = agents_dir().join(&tag).join("run.socket");
    let mut stream = UnixStream::connect(&socket).with_context(|| format!("unit {name:?} is not here"))?;
    let call =
        ToolCall { context: name, tool: "juju-exec".into(), args: words, cwd: "/".into(), stdin: None };
    send(&mut stream, &call)?;
    let reply: ToolReply = receive(&mut BufReader::new(stream))?.context("no answer from the agent")?;
    print!("{}", reply.stdout);
    eprint!("{}", reply.stderr);
    Ok(reply.rc)
}
