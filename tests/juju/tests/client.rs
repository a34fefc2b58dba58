//! What the client prints, against the captured samples; and what deploy refuses.

use emulated_juju::Controller;
use emulated_juju::model::Status;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("samples")
}

/// The output of the command in a sample that is `juju` and this line, the `place`-th time.
fn captured(sample: &str, line: &str, place: usize) -> String {
    let text = format!("\n{}", fs::read_to_string(samples().join(sample)).unwrap());
    let head = format!("\n$ juju {line}\n");
    let after = text.split(&head).nth(place + 1).expect("no such command in the sample");
    after.split("\nrc=").next().unwrap_or_default().trim_end().to_string()
}

fn probe() -> Controller {
    let mut juju = Controller::new("4.0.15.1", Path::new(env!("CARGO_BIN_EXE_emulated-juju"))).unwrap();
    juju.add_app("pa", &samples().join("charms/probe")).unwrap();
    juju.add_unit("pa").unwrap();
    juju.settle().unwrap();
    juju
}

#[test]
fn config_prints_and_refuses_as_captured() {
    let juju = probe();
    assert_eq!(juju.juju(&["config", "pa"]).out.trim_end(), captured("cli-config.txt", "config pa", 0));
    for line in
        ["pa str-def", "pa nosuch=1", "pa num=abc", "pa flag=maybe", "pa flt=2.5 flag=yes", "pa str-none"]
    {
        let argv: Vec<&str> = ["config"].into_iter().chain(line.split(' ')).collect();
        let result = juju.juju(&argv);
        let errors: String = result.err.lines().map(|line| format!("E| {line}\n")).collect();
        let wanted = captured("cli-config.txt", &format!("config {line}"), 0);
        assert_eq!(format!("{}{errors}", result.out).trim_end(), wanted, "config {line}");
    }
    assert_eq!(juju.juju(&["config", "pa", "str-def=changed", "num=9"]).rc, 0);
    assert_eq!(juju.juju(&["config", "pa", "--reset", "num"]).rc, 0);
    let json = juju.juju(&["config", "pa", "--format=json"]).out;
    assert_eq!(json.trim_end(), captured("cli-config.txt", "config pa --format=json", 0));
}

#[test]
fn status_looks_as_captured() {
    let mut juju = probe();
    juju.add_app("pb", &samples().join("charms/probe")).unwrap();
    juju.add_unit("pb").unwrap();
    juju.settle().unwrap();
    let mut model = juju.model();
    model.name = "test".into();
    for (app, revision) in [("pa", 2), ("pb", 1)] {
        let known = model.applications.get_mut(app).unwrap();
        (known.revision, known.workload_version) = (revision, "1.2.3".into());
        known.status = Some(Status::new("active", "app is fine"));
    }
    for (unit, address) in [("pa/0", "10.98.0.11"), ("pb/0", "10.98.0.12")] {
        let machine = model.units[unit].machine.clone();
        model.machines.get_mut(&machine).unwrap().network.as_mut().unwrap().address = address.into();
        model.units.get_mut(unit).unwrap().status = Status::new("active", "");
        for (protocol, port) in [("icmp", 0), ("tcp", 8080), ("tcp", 8443)] {
            let port = emulated_juju::model::Port {
                protocol: protocol.into(),
                from: port,
                to: port,
                endpoint: String::new(),
            };
            model.units.get_mut(unit).unwrap().ports.insert(port);
        }
    }
    drop(model);
    // The head names the cloud, and the machines are not set up by hand here: the two tables between are compared.
    let middle = |text: &str| text.split("\n\n").skip(1).take(2).collect::<Vec<_>>().join("\n\n");
    let wanted = captured("cli-refresh.txt", "status", 0);
    assert_eq!(middle(&juju.juju(&["status"]).out), middle(&wanted));
}

#[test]
fn actions_are_listed_as_json_too() {
    let mut juju = probe();
    let unit = "pa/0";
    juju.model().enqueue_action(unit, "bad", Value::Object(Default::default())).unwrap();
    let result = juju.run_next(unit).unwrap().unwrap();
    assert_eq!((result.hook.as_str(), result.rc), ("bad", 0));
    let listed = juju.juju(&["actions", "pa"]).out;
    assert!(listed.contains("crash   exits 3"), "{listed}");
}

#[test]
fn deploy_refuses_what_juju_s_charm_library_refuses() {
    let rows = [
        ("metadata.yaml", "name: a-1\n", "invalid charm name \"a-1\""),
        (
            "metadata.yaml",
            "name: ok\nrequires: {Bad: {interface: x}}\n",
            "metadata: invalid relation name \"Bad\"",
        ),
        (
            "metadata.yaml",
            "name: ok\nrequires: {one: {interface: x}}\nprovides: {one: {interface: x}}\n",
            "charm \"ok\" using a duplicated relation name: \"one\"",
        ),
        (
            "actions.yaml",
            "juju-x: {description: d}\n",
            "cannot use action name juju-x: \"juju\" is a reserved prefix",
        ),
        ("actions.yaml", "snake_case: {description: d}\n", "bad action name snake_case"),
        ("actions.yaml", "ok:\n  params:\n    y: {type: string}\n", "map keyed with non-string value"),
        (
            "actions.yaml",
            "ok: {params: {n1: {type: int}}}\n",
            "invalid params schema for action schema ok: n1: type \"int\" is not valid",
        ),
        (
            "config.yaml",
            "options: {x: {type: int, default: \"\"}}\n",
            "invalid config default: option \"x\" expected int, got \"\"",
        ),
        (
            "config.yaml",
            "options: {x: {type: enum}}\n",
            "invalid config: option \"x\" has unknown type \"enum\"",
        ),
        (
            "lxd-profile.yaml",
            "devices: {eth9: {type: nic}}\n",
            "invalid lxd-profile.yaml: contains device type \"nic\" (device \"eth9\")",
        ),
        (
            "lxd-profile.yaml",
            "config: {limits.cpu: \"2\"}\n",
            "invalid lxd-profile.yaml: contains config value \"limits.cpu\"",
        ),
        ("dispatch", "", "invalid charm \"probe\": has no hooks nor dispatch file"),
    ];
    for (file, text, wanted) in rows {
        let folder = tempfile::tempdir().unwrap();
        for known in ["metadata.yaml", "config.yaml", "actions.yaml", "manifest.yaml", "dispatch"] {
            fs::copy(samples().join("charms/probe").join(known), folder.path().join(known)).unwrap();
        }
        match text {
            "" => fs::remove_file(folder.path().join(file)).unwrap(),
            text => fs::write(folder.path().join(file), text).unwrap(),
        }
        let error = emulated_juju::charm::Charm::load(folder.path()).expect_err(wanted);
        assert_eq!(format!("{error:#}"), wanted);
    }
}
