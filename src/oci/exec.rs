//! What each process of an equipped container gets: variables and supplementary groups (PURE).
//!
//! runc starts a process from its own JSON alone and merges nothing from config.json. So `create` notes in the bundle
//! what it gave, as an annotation: it comes into being with the edit itself, and it is there for whoever starts a
//! process later (`fly hijack` too), after a restart of everything.

use super::edit::{push_new, variables};
use super::json::{Tree, WrongType};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The annotation's name.
pub const ANNOTATION: &str = "org.concourse-ci.machine.gpus";

/// What was given to a container, as far as its processes are concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Equipment {
    /// Ids of the units.
    pub units: Vec<String>,
    /// Variables that say what was given: they replace the task's.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables that the task may have set otherwise.
    #[serde(default)]
    pub defaults: BTreeMap<String, String>,
    /// Groups that own nodes which are not for everybody.
    #[serde(default)]
    pub gids: Vec<u32>,
    /// The units are the container's own: where the table of leases is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leases: Option<PathBuf>,
}

impl Equipment {
    /// What `create` noted in this config.json; `None`: the container was not equipped.
    pub fn noted(config: &str) -> Option<Self> {
        // Checks are by far the most processes; their config.json is not even parsed.
        if !config.contains(ANNOTATION) {
            return None;
        }
        Self::of(&mut Tree::parse(config).ok()?)
    }

    /// The same of a tree.
    pub fn of(config: &mut Tree<'_>) -> Option<Self> {
        let note = config.get("annotations").ok()??.get(ANNOTATION).ok()??.string()?;
        serde_json::from_str(&note).ok()
    }

    /// Notes it in a config.json.
    ///
    /// # Errors
    /// The annotations are no object.
    pub fn note(&self, config: &mut Tree<'_>) -> Result<(), WrongType> {
        let note = serde_json::to_string(self).map_err(|_| WrongType)?;
        config.get_or("annotations", &json!({}))?.get_or(ANNOTATION, &Value::Null)?.set(&Value::from(note));
        Ok(())
    }

    /// Gives it to a process: `process` of config.json, or the file of `runc exec --process`.
    ///
    /// # Errors
    /// It is no process.
    pub fn give(&self, process: &mut Tree<'_>) -> Result<(), WrongType> {
        if !self.env.is_empty() || !self.defaults.is_empty() {
            let env = process.get_or("env", &json!([]))?;
            for (name, value) in &self.env {
                set_variable(env, name, value)?;
            }
            let there = variables(env);
            for (name, value) in
                self.defaults.iter().filter(|(name, _)| there.iter().all(|(n, _)| n != *name))
            {
                env.push(&Value::from(format!("{name}={value}")))?;
            }
        }
        if !self.gids.is_empty() {
            let gids = process.get_or("user", &json!({}))?.get_or("additionalGids", &json!([]))?;
            self.gids.iter().try_for_each(|gid| push_new(gids, &json!(gid)))?;
        }
        Ok(())
    }
}

/// Sets a variable wherever it stands: readers differ in which of two they take.
fn set_variable(env: &mut Tree<'_>, name: &str, value: &str) -> Result<(), WrongType> {
    let entry = Value::from(format!("{name}={value}"));
    let mut found = false;
    for element in env.elements()? {
        let is = element.string().is_some_and(|text| text.split_once('=').is_some_and(|(n, _)| n == name));
        if is {
            element.set(&entry);
            found = true;
        }
    }
    if found { Ok(()) } else { env.push(&entry) }
}
