//! The hook tools as the charm calls them: one question to the agent, one answer.

use crate::tools::ToolReply;
use crate::wire::{ToolCall, receive, send};
use std::env;
use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

/// Runs the tool of this name and returns the exit code.
pub fn main(tool: &str, args: Vec<String>) -> i32 {
    if args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--help" || arg == "-h") {
        println!("Usage: {tool} [options]");
        return 0;
    }
    let (Ok(context), Ok(socket)) = (env::var("JUJU_CONTEXT_ID"), env::var("JUJU_AGENT_SOCKET_ADDRESS"))
    else {
        eprintln!("ERROR JUJU_CONTEXT_ID not set");
        return 1;
    };
    match ask(&socket, context, tool, args) {
        Ok(reply) => show(&reply),
        Err(error) => {
            eprintln!("ERROR connection to agent failed: {error}");
            1
        }
    }
}

fn ask(socket: &str, context: String, tool: &str, args: Vec<String>) -> io::Result<ToolReply> {
    let wants_stdin =
        args.windows(2).any(|pair| pair == ["--file", "-"]) || args.iter().any(|arg| arg == "--file=-");
    let mut stdin = None;
    if wants_stdin {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        stdin = Some(text);
    }
    let cwd = env::current_dir()?.display().to_string();
    let mut stream = UnixStream::connect(socket)?;
    send(&mut stream, &ToolCall { context, tool: tool.into(), args, cwd, stdin })?;
    receive(&mut BufReader::new(stream))?.ok_or_else(|| io::Error::other("no answer"))
}

fn show(reply: &ToolReply) -> i32 {
    eprint!("{}", reply.stderr);
    let written = match &reply.output {
        Some(path) => fs::write(path, &reply.stdout),
        None => io::stdout().write_all(reply.stdout.as_bytes()),
    };
    match written {
        Ok(()) => reply.rc,
        Err(error) => {
            eprintln!("ERROR {error}");
            1
        }
    }
}
