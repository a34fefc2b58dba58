//! What can run on a unit, and where each has its files.

use crate::parse::UnitName;
use crate::paths;
use serde::{Deserialize, Serialize};

/// The services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// `concourse-web.service`
    Web,
    /// `concourse-worker.service`
    Worker,
    /// `concourse-worker-untagged.service`
    Untagged,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 3] = [Role::Web, Role::Worker, Role::Untagged];

    /// Its systemd unit.
    pub fn unit(self) -> &'static str {
        match self {
            Role::Web => "concourse-web.service",
            Role::Worker => "concourse-worker.service",
            Role::Untagged => "concourse-worker-untagged.service",
        }
    }

    /// The unit's file.
    pub fn unit_file(self) -> &'static str {
        match self {
            Role::Web => paths::WEB_UNIT,
            Role::Worker => paths::WORKER.unit,
            Role::Untagged => paths::UNTAGGED.unit,
        }
    }

    /// How the records that the unit writes at its start are named, below [`paths::RUN`].
    pub fn record(self) -> &'static str {
        match self {
            Role::Web => "web",
            Role::Worker => "worker",
            Role::Untagged => "worker-untagged",
        }
    }

    /// The record of what it was started with.
    pub fn started_record(self) -> String {
        format!("{}/{}.started", paths::RUN, self.record())
    }

    /// What it is called in a sentence.
    pub fn noun(self) -> &'static str {
        match self {
            Role::Web => "web node",
            Role::Worker => "worker",
            Role::Untagged => "untagged worker",
        }
    }
}

/// The workers that a unit can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Worker {
    /// The one that every worker unit has, with its tags.
    Main,
    /// The one beside it, without tags.
    Untagged,
}

impl From<Worker> for Role {
    fn from(worker: Worker) -> Role {
        match worker {
            Worker::Main => Role::Worker,
            Worker::Untagged => Role::Untagged,
        }
    }
}

impl Worker {
    /// Both.
    pub const ALL: [Worker; 2] = [Worker::Main, Worker::Untagged];

    /// Its service.
    pub fn role(self) -> Role {
        self.into()
    }

    /// Its files.
    pub fn paths(self) -> &'static paths::WorkerPaths {
        match self {
            Worker::Main => &paths::WORKER,
            Worker::Untagged => &paths::UNTAGGED,
        }
    }

    /// The name under which it registers.
    pub fn name(self, unit: &UnitName) -> String {
        let [main, untagged] = unit.worker_names();
        match self {
            Worker::Main => main,
            Worker::Untagged => untagged,
        }
    }
}
