//! What Juju's own charm library refuses.

use crate::charm::{Charm, entries};
use anyhow::{Result, bail};
use serde_json::Value;

/// Checks a charm's names and parts.
pub fn charm(charm: &Charm) -> Result<()> {
    if !is_charm_name(&charm.name) {
        bail!("invalid charm name {:?}", charm.name);
    }
    for name in charm.endpoints.keys() {
        if !is_endpoint_name(name) {
            bail!("metadata: invalid relation name {name:?}");
        }
    }
    for (name, endpoint) in &charm.endpoints {
        if endpoint.interface.is_empty() {
            bail!("metadata: {}.{name}.interface: expected string, got nothing", endpoint.role);
        }
    }
    for (name, declared) in &charm.actions {
        action(name, declared)?;
    }
    for (name, file) in &charm.resources {
        if file.is_empty() {
            bail!("resource {name:?}: resource info missing filename");
        }
        if file.contains('/') {
            bail!("resource {name:?}: filename cannot contain \"/\" (got {file:?})");
        }
    }
    lxd_profile(&charm.lxd_profile)
}

fn action(name: &str, declared: &Value) -> Result<()> {
    if !is_kebab(name) {
        bail!("bad action name {name}");
    }
    if name == "juju" || name.starts_with("juju-") || name.starts_with("juju") {
        bail!("cannot use action name {name}: \"juju\" is a reserved prefix");
    }
    for (param, schema) in entries(&declared["params"]) {
        const TYPES: [&str; 7] = ["string", "integer", "number", "boolean", "object", "array", "null"];
        if let Some(kind) = schema["type"].as_str()
            && !TYPES.contains(&kind)
        {
            bail!("invalid params schema for action schema {name}: {param}: type {kind:?} is not valid");
        }
    }
    if !declared["params"]["required"].is_null() && declared["params"]["required"].is_array() {
        bail!("invalid params schema for action schema {name}: required belongs beside params");
    }
    Ok(())
}

/// `y`, `n`, `on` and `off` as keys are booleans in YAML 1.1.
pub fn boolean_keys(actions_yaml: &str) -> Result<()> {
    const BOOLEANS: [&str; 8] = ["y", "n", "yes", "no", "on", "off", "true", "false"];
    for line in actions_yaml.lines() {
        if let Some((key, _)) = line.trim().split_once(':')
            && BOOLEANS.contains(&key.to_lowercase().as_str())
        {
            bail!("map keyed with non-string value");
        }
    }
    Ok(())
}

/// A default must be of its option's type; YAML's own reading of it counts.
pub fn option_default(name: &str, kind: &str, default: &Value) -> Result<Value> {
    let fits = match kind {
        "string" => default.is_string(),
        "int" => default.is_i64(),
        "float" => default.is_number(),
        "boolean" => default.is_boolean(),
        "secret" => default.as_str().is_some_and(|value| value.starts_with("secret:")),
        _ => bail!("invalid config: option {name:?} has unknown type {kind:?}"),
    };
    if default.is_null() || fits {
        return Ok(default.clone());
    }
    bail!("invalid config default: option {name:?} expected {kind}, got {default}")
}

/// A value given to `juju config`, as the option's type.
pub fn option_value(name: &str, kind: &str, value: &str) -> Result<Value> {
    let parsed = match kind {
        "string" => Some(Value::from(value)),
        "int" => value.parse::<i64>().ok().map(Value::from),
        "float" => value.parse::<f64>().ok().map(Value::from),
        "boolean" => go_bool(value).map(Value::from),
        _ => {
            let id = crate::tools::secret_id(value).filter(|_| value.starts_with("secret:"));
            if id.is_none() {
                bail!("invalid secret URI for option {name:?}: secret URI {value:?} not valid");
            }
            Some(Value::from(value))
        }
    };
    match parsed {
        Some(parsed) => Ok(parsed),
        None => bail!("option {name:?} expected {kind}, got {value:?}"),
    }
}

/// A boolean as Go reads it.
pub fn go_bool(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn lxd_profile(profile: &Value) -> Result<()> {
    for (name, device) in entries(&profile["devices"]) {
        let kind = device["type"].as_str().unwrap_or_default();
        if !["unix-char", "unix-block", "gpu", "usb"].contains(&kind) {
            bail!("invalid lxd-profile.yaml: contains device type {kind:?} (device {name:?})");
        }
    }
    for (key, _) in entries(&profile["config"]) {
        if ["boot", "limits", "migration"].iter().any(|prefix| key.starts_with(prefix)) {
            bail!("invalid lxd-profile.yaml: contains config value {key:?}");
        }
    }
    Ok(())
}

/// `[a-z0-9]([a-z0-9-]*[a-z0-9])?`
pub fn is_kebab(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty() && name.chars().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

/// Lower-case words joined by `-`, each with a letter in it; the first begins with one.
pub fn is_charm_name(name: &str) -> bool {
    let word = |word: &str| {
        !word.is_empty()
            && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
            && word.chars().any(|c| c.is_ascii_lowercase())
    };
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.split('-').all(word)
}

/// `[a-z][a-z0-9]*([_-][a-z0-9]+)*`
pub fn is_endpoint_name(name: &str) -> bool {
    let word =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.split(['-', '_']).all(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_as_juju_does() {
        for (name, good) in [("a-b", true), ("a-1", false), ("a1", true), ("A", false), ("1a", false)] {
            assert_eq!(is_charm_name(name), good, "{name}");
        }
        for (name, good) in [("web_tsa", true), ("a-1", true), ("-a", false), ("1a", false)] {
            assert_eq!(is_endpoint_name(name), good, "{name}");
        }
    }

    #[test]
    fn option_values_are_typed() {
        let rows = [
            ("int", "abc", "option \"x\" expected int, got \"abc\""),
            ("boolean", "yes", "option \"x\" expected boolean, got \"yes\""),
            ("secret", "secret:", "invalid secret URI for option \"x\": secret URI \"secret:\" not valid"),
        ];
        for (kind, value, wanted) in rows {
            assert_eq!(option_value("x", kind, value).unwrap_err().to_string(), wanted);
        }
        assert_eq!(option_value("x", "int", "9").unwrap(), Value::from(9));
        assert!(option_default("x", "string", &Value::from(5)).is_err());
    }
}
