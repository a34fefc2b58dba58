//! Options of the client's verbs.

use super::{CliError, usage};
use std::collections::BTreeMap;

/// The options with a value, whatever the verb.
const VALUES: [&str; 30] = [
    "num-units",
    "n",
    "config",
    "to",
    "resource",
    "format",
    "path",
    "params",
    "wait",
    "unit",
    "application",
    "timeout",
    "times",
    "text",
    "include",
    "level",
    "lines",
    "limit",
    "o",
    "output",
    "info",
    "reset",
    "file",
    "u",
    "a",
    "base",
    "constraints",
    "revision",
    "name",
    "relation",
];
const FLAGS: [&str; 24] = [
    "no-prompt",
    "force",
    "force-units",
    "background",
    "no-retry",
    "replay",
    "string-args",
    "json",
    "relations",
    "reveal",
    "schema",
    "trust",
    "all",
    "storage",
    "destroy-storage",
    "no-wait",
    "color",
    "no-color",
    "calls",
    "tail",
    "now",
    "utc",
    "parallel",
    "remove",
];

/// A verb's options and words.
#[derive(Debug, Default)]
pub(crate) struct Options {
    values: BTreeMap<String, Vec<String>>,
    flags: Vec<String>,
    /// What is no option.
    pub words: Vec<String>,
    /// What stands after `--`.
    pub rest: Vec<String>,
}

impl Options {
    /// Takes a verb's arguments apart.
    pub fn parse(verb: &str, args: &[String]) -> Result<Options, CliError> {
        let mut options = Options::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if arg == "--" {
                options.rest.extend(args.by_ref().cloned());
                break;
            }
            if arg == "-" || !arg.starts_with('-') {
                options.words.push(arg.clone());
                continue;
            }
            let name = arg.trim_start_matches('-');
            let (name, given) =
                name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value.to_string())));
            // `emulate calls --reset` has no value.
            let bare_reset = name == "reset" && verb == "emulate";
            if VALUES.contains(&name) && !bare_reset {
                let Some(value) = given.or_else(|| args.next().cloned()) else {
                    return Err(usage(format!("option needs an argument: {arg}")));
                };
                options.values.entry(name.into()).or_default().push(value);
            } else if FLAGS.contains(&name) || bare_reset {
                options.flags.push(name.into());
            } else {
                return Err(usage(format!("option provided but not defined: {arg}")));
            }
        }
        Ok(options)
    }

    /// The last value of an option under any of its names.
    pub fn value(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.values.get(*name)?.last()).map(String::as_str)
    }

    /// All values of an option.
    pub fn all(&self, names: &[&str]) -> Vec<&str> {
        names.iter().filter_map(|name| self.values.get(*name)).flatten().map(String::as_str).collect()
    }

    /// Whether a flag was given.
    pub fn flag(&self, name: &str) -> bool {
        self.flags.iter().any(|flag| flag == name)
    }

    /// The number in an option.
    pub fn number(&self, names: &[&str], default: usize) -> Result<usize, CliError> {
        match self.value(names) {
            None => Ok(default),
            Some(value) => {
                value.parse().map_err(|_| usage(format!("invalid value {value:?} for option --{}", names[0])))
            }
        }
    }

    /// `--format`; json if `--json` was given.
    pub fn format(&self, default: &str) -> String {
        let fallback = if self.flag("json") { "json" } else { default };
        self.value(&["format"]).unwrap_or(fallback).into()
    }
}
