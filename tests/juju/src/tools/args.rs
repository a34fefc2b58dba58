//! Arguments of hook tools: options and words in any order.

use super::{ToolError, usage};
use std::collections::BTreeMap;

/// Long and short names of options.
type Names = &'static [(&'static str, &'static str)];

/// What a tool understands.
struct Spec {
    /// Options with a value: long name, short name.
    values: Names,
    /// Options without.
    flags: Names,
}

const OUTPUT: [(&str, &str); 2] = [("format", "format"), ("output", "o")];

/// The arguments of one call.
pub struct Args {
    /// Which tool.
    pub tool: String,
    values: BTreeMap<String, String>,
    flags: BTreeMap<String, bool>,
    /// The words that are no options.
    pub words: Vec<String>,
    /// Texts of the files that were named.
    pub files: BTreeMap<String, String>,
}

fn spec(tool: &str) -> Spec {
    let (values, flags): (Names, Names) = match tool {
        "config-get" => (&[], &[("all", "a")]),
        "relation-list" => (&[("relation", "r")], &[("app", "app")]),
        "relation-get" => (&[("relation", "r")], &[("app", "app")]),
        "relation-set" => (&[("relation", "r"), ("file", "file")], &[("app", "app")]),
        "relation-model-get" => (&[("relation", "r")], &[]),
        "network-get" => (
            &[("relation", "r")],
            &[("bind-address", ""), ("ingress-address", ""), ("egress-subnets", ""), ("primary-address", "")],
        ),
        "open-port" | "close-port" => (&[("endpoints", "endpoints")], &[]),
        "opened-ports" => (&[], &[("endpoints", "endpoints")]),
        "state-get" => (&[], &[("strict", "strict")]),
        "state-set" => (&[("file", "file")], &[]),
        "status-set" => (&[], &[("application", "application")]),
        "status-get" => (&[], &[("include-data", "include-data"), ("application", "application")]),
        "juju-log" => (&[("log-level", "l")], &[("debug", "debug")]),
        "juju-reboot" => (&[], &[("now", "now")]),
        "secret-add" | "secret-set" => (
            &[
                ("label", ""),
                ("description", ""),
                ("owner", ""),
                ("rotate", ""),
                ("expire", ""),
                ("file", ""),
            ],
            &[],
        ),
        "secret-get" => (&[("label", "")], &[("peek", ""), ("refresh", "")]),
        "secret-info-get" => (&[("label", "")], &[]),
        "secret-grant" => (&[("relation", "r"), ("unit", "")], &[]),
        "secret-revoke" => (&[("relation", "r"), ("unit", ""), ("app", ""), ("application", "")], &[]),
        "secret-remove" => (&[("revision", "")], &[]),
        _ => (&[], &[]),
    };
    Spec { values, flags }
}

