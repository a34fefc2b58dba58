//! Machines of all kinds, as directories: what is found, what is missing, what is advertised.

#![allow(missing_docs)]

#[path = "gpu/machine.rs"]
mod machine;

use concourse_ci_machine::gpu::decide::{Decision, decide};
use concourse_ci_machine::gpu::{ladder, summary};
use concourse_ci_machine::oci::devices::{Devices, Edits};
use machine::{Machine, trees};
use serde_json::Value;

fn decided(machine: &Machine) -> Decision {
    decide(&machine.facts(), &machine.answer, &machine.wanted, None)
}

/// Without what isn't there.
fn brief(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let empty = |v: &Value| {
                v.is_null() || *v == Value::Bool(false) || v.as_array().is_some_and(Vec::is_empty)
            };
            Value::Object(map.into_iter().filter(|(_, v)| !empty(v)).map(|(k, v)| (k, brief(v))).collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(brief).collect()),
        other => other,
    }
}

fn shown(edits: &Edits) -> String {
    let nodes: Vec<String> = edits.nodes.iter().map(|n| n.host.display().to_string()).collect();
    let groups = if edits.gids.is_empty() { String::new() } else { format!(" groups {:?}", edits.gids) };
    let files = edits.mounts.len();
    let hooks: Vec<&str> = edits.hooks.iter().filter_map(|h| h.args.get(1)).map(String::as_str).collect();
    let more = if files + hooks.len() > 0 {
        format!(" {files} files, hooks {}", hooks.join(" "))
    } else {
        String::new()
    };
    format!("{}{groups}{more}", nodes.join(" "))
}

fn containers(devices: &Devices) -> String {
    let mut lines = vec![];
    for (vendor, driver) in &devices.vendors {
        lines.push(format!("every container of {vendor:?}: {}", shown(&driver.edits)));
    }
    for unit in &devices.units {
        lines.push(format!("{} = {}: {}", unit.names.join(" = "), unit.id, shown(&unit.edits)));
    }
    lines.join("\n")
}

fn golden(decision: &Decision) -> String {
    let report = &decision.report;
    let status = match (&report.blocked, &report.summary) {
        (Some(why), _) => format!("blocked: {why}"),
        (None, Some(summary)) => format!("active: Worker ready ({summary})"),
        (None, None) => "active: Worker ready".into(),
    };
    let gpus: Vec<String> = report
        .inventory
        .gpus
        .iter()
        .map(|gpu| sorted(brief(serde_json::to_value(gpu).unwrap())).to_string())
        .collect();
    let lacks = match report.lacks == Default::default() {
        true => String::new(),
        false => format!("\nlacks: {}", serde_json::to_string(&report.lacks).unwrap()),
    };
    format!(
        "{status}\nnotes: {}\ntags: {}{lacks}\n\n{}\n\n{}\n{}\n{}\n{}",
        report.notes.join("\n       "),
        report.tags.join(" "),
        serde_json::to_string(&report.inventory.machine).unwrap(),
        ladder::text(&report.ladders),
        summary::text(&decision.devices, &report.inventory),
        containers(&decision.devices),
        gpus.join("\n"),
    )
}

#[test]
fn machines_of_all_kinds() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("gpu/golden");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for name in trees() {
            insta::assert_snapshot!(name.clone(), golden(&decided(&Machine::load(&name))));
        }
    });
}

/// What Juju shows of a status in a table, and what an operator can act on.
#[test]
fn every_sentence_is_short_and_says_what_to_do() {
    for name in trees() {
        let report = decided(&Machine::load(&name)).report;
        for sentence in
            report.blocked.iter().chain(report.ladders.iter().filter_map(|l| Some(&l.missing()?.1.message)))
        {
            assert!(sentence.len() <= 150, "{name}: {} characters: {sentence}", sentence.len());
            let cure =
                ["run", "restart", "install", "set ", "see ", "write ", "update", "use ", "make ", "give "];
            assert!(cure.iter().any(|word| sentence.contains(word)), "{name}: {sentence}");
        }
        for tag in &report.tags {
            assert!(!tag.contains(char::is_whitespace) && !tag.is_empty(), "{name}: {tag:?}");
        }
    }
}

