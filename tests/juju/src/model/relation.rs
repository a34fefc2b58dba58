//! Relations with their data bags.

use super::{Life, app_of};
use crate::time::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a side of a relation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// Offers the interface.
    Provides,
    /// Uses it.
    Requires,
    /// Both, within one application.
    Peer,
}

/// One end of a relation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Endpoint {
    /// The application.
    pub app: String,
    /// The endpoint's name.
    pub name: String,
    /// Its side.
    pub side: Side,
    /// Its interface.
    pub interface: String,
    /// Whether units see each other only on the same machine.
    pub container: bool,
}

/// Keys and values; a version that moves when they do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Bag {
    /// The data.
    pub data: BTreeMap<String, String>,
    /// Moves with each change.
    pub version: u64,
}

/// A relation between two applications, or among the units of one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Relation {
    /// Its number.
    pub id: u32,
    /// One end for peers, two otherwise.
    pub endpoints: Vec<Endpoint>,
    /// Alive or going.
    pub life: Life,
    /// When it was made.
    pub since: Nanos,
    /// Units in scope.
    pub members: Vec<String>,
    /// Bags by unit or application. A unit that left stays readable.
    pub bags: BTreeMap<String, Bag>,
    /// Leaders whose own write of the peer bag is still to be told to them.
    pub version: u64,
}

impl Relation {
    /// Whether it is among the units of one application.
    pub fn is_peer(&self) -> bool {
        self.endpoints.len() == 1
    }

    /// Whether units see each other only on the same machine.
    pub fn is_container(&self) -> bool {
        self.endpoints.iter().any(|end| end.container)
    }

    /// The application's own end.
    pub fn end_of(&self, app: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|end| end.app == app)
    }

    /// The other end as `app` sees it; for peers its own.
    pub fn other_end(&self, app: &str) -> &Endpoint {
        self.endpoints.iter().find(|end| end.app != app).unwrap_or(&self.endpoints[0])
    }

    /// `endpoint:7` as `app` sees it.
    pub fn key_for(&self, app: &str) -> String {
        let name = self.end_of(app).map_or("", |end| &end.name);
        format!("{name}:{}", self.id)
    }

    /// Units of the other side that are in scope, as `unit` sees it.
    pub fn counterparts(&self, unit: &str) -> Vec<&String> {
        let app = app_of(unit);
        let wanted = |member: &&String| {
            if self.is_peer() { member.as_str() != unit } else { app_of(member) != app }
        };
        self.members.iter().filter(wanted).collect()
    }

    /// The bag of a unit or application.
    pub fn bag(&self, owner: &str) -> Option<&Bag> {
        self.bags.get(owner)
    }

    /// Writes to a bag; an empty value deletes. The version moves only if something changed.
    pub fn write(&mut self, owner: &str, changes: &BTreeMap<String, String>) -> bool {
        let bag = self.bags.entry(owner.into()).or_default();
        let before = bag.data.clone();
        for (key, value) in changes {
            if value.is_empty() {
                bag.data.remove(key);
            } else {
                bag.data.insert(key.clone(), value.clone());
            }
        }
        let changed = bag.data != before;
        if changed {
            self.version += 1;
            bag.version = self.version;
        }
        changed
    }
}
