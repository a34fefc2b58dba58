//! A hook context: what a running hook sees, and what it has asked for but not got yet.

use crate::model::{Call, Operation, Port, Secret};
use crate::time::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Keys and values.
pub type Bag = BTreeMap<String, String>;

/// A hook, action or command that runs now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Context {
    /// `pa/0-install-<32 digits>`.
    pub id: String,
    /// Which unit.
    pub unit: String,
    /// What runs.
    pub operation: Operation,
    /// When it began.
    pub start: Nanos,
    /// The relation it is about.
    pub relation: Option<u32>,
    /// The remote unit it is about; empty for none.
    pub remote_unit: String,
    /// The remote application it is about.
    pub remote_app: String,
    /// Version of the remote data as of the hook's beginning.
    pub version: u64,
    /// Members by relation, as this unit's agent knows them.
    pub members: BTreeMap<u32, BTreeSet<String>>,
    /// Remote bags, kept from their first reading on.
    pub cache: BTreeMap<u32, BTreeMap<String, Option<Bag>>>,
    /// What was written.
    pub pending: Pending,
    /// Whether `is-leader` has said no: it stays no.
    pub not_leader: bool,
    /// Results of an action so far.
    pub results: BTreeMap<String, serde_json::Value>,
    /// Why the action failed, if it said so.
    pub failure: Option<String>,
    /// The tools that were called.
    pub calls: Vec<Call>,
}

/// Changes that are made only when the hook ends well.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Pending {
    /// Bags by relation and owner; an empty value deletes.
    pub bags: BTreeMap<u32, BTreeMap<String, Bag>>,
    /// The unit's state after this hook, if it was touched.
    pub state: Option<BTreeMap<String, String>>,
    /// The unit's ports after this hook, if they were touched.
    pub ports: Option<BTreeSet<Port>>,
    /// Secrets in the order in which they were touched.
    pub secrets: Vec<SecretChange>,
    /// The machine is to boot after this hook.
    pub reboot: bool,
}

/// A change of a secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum SecretChange {
    /// A new one.
    Add(Box<Secret>),
    /// New content or details.
    Set {
        /// Which.
        id: String,
        /// New content.
        content: Option<BTreeMap<String, String>>,
        /// New details.
        details: SecretDetails,
    },
    /// A right to read.
    Grant {
        /// Which.
        id: String,
        /// Application or unit.
        target: String,
        /// By which relation.
        relation: u32,
    },
    /// The right taken back.
    Revoke {
        /// Which.
        id: String,
        /// Application or unit; none for all of a relation.
        target: Option<String>,
        /// By which relation; none for all.
        relation: Option<u32>,
    },
    /// Gone, wholly or one revision.
    Remove {
        /// Which.
        id: String,
        /// Which revision; all if none.
        revision: Option<u32>,
    },
    /// The unit now follows the newest revision of its own secret.
    TrackLatest {
        /// Which.
        id: String,
    },
}

/// Details that secret-add and secret-set may give.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SecretDetails {
    /// The owner's label.
    pub label: Option<String>,
    /// The description.
    pub description: Option<String>,
    /// The rotation policy.
    pub rotate: Option<String>,
    /// When it expires.
    pub expires: Option<Nanos>,
}
