//! What the controller knows: one model with its machines, applications, units, relations and secrets.

mod app;
mod hook;
mod ids;
mod log;
mod machine;
mod relation;
mod secret;
mod unit;

pub use app::{Action, ActionStatus, Application, Resource};
pub use hook::{Hook, HookKind, Operation};
pub use ids::{hex, uuid, xid};
pub use log::{Call, HookRecord, LogLine};
pub use machine::{Machine, Network};
pub use relation::{Endpoint, Relation, Side};
pub use secret::{Consumer, Grant, Owner, Secret, rotation_period};
pub use unit::{HookFailure, Local, LocalRelation, Port, Status, Unit};

use crate::context::Context;
use crate::time::{Nanos, now};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Alive, going, or gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Life {
    /// In use.
    #[default]
    Alive,
    /// Asked to go; its hooks still run.
    Dying,
    /// Gone.
    Dead,
}

/// Which Juju is emulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flavour {
    /// The long-term release.
    Juju36,
    /// The newest.
    #[default]
    Juju40,
}

impl Flavour {
    /// The flavour of a version number.
    pub fn of(version: &str) -> Flavour {
        if version.starts_with('3') { Flavour::Juju36 } else { Flavour::Juju40 }
    }

    /// The version that stands for a flavour.
    pub fn version(self) -> &'static str {
        match self {
            Flavour::Juju36 => "3.6.27",
            Flavour::Juju40 => "4.0.15.1",
        }
    }
}

/// The one model of the controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Model {
    /// Name of the model.
    pub name: String,
    /// Its id.
    pub uuid: String,
    /// Which Juju.
    pub flavour: Flavour,
    /// The version that units see.
    pub version: String,
    /// `host:port` that units see.
    pub api_address: String,
    /// Settings of `juju model-config`.
    pub config: BTreeMap<String, String>,
    /// First wait before a failed hook runs again, in milliseconds.
    pub retry_base_ms: u64,
    /// Machines by number.
    pub machines: BTreeMap<String, Machine>,
    /// Applications by name.
    pub applications: BTreeMap<String, Application>,
    /// Units by name.
    pub units: BTreeMap<String, Unit>,
    /// Relations by number.
    pub relations: BTreeMap<u32, Relation>,
    /// Secrets by id.
    pub secrets: BTreeMap<String, Secret>,
    /// Actions and `juju exec` tasks by number.
    pub actions: BTreeMap<u64, Action>,
    /// Hooks that run now, by context id.
    pub contexts: BTreeMap<String, Context>,
    /// Every hook that ran.
    pub history: Vec<HookRecord>,
    /// The model's log.
    pub log: Vec<LogLine>,
    /// Tools that fail on demand.
    pub faults: Vec<Fault>,
    /// Where charms and resources are kept.
    pub blobs: PathBuf,
    /// Next relation number.
    pub next_relation: u32,
    /// Next operation or task number.
    pub next_task: u64,
    /// Next revision of a local charm, by charm name.
    pub revisions: BTreeMap<String, u32>,
    /// Next unit number by application; kept when the application goes.
    pub unit_numbers: BTreeMap<String, u32>,
    /// Next machine number.
    pub next_machine: u32,
    /// Next blob number.
    pub next_blob: u64,
    /// Contexts whose process is to be killed.
    pub kills: Vec<String>,
}

/// A tool that answers 1 on demand.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// On which unit.
    pub unit: String,
    /// Which tool.
    pub tool: String,
    /// How many calls are left to fail.
    pub times: u32,
    /// What it says.
    pub text: String,
}

impl Model {
    /// An empty model.
    pub fn new(version: &str, blobs: PathBuf) -> Model {
        Model {
            name: "test".into(),
            uuid: uuid(),
            flavour: Flavour::of(version),
            version: version.into(),
            api_address: "10.0.0.1:17070".into(),
            config: BTreeMap::new(),
            retry_base_ms: 5_000,
            machines: BTreeMap::new(),
            applications: BTreeMap::new(),
            units: BTreeMap::new(),
            relations: BTreeMap::new(),
            secrets: BTreeMap::new(),
            actions: BTreeMap::new(),
            contexts: BTreeMap::new(),
            history: Vec::new(),
            log: Vec::new(),
            faults: Vec::new(),
            blobs,
            next_relation: 0,
            next_task: 0,
            revisions: BTreeMap::new(),
            unit_numbers: BTreeMap::new(),
            next_machine: 0,
            next_blob: 0,
            kills: Vec::new(),
        }
    }

    /// Whether this is a 4.0.
    pub fn is_40(&self) -> bool {
        self.flavour == Flavour::Juju40
    }

    /// Whether `unit` leads its application.
    pub fn is_leader(&self, unit: &str) -> bool {
        let app = app_of(unit);
        self.applications.get(app).and_then(|app| app.leader.as_deref()) == Some(unit)
    }

    /// Units of an application, in order of their numbers.
    pub fn units_of<'a>(&'a self, app: &'a str) -> Vec<&'a Unit> {
        let mut units: Vec<_> = self.units.values().filter(move |unit| unit.app == app).collect();
        units.sort_by_key(|unit| number_of(&unit.name));
        units
    }

    /// Adds a line to the model's log.
    pub fn log(&mut self, entity: &str, level: &str, logger: &str, message: impl Into<String>) {
        let line = LogLine {
            at: now(),
            entity: entity.into(),
            level: level.into(),
            logger: logger.into(),
            message: message.into(),
        };
        self.log.push(line);
    }

    /// A model setting that is `true`, `false` or absent.
    pub fn flag(&self, key: &str, default: bool) -> bool {
        self.config.get(key).map_or(default, |value| value == "true")
    }

    /// How long a failed hook waits before its next try.
    pub fn retry_wait(&self, tries: u32) -> Nanos {
        let factor = 1u64 << tries.saturating_sub(1).min(16);
        u128::from((self.retry_base_ms * factor).min(300_000)) * 1_000_000
    }
}

/// `app` of `app/0`.
pub fn app_of(unit: &str) -> &str {
    unit.split('/').next().unwrap_or(unit)
}

/// 0 of `app/0`.
pub fn number_of(unit: &str) -> u32 {
    unit.split('/').nth(1).and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// `app-0` of `app/0`, as in directory names and tags.
pub fn tag_of(unit: &str) -> String {
    format!("unit-{}", unit.replace('/', "-"))
}
