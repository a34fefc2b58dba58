//! Typed access to what Juju hands over; collects the problems on the way.

use super::Problem;
use crate::parse::Invalid;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// `config.yaml`: every option with its default, null if it has none.
static DECLARED: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        options: BTreeMap<String, Declared>,
    }
    #[derive(Deserialize)]
    struct Declared {
        #[serde(default)]
        default: Value,
    }
    let file: File = serde_yaml::from_str(include_str!("../../config.yaml"))
        .expect("config.yaml is compiled in, and a test parses it");
    file.options.into_iter().map(|(name, declared)| (name, declared.default)).collect()
});

/// The options that are set, and the problems found so far.
pub(super) struct Options<'a> {
    set: &'a Map<String, Value>,
    problems: Vec<Problem>,
}

impl<'a> Options<'a> {
    pub(super) fn new(set: &'a Map<String, Value>) -> Self {
        Self { set, problems: Vec::new() }
    }

    fn value(&self, option: &str) -> &'a Value {
        debug_assert!(DECLARED.contains_key(option), "{option} is not in config.yaml");
        // Juju fills in the defaults: the file is parsed for options only that were kept before an upgrade brought more.
        self.set(option).or_else(|| DECLARED.get(option)).unwrap_or(&Value::Null)
    }

    fn set(&self, option: &str) -> Option<&'a Value> {
        self.set.get(option).filter(|v| !v.is_null())
    }

    /// A string as it is; empty if it is neither set nor has a default.
    pub(super) fn text(&mut self, option: &str) -> Option<String> {
        match self.value(option) {
            Value::String(text) => Some(text.clone()),
            Value::Null => Some(String::new()),
            _ => self.problem(option, "has the wrong type; give a string"),
        }
    }

    /// A string without the white space around it, parsed.
    pub(super) fn parsed<T>(
        &mut self,
        option: &str,
        parse: impl FnOnce(&str) -> Result<T, Invalid>,
    ) -> Option<T> {
        let text = self.text(option)?;
        self.keep(option, parse(text.trim()))
    }

    /// The same, where an empty string says that the option is not set.
    pub(super) fn optional<T>(
        &mut self,
        option: &str,
        parse: impl FnOnce(&str) -> Result<T, Invalid>,
    ) -> Option<Option<T>> {
        self.parsed(option, |text| if text.is_empty() { Ok(None) } else { parse(text).map(Some) })
    }

    /// The same, of an option without a default: Juju does not tell it while it is not set.
    pub(super) fn without_default<T>(
        &mut self,
        option: &str,
        parse: impl FnOnce(&str) -> Result<T, Invalid>,
    ) -> Option<Option<T>> {
        debug_assert!(DECLARED.get(option).is_some_and(Value::is_null), "{option} has a default");
        if self.set(option).is_none() { Some(None) } else { self.optional(option, parse) }
    }

    pub(super) fn number(&mut self, option: &str) -> Option<i64> {
        match self.value(option).as_i64() {
            None => self.problem(option, "is not a whole number in range; give one"),
            number => number,
        }
    }

    pub(super) fn flag(&mut self, option: &str) -> Option<bool> {
        match self.value(option).as_bool() {
            None => self.problem(option, "has the wrong type; use true or false"),
            flag => flag,
        }
    }

    /// Notes a problem; `None`, as everywhere here, stands for an option that has one.
    fn problem<T>(&mut self, option: &str, sentence: &str) -> Option<T> {
        self.problems.push(Problem::new(option, sentence));
        None
    }

    pub(super) fn keep<T>(&mut self, option: &str, result: Result<T, Invalid>) -> Option<T> {
        result.map_err(|why| self.problems.push(Problem::new(option, why))).ok()
    }

    pub(super) fn keep_all<T>(&mut self, result: Result<T, Vec<Problem>>) -> Option<T> {
        result.map_err(|problems| self.problems.extend(problems)).ok()
    }

    /// The config, if nothing was wrong.
    pub(super) fn finish<T>(self, config: Option<T>) -> Result<T, Vec<Problem>> {
        match config {
            Some(config) if self.problems.is_empty() => Ok(config),
            _ => Err(self.problems),
        }
    }
}

/// A comma list: its parts in order, each once; an empty text has none.
pub(super) fn list<T: PartialEq>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, Invalid>,
) -> Result<Vec<T>, Invalid> {
    let mut parts = Vec::new();
    if text.is_empty() {
        return Ok(parts);
    }
    for part in text.split(',') {
        let part = part.trim();
        if part.is_empty() {
            return Err(Invalid::new("the list has an empty part; remove the comma that is too much"));
        }
        let part = parse(part)?;
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    Ok(parts)
}

/// The names of all options in config.yaml.
#[cfg(test)]
pub(super) fn declared() -> impl Iterator<Item = &'static str> {
    DECLARED.keys().map(String::as_str)
}
