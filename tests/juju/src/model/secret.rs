//! Secrets, who may read them and which revision they see.

use super::app_of;
use crate::time::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// To whom a secret belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owner {
    /// The operator (`juju add-secret`).
    Model,
    /// An application; its leader manages it.
    App(String),
    /// One unit.
    Unit(String),
}

/// A right to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// An application or a unit.
    pub target: String,
    /// The relation that it hangs on; none for the model's own secrets.
    pub relation: Option<u32>,
}

/// What a unit has of a secret.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Consumer {
    /// The unit's own label.
    pub label: String,
    /// The revision that it sees.
    pub revision: u32,
    /// The newest revision that it was told of.
    pub told: u32,
}

/// A secret with all its revisions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Secret {
    /// 20 characters.
    pub id: String,
    /// Whose it is.
    pub owner: Owner,
    /// The owner's label; the name of a user's secret.
    pub label: String,
    /// Description.
    pub description: String,
    /// `never`, `hourly`, …; empty until the hook that made it has ended.
    pub rotate: String,
    /// When it is to be rotated.
    pub rotates: Option<Nanos>,
    /// When it expires.
    pub expires: Option<Nanos>,
    /// Whether its owner was told that it expired.
    pub expired_told: u32,
    /// When it was made.
    pub created: Nanos,
    /// When it changed.
    pub updated: Nanos,
    /// Content by revision.
    pub revisions: BTreeMap<u32, BTreeMap<String, String>>,
    /// Revisions that nobody uses and whose owner was told so.
    pub obsolete_told: Vec<u32>,
    /// Who else may read it.
    pub grants: Vec<Grant>,
    /// Units that have read it.
    pub consumers: BTreeMap<String, Consumer>,
}

impl Secret {
    /// A new one with revision 1.
    pub fn new(id: &str, owner: Owner, content: BTreeMap<String, String>, at: Nanos) -> Secret {
        Secret {
            id: id.into(),
            owner,
            label: String::new(),
            description: String::new(),
            rotate: "never".into(),
            rotates: None,
            expires: None,
            expired_told: 0,
            created: at,
            updated: at,
            revisions: BTreeMap::from([(1, content)]),
            obsolete_told: Vec::new(),
            grants: Vec::new(),
            consumers: BTreeMap::new(),
        }
    }

    /// The newest revision.
    pub fn latest(&self) -> u32 {
        self.revisions.keys().next_back().copied().unwrap_or(1)
    }

    /// Whether `unit` is the owner or one of the owner's units.
    pub fn belongs_to(&self, unit: &str) -> bool {
        match &self.owner {
            Owner::Model => false,
            Owner::App(app) => app == app_of(unit),
            Owner::Unit(owner) => owner == unit,
        }
    }

    /// Adds a revision unless the content is the same.
    pub fn add_revision(&mut self, content: BTreeMap<String, String>, at: Nanos) -> bool {
        let latest = self.latest();
        if self.revisions.get(&latest) == Some(&content) {
            return false;
        }
        self.revisions.insert(latest + 1, content);
        self.updated = at;
        true
    }
}

/// How long until the next rotation, by policy.
pub fn rotation_period(policy: &str) -> Option<Nanos> {
    const HOUR: Nanos = 3_600_000_000_000;
    let hours = match policy {
        "hourly" => 1,
        "daily" => 24,
        "weekly" => 24 * 7,
        "monthly" => 24 * 30,
        "quarterly" => 24 * 91,
        "yearly" => 24 * 365,
        _ => return None,
    };
    Some(HOUR * hours)
}
