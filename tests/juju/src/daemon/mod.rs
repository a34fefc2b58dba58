//! The controller as a daemon: machine agents over TCP, clients over a unix socket.

mod agents;
mod clients;
mod schedule;
mod store;

use crate::model::Model;
use crate::shared::Shared;
use crate::wire::{ToAgent, send};
use anyhow::{Context as _, Result};
use std::collections::HashMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How the controller is started.
pub struct Settings {
    /// Where clients connect.
    pub socket: PathBuf,
    /// Where agents connect.
    pub listen: String,
    /// Where the model, charms and resources are kept.
    pub state_dir: PathBuf,
    /// Which Juju.
    pub version: String,
    /// First wait before a failed hook runs again.
    pub retry_base: Duration,
    /// Name of the model.
    pub model_name: String,
}

/// The daemon's parts.
pub(crate) struct Daemon {
    /// The model.
    pub shared: Arc<Shared>,
    /// Connections to agents by machine.
    pub agents: Mutex<HashMap<String, Arc<Mutex<TcpStream>>>>,
}

impl Daemon {
    /// Says something to a machine's agent; if that fails the agent will come back and greet.
    pub fn tell(&self, machine: &str, message: &ToAgent) {
        let agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(stream) = agents.get(machine).cloned() else { return };
        drop(agents);
        let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = send(&mut *stream, message) {
            eprintln!("juju-controller: machine {machine}: {error}");
        }
    }
}

/// Runs the controller until the process is ended.
pub fn main(settings: &Settings) -> Result<()> {
    let blobs = settings.state_dir.join("blobs");
    fs::create_dir_all(&blobs).context("cannot make the state directory")?;
    // Secrets are kept there.
    fs::set_permissions(&settings.state_dir, fs::Permissions::from_mode(0o700))?;
    let mut model = match store::load(&settings.state_dir)? {
        Some(model) => model,
        None => Model::new(&settings.version, blobs),
    };
    model.retry_base_ms = u64::try_from(settings.retry_base.as_millis()).unwrap_or(5_000);
    model.name = settings.model_name.clone();
    let listener = TcpListener::bind(&settings.listen)
        .with_context(|| format!("cannot listen on {}", settings.listen))?;
    model.api_address = listener.local_addr()?.to_string();
    let daemon = Arc::new(Daemon { shared: Arc::new(Shared::new(model)), agents: Mutex::default() });
    clients::listen(&daemon, &settings.socket)?;
    let scheduler = Arc::clone(&daemon);
    thread::spawn(move || schedule::run(&scheduler));
    let keeper = Arc::clone(&daemon);
    let state_dir = settings.state_dir.clone();
    thread::spawn(move || store::keep(&keeper.shared, &state_dir));
    eprintln!(
        "juju-controller: agents at {}, clients at {}",
        listener.local_addr()?,
        settings.socket.display()
    );
    for stream in listener.incoming().flatten() {
        let daemon = Arc::clone(&daemon);
        thread::spawn(move || agents::serve(&daemon, stream));
    }
    Ok(())
}