/// A container's own device takes the place of the profile's of the same name. Under another name it stands beside it,
/// and which of the two has its way with the node isn't said anywhere. One that is like the profile's changes nothing.
#[test]
fn lxc_commands_call_devices_as_the_profile_does_and_set_them_apart() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("charm/lxd-profile.yaml");
    let profile: serde_yaml::Value = serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let devices = profile["devices"].as_mapping().unwrap();
    let name_of = |path: &str| {
        devices
            .iter()
            .find(|(_, device)| device["path"].as_str() == Some(path))
            .map(|(name, _)| name.as_str().unwrap())
    };
    for node in 128..192 {
        assert_eq!(name_of(&format!("/dev/dri/renderD{node}")), Some(&*format!("renderd{node}")));
    }
    let mut seen = std::collections::BTreeSet::new();
    for name in trees() {
        let ladders = decided(&Machine::load(&name)).report.ladders;
        let missing = ladders.iter().filter_map(|l| l.missing()).map(|(_, missing)| missing);
        for line in missing.flat_map(|missing| &missing.fix) {
            let words: Vec<&str> = line.split(' ').collect();
            let Some(at) = words.windows(4).position(|w| w == ["lxc", "config", "device", "add"]) else {
                continue;
            };
            let Some(path) = words.iter().find_map(|word| word.strip_prefix("path=")) else { continue };
            let expected = name_of(path).unwrap_or(words[at + 5]);
            assert_eq!(words[at + 5], expected, "{name}: {line}");
            let own = words[at + 6..].iter().filter(|word| **word != "unix-char");
            let like = |option: &str| {
                option.split_once('=').is_some_and(|(key, value)| {
                    devices.get(expected).is_some_and(|device| device[key].as_str() == Some(value))
                })
            };
            assert!(!own.copied().all(like), "{name}: {line}");
            seen.insert(expected.to_owned());
        }
    }
    assert!(["renderd128", "kfd", "nvidia0"].iter().all(|name| seen.contains(*name)), "{seen:?}");
}

/// Twice is once, also through the files.
#[test]
fn what_is_written_is_what_is_read() {
    for name in trees() {
        let decision = decided(&Machine::load(&name));
        let text = serde_json::to_string(&decision.report).unwrap();
        let read: concourse_ci_machine::gpu::decide::Report = serde_json::from_str(&text).unwrap();
        assert_eq!(read, decision.report, "{name}");
        let text = serde_json::to_string(&decision.devices).unwrap();
        assert_eq!(serde_json::from_str::<Devices>(&text).unwrap(), decision.devices, "{name}");
    }
}

/// Keys in one order, whichever features serde_json is built with.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let map: std::collections::BTreeMap<_, _> =
                map.into_iter().map(|(k, v)| (k, sorted(v))).collect();
            Value::Object(map.into_iter().collect())
        }
        Value::Array(list) => list.into_iter().map(sorted).collect(),
        other => other,
    }
}

/// What decides touches nothing; what touches is named here.
#[test]
fn decisions_touch_nothing() {
    let edges = [
        "scan",
        "nvml.rs",
        "ask.rs",
        "left.rs",
        "persistence.rs",
        "refresh.rs",
        "settle.rs",
        "tell.rs",
        "trial/run.rs",
        "trial/probe.rs",
        "mod.rs",
    ];
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gpu");
    let mut dirs = vec![dir.clone()];
    let mut seen = 0;
    while let Some(at) = dirs.pop() {
        for entry in std::fs::read_dir(at).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(&dir).unwrap();
            if edges.iter().any(|edge| name.starts_with(edge)) {
                continue;
            }
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for outside in [
                "std::fs",
                "scan::",
                "refresh::",
                "std::process",
                "std::env",
                "host::",
                "Instant",
                "SystemTime",
                "exists()",
            ] {
                assert!(!text.contains(outside), "{} is pure and names {outside}", path.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 15, "{seen} files");
}
