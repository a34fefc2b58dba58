//! Further settings of Concourse: from the option `concourse-env` and from the Juju secret `concourse-secrets`.
//! Concourse ignores a variable that it doesn't know, so it is refused here. No value is ever in a problem: it may be
//! a password in the wrong place.

use super::Problem;
use super::known::{self, Kind, Setting, Side};
use crate::parse::{Invalid, Secret, harmless, shown};
use serde_yaml::{Mapping, Value};
use std::collections::BTreeMap;

const ENV: &str = "concourse-env";
const SECRETS: &str = "concourse-secrets";
/// Some less than what the kernel takes for one variable, its name included.
const LONGEST: usize = 100 * 1024;

/// Those of the settings that the given program reads.
pub fn settings_for<V>(side: Side, settings: &BTreeMap<String, V>) -> impl Iterator<Item = (&str, &V)> {
    settings.iter().filter(move |(name, _)| known::belongs(name, side)).map(|(n, v)| (n.as_str(), v))
}

/// Parses `concourse-env`: a YAML map of names and values, lists or maps.
pub(super) fn env_settings(text: &str) -> Result<BTreeMap<String, String>, Vec<Problem>> {
    if text.is_empty() {
        return Ok(BTreeMap::new());
    }
    let map = match serde_yaml::from_str(text) {
        Ok(Value::Null) => Mapping::new(),
        Ok(Value::Mapping(map)) => map,
        Ok(_) => {
            return Err(vec![problem("is not a YAML map; write a line like CONCOURSE_CLUSTER_NAME: ci")]);
        }
        Err(why) => return Err(vec![problem(yaml_error(&why))]),
    };
    collect(map.iter().map(|(name, value)| env_setting(name, value)))
}

/// Settings from the content of the secret that `concourse-secrets` names: `ldap-bind-pw` becomes
/// `CONCOURSE_LDAP_BIND_PW`. `env` is what [`super::Config`] has from `concourse-env`: no setting may be in both.
///
/// # Errors
/// All problems. They name keys and never show a value.
pub fn secret_settings(
    content: &BTreeMap<String, String>,
    env: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, Secret>, Vec<Problem>> {
    collect(content.iter().map(|(key, value)| {
        let problem = |sentence: String| Problem::new(SECRETS, format!("{} {sentence}", printed(key)));
        let name = name_of(key);
        let setting = check_name(&name, || known::like(key).map(key_of)).map_err(problem)?;
        if env.contains_key(&name) {
            return Err(problem("is set in concourse-env as well; remove one of the two".into()));
        }
        let value = check_value(setting, value).map_err(|why| problem(why.to_string()))?;
        Ok((name, Secret::new(value)))
    }))
}

fn env_setting(name: &Value, value: &Value) -> Result<(String, String), Problem> {
    let Value::String(name) = name else {
        return Err(problem("has a name that is no text; write names like CONCOURSE_CLUSTER_NAME"));
    };
    let problem = |sentence: String| problem(format!("{} {sentence}", printed(name)));
    let setting = check_name(name, || known::like(name).map(str::to_owned)).map_err(problem)?;
    if known::is_secret(name, setting) || value.as_str().is_some_and(holds_password) {
        let key = key_of(name);
        return Err(problem(format!("is a secret; put it as {key} into the secret of concourse-secrets")));
    }
    let value = text_of(setting, value).and_then(|text| check_value(setting, &text));
    Ok((name.clone(), value.map_err(|why| problem(why.to_string()))?))
}

/// Whether users may set it; `like` gives the nearest name that they may have meant.
fn check_name(name: &str, like: impl FnOnce() -> Option<String>) -> Result<Setting, String> {
    if let Some(source) = known::set_by_charm(name) {
        return Err(format!("is set by the charm: {source}"));
    }
    known::find(name).ok_or_else(|| match like() {
        Some(like) => format!("is no setting of Concourse; did you mean {like}?"),
        None => "is no setting of Concourse; see concourse web --help and concourse worker --help".into(),
    })
}

/// A YAML value as Concourse reads it from a variable.
fn text_of(setting: Setting, value: &Value) -> Result<String, Invalid> {
    match (setting.kind, value) {
        (Kind::List, Value::Sequence(items)) => {
            let items: Result<Vec<_>, _> = items.iter().map(|item| part(item, ",")).collect();
            Ok(items?.join(","))
        }
        (Kind::Map, Value::Mapping(map)) => {
            let pairs: Result<Vec<_>, Invalid> = map
                .iter()
                .map(|(key, value)| Ok(format!("{}:{}", part(key, ",:")?, part(value, ",")?)))
                .collect();
            Ok(pairs?.join(","))
        }
        (_, value) => scalar(value),
    }
}

fn part(value: &Value, barred: &str) -> Result<String, Invalid> {
    let text = scalar(value)?;
    if text.is_empty() || text.contains(|c| barred.contains(c)) {
        let barred = barred.chars().map(|c| format!("\"{c}\"")).collect::<Vec<_>>().join(" or ");
        return Err(Invalid::new(format!(
            "has a part that is empty or holds {barred}; Concourse splits there"
        )));
    }
    Ok(text)
}

fn scalar(value: &Value) -> Result<String, Invalid> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Ok(number.to_string()),
        // 1.10 is 1.1 by now.
        Value::Number(_) => Err(Invalid::new("is a number with a fraction; put it in quotes")),
        Value::Null => Err(Invalid::new("has no value; give one or remove the line")),
        _ => Err(Invalid::new("takes one value; a list or map has no meaning here")),
    }
}