impl Args {
    /// Takes a tool's arguments apart.
    pub fn parse(tool: &str, args: &[String], files: &BTreeMap<String, String>) -> Result<Args, ToolError> {
        let spec = spec(tool);
        let mut parsed = Args {
            tool: tool.into(),
            values: BTreeMap::new(),
            flags: BTreeMap::new(),
            words: Vec::new(),
            files: files.clone(),
        };
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            if arg == "--" {
                parsed.words.extend(rest.by_ref().cloned());
                break;
            }
            if arg == "-" || !arg.starts_with('-') {
                parsed.words.push(arg.clone());
                continue;
            }
            let name = arg.trim_start_matches('-');
            let (name, given) = match name.split_once('=') {
                Some((name, value)) if arg.starts_with("--") => (name, Some(value.to_string())),
                _ => (name, None),
            };
            let named = |(long, short): &&(&str, &str)| *long == name || *short == name;
            if let Some((long, _)) = spec.flags.iter().find(named) {
                let value = given.as_deref().map_or(Some(true), crate::validate::go_bool);
                let Some(value) = value else {
                    return Err(usage(format!(
                        "invalid value {:?} for option --{name}",
                        given.unwrap_or_default()
                    )));
                };
                parsed.flags.insert((*long).into(), value);
            } else if let Some((long, _)) = spec.values.iter().chain(&OUTPUT).find(named) {
                let Some(value) = given.or_else(|| rest.next().cloned()) else {
                    return Err(usage(format!("option needs an argument: {arg}")));
                };
                parsed.values.insert((*long).into(), value);
            } else {
                let shown = if arg.starts_with("--") { format!("--{name}") } else { format!("-{name}") };
                return Err(usage(format!("option provided but not defined: {shown}")));
            }
        }
        Ok(parsed)
    }

    /// The value of an option.
    pub fn value(&self, name: &str) -> Option<String> {
        self.values.get(name).cloned()
    }

    /// Whether a flag was given.
    pub fn flag(&self, name: &str) -> bool {
        self.flags.get(name).copied().unwrap_or_default()
    }

    /// The first word, if any; more than `most` words are refused.
    pub fn at_most(&self, most: usize) -> Result<Option<&str>, ToolError> {
        if self.words.len() > most {
            return Err(usage(
                format!("unrecognized args: {:?}", &self.words[most..]).replace("\", \"", "\" \""),
            ));
        }
        Ok(self.words.first().map(String::as_str))
    }

    /// The output format.
    pub fn format(&self) -> Result<&str, ToolError> {
        let secret = matches!(self.tool.as_str(), "secret-get" | "secret-info-get");
        match self.values.get("format").map(String::as_str) {
            None => Ok(if secret || self.tool == "goal-state" { "yaml" } else { "smart" }),
            Some("smart") if !secret => Ok("smart"),
            Some(format @ ("yaml" | "json")) => Ok(format),
            Some(_) if self.has_deprecated_format() => Ok("smart"),
            Some(other) => {
                Err(usage(format!("invalid value {other:?} for option --format: unknown format {other:?}")))
            }
        }
    }

    /// Whether `--format` was given to a tool that prints nothing.
    pub fn has_deprecated_format(&self) -> bool {
        matches!(self.tool.as_str(), "relation-set" | "open-port" | "close-port")
            && self.values.contains_key("format")
    }

    /// `key=value` words as a map.
    pub fn pairs(&self, from: usize) -> Result<BTreeMap<String, String>, ToolError> {
        let mut pairs = BTreeMap::new();
        for word in &self.words[from.min(self.words.len())..] {
            match word.split_once('=') {
                Some((key, value)) if !key.is_empty() => pairs.insert(key.into(), value.into()),
                _ => return Err(usage(format!("expected \"key=value\", got {word:?}"))),
            };
        }
        Ok(pairs)
    }

    /// The map in `--file`, values as texts.
    pub fn file_map(&self) -> Result<BTreeMap<String, String>, ToolError> {
        let Some(name) = self.value("file") else { return Ok(BTreeMap::new()) };
        let Some(text) = self.files.get(&name) else {
            return Err(super::failure(format!("open {name}: no such file or directory")));
        };
        if text.trim().is_empty() {
            return Ok(BTreeMap::new());
        }
        let parsed: serde_yaml::Value =
            serde_yaml::from_str(text).map_err(|error| super::failure(format!("yaml: {error}")))?;
        let serde_yaml::Value::Mapping(pairs) = parsed else {
            return Err(super::failure("expected YAML map"));
        };
        let word = |value: serde_yaml::Value| match value {
            serde_yaml::Value::String(text) => Some(text),
            serde_yaml::Value::Number(number) => Some(number.to_string()),
            serde_yaml::Value::Bool(flag) => Some(flag.to_string()),
            serde_yaml::Value::Null => Some(String::new()),
            _ => None,
        };
        let pairs = pairs.into_iter().map(|(key, value)| Some((word(key)?, word(value)?)));
        pairs.collect::<Option<_>>().ok_or_else(|| super::failure("expected a map of strings"))
    }
}
