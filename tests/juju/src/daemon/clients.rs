//! Talking with clients: a command line in, what it prints out.

use super::Daemon;
use crate::cli;
use crate::wire::{Command, Printed, receive, send};
use anyhow::{Context as _, Result};
use std::fs;
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;

/// Serves clients from a thread, until the process ends.
pub fn listen(daemon: &Arc<Daemon>, socket: &Path) -> Result<()> {
    // Who finds the socket can connect to it: it is put there, over what an earlier controller left, when it listens.
    let unready = socket.with_added_extension("new");
    let _ = fs::remove_file(&unready);
    let listener =
        UnixListener::bind(&unready).with_context(|| format!("cannot listen on {}", socket.display()))?;
    fs::set_permissions(&unready, fs::Permissions::from_mode(0o600))?;
    fs::rename(&unready, socket)?;
    let daemon = Arc::clone(daemon);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let daemon = Arc::clone(&daemon);
            thread::spawn(move || serve(&daemon, stream));
        }
    });
    Ok(())
}

fn serve(daemon: &Daemon, stream: UnixStream) {
    let Ok(writer) = stream.try_clone() else { return };
    let Ok(Some(command)) = receive::<Command>(&mut BufReader::new(stream)) else { return };
    // A client that has hung up does not read the rest.
    let rc = cli::run(&daemon.shared, &command, &mut |printed| drop(send(&mut (&writer), &printed)));
    let _ = send(&mut (&writer), &Printed::End(rc));
}
