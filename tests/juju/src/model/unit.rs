//! Units: what the controller knows, and what their agents remember.

use super::{Hook, Life};
use crate::time::{Nanos, now};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A status with its message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The word.
    pub word: String,
    /// The message.
    pub message: String,
    /// Since when.
    pub since: Nanos,
}

impl Status {
    /// A status from now on.
    pub fn new(word: &str, message: &str) -> Status {
        Status { word: word.into(), message: message.into(), since: now() }
    }
}

/// Ports that a unit opened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Port {
    /// tcp, udp or icmp.
    pub protocol: String,
    /// First.
    pub from: u32,
    /// Last.
    pub to: u32,
    /// For which endpoint; empty for all.
    pub endpoint: String,
}

/// A unit of an application.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unit {
    /// `app/0`.
    pub name: String,
    /// Its application.
    pub app: String,
    /// Its machine.
    pub machine: String,
    /// For a subordinate, the unit it goes with.
    pub principal: String,
    /// Alive, going or gone.
    pub life: Life,
    /// Workload status.
    pub status: Status,
    /// Whether the charm ever set one.
    pub status_set: bool,
    /// Agent status.
    pub agent: Status,
    /// Open ports.
    pub ports: BTreeSet<Port>,
    /// Of state-set.
    pub state: BTreeMap<String, String>,
    /// Actions and commands that wait.
    pub tasks: VecDeque<u64>,
    /// How often config-changed is still to run.
    pub config_pending: u32,
    /// When update-status is due.
    pub update_status_at: Nanos,
    /// Hooks to run at once, whatever the state (`juju emulate fire`).
    pub fired: VecDeque<Hook>,
    /// What `juju resolve` asked for: retry or not.
    pub resolved: Option<bool>,
    /// Whether a refresh may interrupt a hook error.
    pub force_upgrade: bool,
    /// What the agent remembers.
    pub local: Local,
}

/// What the unit's agent remembers between hooks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Local {
    /// Whether install has run.
    pub installed: bool,
    /// Whether start has run.
    pub started: bool,
    /// Whether stop has run.
    pub stopped: bool,
    /// Whether remove has run.
    pub removed: bool,
    /// `Application::modified` as of the last upgrade.
    pub modified: u64,
    /// Whether it was told that it leads.
    pub leader: bool,
    /// Of which leader it was told (3.6).
    pub leader_told: String,
    /// A boot for which start is still to run.
    pub rebooted: bool,
    /// The hook that must come next.
    pub queued: Option<Hook>,
    /// The hook that failed.
    pub failed: Option<HookFailure>,
    /// Its relations.
    pub relations: BTreeMap<u32, LocalRelation>,
}

/// A hook that failed and will be tried again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HookFailure {
    /// Which.
    pub hook: Hook,
    /// How often it failed.
    pub tries: u32,
    /// When it is tried next, if at all.
    pub retry_at: Option<Nanos>,
}

/// A relation as a unit's agent knows it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LocalRelation {
    /// Whether -created has run.
    pub created: bool,
    /// Whether it is over for this unit.
    pub broken: bool,
    /// Remote units that joined, with the version of their data.
    pub members: BTreeMap<String, u64>,
    /// Versions of application data that it was told of.
    pub apps: BTreeMap<String, u64>,
    /// The unit whose -changed must follow its -joined.
    pub changed_pending: Option<String>,
}

impl Unit {
    /// A unit that nothing has run for yet.
    pub fn new(name: &str, app: &str, machine: &str, principal: &str, modified: u64) -> Unit {
        Unit {
            name: name.into(),
            app: app.into(),
            machine: machine.into(),
            principal: principal.into(),
            life: Life::Alive,
            status: Status::new("waiting", "waiting for machine"),
            status_set: false,
            agent: Status::new("allocating", ""),
            ports: BTreeSet::new(),
            state: BTreeMap::new(),
            tasks: VecDeque::new(),
            config_pending: 1,
            update_status_at: 0,
            fired: VecDeque::new(),
            resolved: None,
            force_upgrade: false,
            local: Local { modified, ..Local::default() },
        }
    }
}