/// A value as it may stand in the environment, by the kind of its setting.
fn check_value(setting: Setting, value: &str) -> Result<String, Invalid> {
    // What comes from a file or a YAML block ends in a line break that isn't meant.
    let value = value.strip_suffix('\n').map_or(value, |v| v.strip_suffix('\r').unwrap_or(v));
    let refused = |sentence| Err(Invalid::new(sentence));
    if setting.kind == Kind::File && !value.starts_with('/') {
        return refused("takes the path of a file on the unit; give one that starts with /");
    }
    if value.len() > LONGEST {
        return refused("is longer than 100 KiB; an environment variable can't hold that");
    }
    if !value.chars().all(harmless) {
        return refused("holds a line break or control character; Concourse takes none");
    }
    match setting.kind {
        Kind::Bool if !["true", "false"].contains(&value) => refused("is a switch; use true or false"),
        Kind::List | Kind::Map if value.is_empty() => refused("is empty; give a value or remove it"),
        _ => Ok(value.to_owned()),
    }
}

/// `https://user:password@host` under a name that doesn't tell.
fn holds_password(value: &str) -> bool {
    value.contains('@') && url::Url::parse(value).is_ok_and(|url| url.password().is_some())
}

/// Where the YAML is broken. Not serde_yaml's own words: those may quote the text.
fn yaml_error(why: &serde_yaml::Error) -> String {
    if why.to_string().starts_with("duplicate entry") {
        return "sets something twice; keep one of the lines".into();
    }
    match why.location() {
        Some(at) => {
            format!("is not YAML at line {}, column {}; write NAME: VALUE lines", at.line(), at.column())
        }
        None => "is not YAML; write NAME: VALUE lines".into(),
    }
}

fn collect<V>(
    settings: impl Iterator<Item = Result<(String, V), Problem>>,
) -> Result<BTreeMap<String, V>, Vec<Problem>> {
    let (mut good, mut problems) = (BTreeMap::new(), Vec::new());
    for setting in settings {
        match setting {
            Ok((name, value)) => _ = good.insert(name, value),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(good) } else { Err(problems) }
}

fn problem(sentence: impl std::fmt::Display) -> Problem {
    Problem::new(ENV, sentence)
}

/// A name in a message: bare if it is a harmless word.
fn printed(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if (1..=60).contains(&name.len()) && name.bytes().all(plain) { name.into() } else { shown(name) }
}

fn name_of(key: &str) -> String {
    format!("CONCOURSE_{}", key.to_ascii_uppercase().replace('-', "_"))
}

fn key_of(name: &str) -> String {
    name.strip_prefix("CONCOURSE_").unwrap_or(name).to_ascii_lowercase().replace('_', "-")
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
