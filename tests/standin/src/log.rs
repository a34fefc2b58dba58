//! Log lines in the form of Concourse's own logger: one JSON object per line on standard output.

use crate::time::now_rfc3339;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};

/// How grave a line is.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub enum Level {
    /// Detail.
    Debug = 0,
    /// What happened.
    Info = 1,
    /// What went wrong.
    Error = 2,
    /// What ends the program.
    Fatal = 3,
}

impl Level {
    /// The four words the real program takes; anything else is an error there too.
    pub fn parse(word: &str) -> Option<Level> {
        Some(match word {
            "debug" => Level::Debug,
            "info" => Level::Info,
            "error" => Level::Error,
            "fatal" => Level::Fatal,
            _ => return None,
        })
    }

    fn word(self) -> &'static str {
        ["debug", "info", "error", "fatal"][self as usize]
    }
}

static MINIMUM: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// Lines below this level are dropped.
pub fn set_minimum(level: Level) {
    MINIMUM.store(level as u8, Ordering::Relaxed);
}

/// A place in the program that logs: `worker.beacon-runner.beacon`.
#[derive(Clone)]
pub struct Log {
    source: String,
    path: String,
    data: Map<String, Value>,
}

impl Log {
    /// The logger of a component (`web`, `atc`, `tsa`, `worker`).
    pub fn new(component: &str) -> Log {
        Log { source: component.into(), path: component.into(), data: Map::new() }
    }

    /// A part of this place; its messages begin with the longer path.
    pub fn session(&self, part: &str) -> Log {
        Log { path: format!("{}.{part}", self.path), ..self.clone() }
    }

    /// The same place with something that every line repeats.
    pub fn with(&self, key: &str, value: impl Into<Value>) -> Log {
        let mut log = self.clone();
        log.data.insert(key.into(), value.into());
        log
    }

    /// A line of detail.
    pub fn debug(&self, message: &str, data: Value) {
        self.line(Level::Debug, message, data);
    }

    /// A line about what happened.
    pub fn info(&self, message: &str, data: Value) {
        self.line(Level::Info, message, data);
    }

    /// A line about what went wrong.
    pub fn error(&self, message: &str, error: impl std::fmt::Display) {
        self.line(Level::Error, message, json!({"error": error.to_string()}));
    }

    fn line(&self, level: Level, message: &str, data: Value) {
        if (level as u8) < MINIMUM.load(Ordering::Relaxed) {
            return;
        }
        let mut all = self.data.clone();
        if let Value::Object(more) = data {
            all.extend(more);
        }
        let line = json!({
            "timestamp": now_rfc3339(), "level": level.word(), "source": self.source,
            "message": format!("{}.{message}", self.path), "data": all,
        });
        // A closed standard output is no reason to stop.
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }
}
