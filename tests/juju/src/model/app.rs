//! Applications, their resources and actions.

use super::{Life, Status};
use crate::charm::Charm;
use crate::time::Nanos;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A deployed charm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Application {
    /// Its name.
    pub name: String,
    /// Its charm.
    pub charm: Charm,
    /// The charm archive.
    pub blob: String,
    /// The local revision of the charm.
    pub revision: u32,
    /// Moves with each refresh and attach-resource.
    pub modified: u64,
    /// Options that were set.
    pub config: BTreeMap<String, Value>,
    /// Status set with `--application`.
    pub status: Option<Status>,
    /// Set with application-version-set.
    pub workload_version: String,
    /// Whether it is exposed.
    pub exposed: bool,
    /// Whether it may read credentials.
    pub trusted: bool,
    /// The unit that leads.
    pub leader: Option<String>,
    /// Of leader-set (3.6).
    pub leader_settings: BTreeMap<String, String>,
    /// Resources that were attached.
    pub resources: BTreeMap<String, Resource>,
    /// Alive or going.
    pub life: Life,
    /// When it was made.
    pub since: Nanos,
}

impl Application {
    /// A charm deployed under a name, without units.
    pub fn new(name: &str, charm: Charm) -> Application {
        Application {
            name: name.into(),
            charm,
            blob: String::new(),
            revision: 0,
            modified: 0,
            config: BTreeMap::new(),
            status: None,
            workload_version: String::new(),
            exposed: false,
            trusted: false,
            leader: None,
            leader_settings: BTreeMap::new(),
            resources: BTreeMap::new(),
            life: Life::Alive,
            since: crate::time::now(),
        }
    }

    /// Options as a unit sees them: what was set, or the default; `null` for neither.
    pub fn settings(&self) -> BTreeMap<String, Value> {
        let value = |name: &String, default: &Value| self.config.get(name).unwrap_or(default).clone();
        self.charm.options.iter().map(|(name, option)| (name.clone(), value(name, &option.default))).collect()
    }
}

/// An attached file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resource {
    /// Where it is kept.
    pub blob: String,
    /// When it was attached.
    pub at: Nanos,
}

/// How far an action is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActionStatus {
    /// Waits.
    Pending,
    /// Runs.
    Running,
    /// Ended well.
    Completed,
    /// Ended badly.
    Failed,
    /// Never ran: its parameters were refused.
    Error,
    /// Killed.
    Aborted,
}

impl ActionStatus {
    /// Juju's word for it.
    pub fn word(self) -> &'static str {
        match self {
            ActionStatus::Pending => "pending",
            ActionStatus::Running => "running",
            ActionStatus::Completed => "completed",
            ActionStatus::Failed => "failed",
            ActionStatus::Error => "error",
            ActionStatus::Aborted => "aborted",
        }
    }

    /// Whether nothing more will come.
    pub fn is_final(self) -> bool {
        !matches!(self, ActionStatus::Pending | ActionStatus::Running)
    }
}

/// An action or commands to run on a unit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Action {
    /// The task's number.
    pub id: u64,
    /// The operation's number.
    pub operation: u64,
    /// Which unit.
    pub unit: String,
    /// The action's name; `juju-exec` for commands.
    pub name: String,
    /// Parameters, defaults filled in.
    pub params: Value,
    /// The commands of `juju-exec`.
    pub script: String,
    /// Asked for on the machine itself: no action, only commands in the unit's context.
    #[serde(default)]
    pub local: bool,
    /// How far it is.
    pub status: ActionStatus,
    /// Whether it is to be killed.
    pub cancelled: bool,
    /// Why it failed.
    pub message: String,
    /// What it set.
    pub results: BTreeMap<String, Value>,
    /// Its exit code.
    pub rc: i32,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
    /// Lines of action-log.
    pub log: Vec<(Nanos, String)>,
    /// When it was asked for.
    pub enqueued: Nanos,
    /// When it began.
    pub started: Option<Nanos>,
    /// When it ended.
    pub finished: Option<Nanos>,
}
