//! Looks at the world and changes nothing in it.

pub mod containers;
mod dns;
mod machine;
mod network;
pub mod services;

use crate::config::{self, FolderMounts};
use crate::event::{Context, Event};
use crate::host::fs::Root;
use crate::juju::memory::{Memory, Stale};
use crate::juju::{read, tools};
use crate::parse::Moment;
use crate::view::gpu;
use crate::view::roles::roles;
use crate::view::secrets;
pub use network::{Connection, connections, lasting_link, linked};

use crate::world::{Concern, Record, Role, World};
use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::SystemTime;

/// Key of the record in Juju's state of the unit.
pub const RECORD: &str = "record";

/// What a hook carries from one look at the world to the next.
#[derive(Debug, Default)]
pub struct Session {
    /// What was read from Juju.
    pub memory: Rc<Memory>,
    /// The same as it was last written to the disk, by this hook or, as text, by one before it.
    pub kept: Kept,
    /// Secrets with new content, which Juju may yet take back: the next hook reads them again.
    pub replaced: BTreeSet<String>,
    /// What became stale with this event.
    pub stale: Stale,
    /// The record as it was when the hook began.
    pub committed: Option<Record>,
    /// The record with this hook's writes.
    pub record: Record,
    /// Options and leadership, which don't change in a hook.
    pub options: Option<(serde_json::Map<String, serde_json::Value>, bool)>,
    /// What could not be done.
    pub troubles: BTreeMap<Concern, String>,
    /// GPUs were looked at.
    pub looked: bool,
    /// What was started.
    pub started: BTreeSet<Role>,
}

/// What is on the disk of what was read from Juju; damaged or missing, it is read again.
#[derive(Debug)]
pub enum Kept {
    /// The file's text, as the hook found it.
    Text(String),
    /// This.
    Memory(Rc<Memory>),
}

impl Default for Kept {
    fn default() -> Self {
        Kept::Text(String::new())
    }
}

/// One look.
///
/// # Errors
/// A hook tool failed, or the machine can't be read.
pub fn observe(root: &Root, context: &Context, session: &mut Session) -> Result<World> {
    let (options, leader) = match session.options.take() {
        Some(known) => known,
        None => (tools::config_get()?, tools::is_leader()?),
    };
    session.options = Some((options.clone(), leader));
    if session.committed.is_none() {
        session.record = record()?;
        session.committed = Some(session.record.clone());
    }

    let parsed = config::parse(&options, &context.model_proxy);
    if parsed.is_ok() {
        let good = Some((options, context.model_proxy.clone()));
        if session.memory.good_options != good {
            Rc::make_mut(&mut session.memory).good_options = good;
        }
    }
    let (config, problems) = match parsed {
        Ok(config) => (Some(config), vec![]),
        Err(problems) => {
            let good = session.memory.good_options.as_ref();
            (good.and_then(|(options, proxy)| config::parse(options, proxy).ok()), problems)
        }
    };

    let mut world = World {
        unit: context.unit.clone(),
        now: now(),
        model: (context.model.clone(), context.model_uuid.clone()),
        machine: machine::machine(root, &session.memory)?,
        config,
        problems,
        leader,
        memory: session.memory.clone(),
        record: session.record.clone(),
        committed: session.committed.clone().unwrap_or_default(),
        troubles: session.troubles.clone(),
        looked: session.looked,
        started: session.started.clone(),
    };
    let wanted: Vec<String> = secrets::wanted(&world).into_iter().map(str::to_owned).collect();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    // Where there is nothing to read, nothing of it is copied.
    if read::moves_secrets(&session.memory, &session.stale, &wanted) {
        world.memory = Rc::default();
        read::secrets(Rc::make_mut(&mut session.memory), &session.stale, &wanted)?;
        world.memory = session.memory.clone();
    }
    // What this event made stale has been read; a later look in the same hook reads only what is new.
    session.stale = Stale::default();
    if let Some(config) = &world.config
        && config.folder_mounts != FolderMounts::None
        && !roles(&world).workers().is_empty()
    {
        world.machine.folders = machine::folders(root);
    }
    if world.config.as_ref().is_some_and(|config| config.dns_proxy) && root.is_machine() {
        world.machine.dns_port_taken = dns::port_taken(root)?;
    }
    if matches!(context.event, Event::Action(_)) {
        world.machine.devices = machine::devices(root)?;
        world.machine.gpu_test = machine::gpu_test(root)?;
        world.machine.hostname = machine::hostname(root)?;
        let devices = world.machine.devices.as_ref();
        world.machine.leases = devices.and_then(|d| machine::leases(root, gpu::policy(&world), d));
    }
    let mut links = session.memory.links.clone();
    network::probe(root, &mut world, &mut links)?;
    if links != session.memory.links {
        Rc::make_mut(&mut session.memory).links = links;
    }
    Ok(world)
}

/// A clock before 1970 is as good as one at its beginning.
fn now() -> Moment {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment::new(since.as_secs())
}

fn record() -> Result<Record> {
    match tools::state_get()?.get(RECORD) {
        None => Ok(Record::default()),
        Some(text) => serde_json::from_str(text).context("failed to read the record in Juju's state"),
    }
}
