//! What happened: log lines and the history of hooks.

use super::Operation;
use crate::time::Nanos;
use serde::{Deserialize, Serialize};

/// A line of `juju debug-log`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogLine {
    /// When.
    pub at: Nanos,
    /// Who: a unit or the controller.
    pub entity: String,
    /// DEBUG, INFO, WARNING, …
    pub level: String,
    /// Which logger.
    pub logger: String,
    /// What.
    pub message: String,
}

/// One hook or action that ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HookRecord {
    /// Which unit.
    pub unit: String,
    /// The hook's or action's name.
    pub name: String,
    /// What ran, in full.
    pub operation: Operation,
    /// When it began.
    pub start: Nanos,
    /// How long it took.
    pub duration_ms: u64,
    /// Its exit code.
    pub rc: i32,
    /// What the controller did not accept at the end.
    pub refused: Option<String>,
    /// The hook tools that it called.
    pub calls: Vec<Call>,
}

/// One call of a hook tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Which tool.
    pub tool: String,
    /// Its arguments, without what came by standard input.
    pub args: Vec<String>,
    /// Its exit code.
    pub rc: i32,
}
