//! What the charm declares is what it does: options, actions and endpoints, and the README tells of each.

#![allow(missing_docs)]

use concourse_ci_machine::actions::{Action, NAMES};
use concourse_ci_machine::juju::memory::ENDPOINTS;
use concourse_ci_machine::view::version::pinned;
use serde_yaml::{Mapping, Value};
use std::collections::BTreeSet;

const METADATA: &str = include_str!("../metadata.yaml");
const CONFIG: &str = include_str!("../config.yaml");
const ACTIONS: &str = include_str!("../actions.yaml");
const README: &str = include_str!("../README.md");

fn map(text: &str) -> Mapping {
    serde_yaml::from_str(text).unwrap()
}

fn keys(value: &Value) -> BTreeSet<String> {
    value
        .as_mapping()
        .unwrap()
        .keys()
        .map(|k| k.as_str().expect("a key that is no text").to_owned())
        .collect()
}

fn options() -> BTreeSet<String> {
    keys(&map(CONFIG)["options"])
}

fn actions() -> BTreeSet<String> {
    keys(&Value::Mapping(map(ACTIONS)))
}

fn endpoints() -> BTreeSet<String> {
    let metadata = map(METADATA);
    ["provides", "requires", "peers"].iter().flat_map(|role| keys(&metadata[*role])).collect()
}

#[test]
fn every_action_is_implemented_and_every_implemented_one_declared() {
    assert_eq!(actions(), NAMES.iter().map(|n| (*n).to_owned()).collect());
    for name in actions() {
        // Parameters that Juju would fill in or demand.
        let params = serde_json::json!({"version": "8.2.5"}).as_object().unwrap().clone();
        assert!(Action::parse(&name, &params).is_ok(), "{name}");
    }
}

/// Juju reads `count=1` as a number before it looks at the type.
#[test]
fn parameters_that_may_be_numbers_take_them() {
    for (action, name) in
        [("gpu-test", "count"), ("gpu-test", "devices"), ("run-migrations", "target-version")]
    {
        assert!(map(ACTIONS)[action]["params"][name].get("type").is_none(), "{action} {name}");
        let given =
            |value: serde_json::Value| serde_json::json!({ name: value }).as_object().unwrap().clone();
        let [number, text] = [serde_json::json!(1), serde_json::json!("1")]
            .map(|value| Action::parse(action, &given(value)).unwrap());
        assert_eq!(number, text, "{action} {name}");
    }
}

#[test]
fn every_endpoint_is_read_and_every_read_one_declared() {
    assert_eq!(endpoints(), ENDPOINTS.iter().map(|n| (*n).to_owned()).collect());
}

#[test]
fn names_and_defaults_are_what_juju_takes() {
    for name in options().iter().chain(&actions()).chain(&endpoints()) {
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{name}");
    }
    for (name, action) in map(ACTIONS) {
        assert_eq!(
            action["additionalProperties"],
            Value::Bool(false),
            "{name:?} must refuse unknown parameters"
        );
        if let Some(params) = action.get("params") {
            assert!(
                keys(params).iter().all(|p| !p.contains('_')),
                "{name:?}: juju run can't set a parameter with _"
            );
        }
    }
    for (name, option) in map(CONFIG)["options"].as_mapping().unwrap() {
        let default = option.get("default");
        let fits = match option["type"].as_str().unwrap() {
            "string" => default.is_some_and(Value::is_string),
            "int" => default.is_some_and(Value::is_i64),
            "boolean" => default.is_some_and(Value::is_bool),
            "secret" => default.is_none(),
            other => panic!("{name:?} has type {other}"),
        };
        assert!(fits, "{name:?}: the default {default:?} is not of its type");
    }
}

#[test]
fn the_readme_tells_of_everything() {
    for name in options().iter().chain(&actions()).chain(&endpoints()) {
        assert!(README.contains(&format!("`{name}`")), "README.md does not tell of `{name}`");
    }
    for command in ["make demo", "make test", "juju relate web:web-tsa worker:worker-tsa", "juju status"] {
        assert!(README.contains(command), "README.md does not show {command}");
    }
}

#[test]
fn the_pinned_version_is_a_version() {
    assert!(README.contains(&pinned().to_string()));
}
