//! The agent's side of the hook tools: a unix socket, one call per connection.

use crate::tools::{ToolReply, ToolRequest};
use crate::wire::{ToolCall, receive, send};
use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;

/// Answers calls.
pub type Handler = Arc<dyn Fn(ToolRequest) -> ToolReply + Send + Sync>;

/// Serves a unit's agent.socket from a thread, until the process ends.
pub fn serve(path: &Path, handler: Handler) -> std::io::Result<()> {
    // A socket that an earlier agent left cannot be bound again.
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let handler = Arc::clone(&handler);
            thread::spawn(move || answer(stream, &handler));
        }
    });
    Ok(())
}

fn answer(stream: UnixStream, handler: &Handler) {
    let Ok(writer) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    while let Ok(Some(call)) = receive::<ToolCall>(&mut reader) {
        let reply = handler(with_files(call));
        // A tool that was killed does not wait for its answer.
        if send(&mut (&writer), &reply).is_err() {
            return;
        }
    }
}

/// Reads the files that a call names, as the agent does.
fn with_files(call: ToolCall) -> ToolRequest {
    let mut files = BTreeMap::new();
    if let Some(stdin) = call.stdin {
        files.insert("-".into(), stdin);
    }
    let mut named: Vec<String> = Vec::new();
    let mut args = call.args.iter().peekable();
    while let Some(arg) = args.next() {
        if arg == "--file" {
            named.extend(args.peek().map(|name| (*name).clone()));
        } else if let Some(name) = arg.strip_prefix("--file=") {
            named.push(name.into());
        } else if let Some((_, name)) = arg.split_once("#file=") {
            named.push(name.into());
        }
    }
    for name in named.into_iter().filter(|name| name != "-") {
        if let Ok(text) = fs::read_to_string(Path::new(&call.cwd).join(&name)) {
            files.insert(name, text);
        }
    }
    ToolRequest { context: call.context, tool: call.tool, args: call.args, files }
}
