mod runtime;

use crate::cdi::edits::NodeStat;
use crate::cdi::units::{DriverFacts, Found, Source, UnitFacts, Wanted, gather};
use crate::oci::devices::{Edits, Unit, Vendor};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const DEFAULT: &str = include_str!("../../../tests/cdi/a100x8-default.yaml");
const V1_14_6: &str = include_str!("../../../tests/cdi/a100x8-generator-1.14.6.yaml");
const V1_18_2: &str = include_str!("../../../tests/cdi/a100x8-generator-1.18.2.json");
const MIG: &str = include_str!("../../../tests/cdi/a100-mig-default.json");
const GDS: &str = include_str!("../../../tests/cdi/gds.json");

fn source(path: &str, priority: usize, text: &str) -> Source {
    Source { path: path.into(), priority, text: Ok(text.into()) }
}

/// The machine of the fixtures: 8 GPUs, `card` and `renderD` for each, MIG's capabilities.
fn machine(path: &Path) -> Option<NodeStat> {
    let path = path.to_str()?;
    let number = |prefix: &str| path.strip_prefix(prefix)?.parse::<u32>().ok();
    let node = |major, minor, mode, gid| Some(NodeStat { kind: 'c', major, minor, mode, uid: 0, gid });
    match path {
        "/dev/nvidia-modeset" => return node(195, 254, 0o666, 0),
        "/dev/nvidia-uvm" => return node(508, 0, 0o666, 0),
        "/dev/nvidia-uvm-tools" => return node(508, 1, 0o666, 0),
        "/dev/nvidiactl" => return node(195, 255, 0o666, 0),
        "/dev/kfd" => return node(235, 0, 0o660, 109),
        _ => {}
    }
    if let Some(minor) = number("/dev/nvidia-caps/nvidia-cap") {
        return node(511, minor, 0o444, 0);
    }
    if let Some(minor) = number("/dev/nvidia-fs") {
        return node(504, minor, 0o666, 0);
    }
    if let Some(minor) = number("/dev/nvidia").filter(|n| *n < 8) {
        return node(195, minor, 0o666, 0);
    }
    if let Some(minor) = number("/dev/dri/card") {
        return node(226, minor, 0o660, 44);
    }
    number("/dev/dri/renderD").and_then(|minor| node(226, minor, 0o660, 109))
}

fn found(text: &str) -> Found {
    let found = gather(&[source("/etc/cdi/nvidia.yaml", 0, text)], &Wanted::default(), &machine);
    assert_eq!(found.problems, Vec::<String>::new());
    found
}

/// Paths with their numbers.
fn nodes(edits: &Edits) -> BTreeSet<String> {
    edits
        .nodes
        .iter()
        .map(|n| format!("{} {} {}:{} {:o} {}", n.path.display(), n.kind, n.major, n.minor, n.mode, n.gid))
        .collect()
}

fn unit<'a>(found: &'a Found, name: &str) -> &'a Unit {
    let units = &found.devices.units;
    units.iter().find(|u| u.id == name || u.names.iter().any(|n| n == name)).unwrap()
}

#[test]
fn generators_of_all_versions_say_the_same() {
    let [new, middle, old] = [DEFAULT, V1_18_2, V1_14_6].map(found);
    for found in [&new, &middle, &old] {
        assert_eq!(found.devices.units.len(), 8, "each GPU once, and `all` is none");
        let driver = &found.devices.vendors[&Vendor::Nvidia];
        assert_eq!(driver.version.as_deref(), Some("550.163.01"));
        assert_eq!(nodes(&driver.edits), nodes(&new.devices.vendors[&Vendor::Nvidia].edits));
        for (at, unit) in found.devices.units.iter().enumerate() {
            assert!(unit.names.contains(&at.to_string()) || unit.id == format!("nvidia-{at}"), "in order");
            assert_eq!(nodes(&unit.edits), nodes(&new.devices.units[at].edits));
            assert_eq!(unit.edits.gids, [109], "of renderD; card is left out, and video with it");
        }
    }
    assert_eq!(new.devices.units, middle.devices.units);
    assert_eq!(
        nodes(&new.devices.units[3].edits),
        BTreeSet::from([
            "/dev/nvidia3 c 195:3 666 0".to_owned(),
            "/dev/dri/renderD131 c 226:131 660 109".to_owned()
        ])
    );
    assert_eq!(new.devices.units[0].id, "GPU-b1d68d8f-44b6-533d-a967-1601bc911e80");
    assert_eq!(new.devices.units[0].names, ["0"]);
    assert_eq!(old.devices.units[0].id, "nvidia-0", "1.14 knows no UUIDs");
}

#[test]
fn a_split_gpu_is_its_parts() {
    let found = found(MIG);
    let names: Vec<&str> = found.devices.units.iter().map(|u| u.names[0].as_str()).collect();
    let parts = ["0:0", "0:1", "0:2", "0:3", "1:0", "1:1", "1:2", "1:3", "1:4", "1:5", "1:6"];
    assert_eq!(names, [&["2", "3", "4", "5", "6", "7"][..], &parts].concat().tap_sort());
    let part = unit(&found, "0:1");
    assert_eq!(part.id, "MIG-3f0b7f0c-1d8e-5a3d-8b1c-0f5d0a9d2e11");
    assert_eq!(part.edits.gids, Vec::<u32>::new(), "root's group is no group");

    // A generator that names the whole GPU too: it still can't be given.
    let mut spec: Value = serde_json::from_str(MIG).unwrap();
    let whole =
        serde_json::json!({"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}});
    spec["devices"].as_array_mut().unwrap().push(whole);
    assert_eq!(self::found(&spec.to_string()).devices, found.devices);
}

trait TapSort {
    fn tap_sort(self) -> Self;
}

impl TapSort for Vec<&str> {
    /// As numbers: 0:0 … 0:3, 1:0 … 1:6, 2 … 7.
    fn tap_sort(mut self) -> Self {
        self.sort_by_key(|n| n.split(':').map(|p| p.parse::<u32>().unwrap()).collect::<Vec<_>>());
        self
    }
}

#[test]
fn several_files() {
    let device = |name: &str, node: &str| {
        format!(
            "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- {{name: '{name}', containerEdits: {{deviceNodes: [{{path: {node}}}]}}}}\n"
        )
    };
    let run = |sources: &[Source]| gather(sources, &Wanted::default(), &machine);
    let (zero, one) = (device("0", "/dev/nvidia0"), device("0", "/dev/nvidia1"));

    let both = run(&[source("/etc/cdi/a.yaml", 0, &zero), source("/var/run/cdi/b.yaml", 1, &one)]);
    assert_eq!(both.problems, Vec::<String>::new());
    assert_eq!(both.devices.units[0].edits.nodes[0].minor, 1, "the later directory wins");

    let both = run(&[source("/etc/cdi/a.yaml", 0, &zero), source("/etc/cdi/b.yaml", 0, &one)]);
    assert_eq!(both.devices.units, []);
    assert_eq!(
        both.problems,
        [
            "nvidia.com/gpu 0 stand in /etc/cdi/a.yaml and /etc/cdi/b.yaml: they can't be given until all but one of the \
          files are deleted"
        ]
    );

    let more = device("1", "/dev/nvidia1");
    let bad = source("/etc/cdi/bad.yaml", 0, "cdiVersion: 9.9.9\nkind: nvidia.com/gpu\ndevices: []");
    let both = run(&[source("/etc/cdi/a.yaml", 0, &zero), bad, source("/etc/cdi/b.yaml", 0, &more)]);
    assert_eq!(both.devices.units.len(), 2, "a bad file takes nothing with it");
    assert!(both.problems[0].starts_with("/etc/cdi/bad.yaml has CDI version \"9.9.9\"; known are"));

    let gds = run(&[source("/etc/cdi/a.yaml", 0, DEFAULT), source("/etc/cdi/gds.json", 0, GDS)]);
    assert_eq!(gds, found(DEFAULT), "storage is no GPU, and nobody asked for it");

    let amd = "{cdiVersion: 0.6.0, kind: amd.com/gpu, devices: [{name: '0', containerEdits: {deviceNodes: \
        [{path: /dev/kfd}, {path: /dev/dri/card0}, {path: /dev/dri/renderD128}]}}]}";
    let two = run(&[source("/etc/cdi/nvidia.yaml", 0, MIG), source("/etc/cdi/amd.yaml", 0, amd)]);
    let unit = two.devices.units.last().unwrap();
    assert_eq!((unit.vendor, unit.id.as_str()), (Vendor::Amd, "amd-0"));
    assert_eq!(unit.edits.nodes.len(), 2);
    assert_eq!(unit.edits.gids, [109]);
    assert_eq!(two.devices.units.len(), 18);
}

#[test]
fn two_specs_of_one_driver_add_up() {
    let spec = |name: &str, extra: &str| {
        format!(
            "{{cdiVersion: 0.5.0, kind: nvidia.com/gpu, devices: [{{name: '{name}', containerEdits: {{deviceNodes: \
            [{{path: /dev/nvidia{name}}}]}}}}], containerEdits: {{deviceNodes: [{{path: /dev/nvidiactl}}{extra}], env: [A=b]}}}}"
        )
    };
    let files = [
        source("/etc/cdi/a.yaml", 0, &spec("0", "")),
        source("/etc/cdi/b.yaml", 0, &spec("1", ", {path: /dev/nvidia-uvm}")),
    ];
    let found = gather(&files, &Wanted::default(), &machine);
    let paths = |edits: &Edits| edits.nodes.iter().map(|n| n.path.clone()).collect::<Vec<_>>();
    assert_eq!(paths(&found.devices.vendors[&Vendor::Nvidia].edits), [Path::new("/dev/nvidiactl")]);
    assert_eq!(
        paths(&unit(&found, "nvidia-1").edits),
        [Path::new("/dev/nvidia-uvm"), Path::new("/dev/nvidia1")]
    );
    assert_eq!(unit(&found, "nvidia-1").edits.env, BTreeMap::new());
}

#[test]
fn nodes_that_are_gone() {
    let gone = |path: &Path| {
        machine(path).filter(|_| !path.ends_with("nvidia2") && !path.ends_with("nvidia-uvm-tools"))
    };
    let found = gather(&[source("/etc/cdi/n.yaml", 0, DEFAULT)], &Wanted::default(), &gone);
    assert_eq!(found.devices.units.len(), 7);
    assert_eq!(
        found.problems,
        [
            "/etc/cdi/n.yaml names /dev/nvidia-uvm-tools, which is no device node here: it is left out",
            "/etc/cdi/n.yaml names /dev/nvidia2, which is no device node here: nvidia.com/gpu=2 is left out",
            "/etc/cdi/n.yaml names /dev/nvidia2, which is no device node here: \
             nvidia.com/gpu=GPU-5950dd5d-5330-5738-9460-0d05550ffc14 is left out",
        ]
    );
    let moved =
        |path: &Path| machine(path).map(|s| if s.major == 508 { NodeStat { major: 507, ..s } } else { s });
    let found = gather(&[source("/etc/cdi/n.yaml", 0, DEFAULT)], &Wanted::default(), &moved);
    let driver = &found.devices.vendors[&Vendor::Nvidia].edits;
    assert!(nodes(driver).contains("/dev/nvidia-uvm c 507:0 666 0"), "the machine knows its own numbers");
}

#[test]
fn what_the_driver_says_is_added() {
    let wanted = Wanted {
        cards: false,
        drivers: [(Vendor::Nvidia, DriverFacts { version: None, cuda: Some("12.4".into()) })].into(),
        units: [("1".into(), UnitFacts { model: Some("NVIDIA A100".into()), ..UnitFacts::default() })].into(),
    };
    let found = gather(&[source("/etc/cdi/n.yaml", 0, DEFAULT)], &wanted, &machine);
    let driver = &found.devices.vendors[&Vendor::Nvidia];
    assert_eq!((driver.version.as_deref(), driver.cuda.as_deref()), (Some("550.163.01"), Some("12.4")));
    assert_eq!(unit(&found, "1").model.as_deref(), Some("NVIDIA A100"));
    assert_eq!(unit(&found, "2").model, None);
}

#[test]
fn bad_files() {
    let spec = |rest: &str| {
        format!(
            "{{cdiVersion: 0.5.0, kind: nvidia.com/gpu, devices: [{{name: '0', containerEdits: {{{rest}}}}}]}}"
        )
    };
    for (text, why) in [
        ("".into(), "can't be read"),
        ("[".into(), "can't be read"),
        ("{cdiVersion: 0.5.0, kind: gpu, devices: []}".into(), "kind \"gpu\", which is not VENDOR/CLASS"),
        (spec("env: [A]"), "sets \"A\", which is not NAME=value"),
        (spec("deviceNodes: [{path: dev/x}]"), "has the node dev/x"),
        (spec("deviceNodes: [{path: /dev/x, type: p}]"), "has the node /dev/x of type \"p\""),
        (spec("deviceNodes: [{path: /dev/x, permissions: rx}]"), "permissions that aren't of rwm"),
        (spec("mounts: [{hostPath: /a, containerPath: /b, type: tmpfs}]"), "as something else than a bind"),
        (spec("hooks: [{hookName: never, path: /a}]"), "has a hook /a at \"never\""),
        (spec("netDevices: [{hostInterfaceName: eth0, name: eth0}]"), "uses intelRdt or netDevices"),
        (spec("newThing: 1"), "unknown field `newThing`"),
    ] {
        let found = gather(&[source("/etc/cdi/x.yaml", 0, &text)], &Wanted::default(), &machine);
        assert_eq!(found.devices.units, []);
        let said = found.problems.join("\n");
        assert!(said.starts_with("/etc/cdi/x.yaml ") && said.contains(why), "{text}: {said}");
    }
}

#[test]
fn directories() {
    let dir = tempfile::tempdir().unwrap();
    let (etc, run) = (dir.path().join("etc"), dir.path().join("run"));
    std::fs::create_dir_all(etc.join("sub.yaml")).unwrap();
    for (name, text) in [("b.yaml", "b"), ("a.json", "a"), ("c.txt", "c"), ("bad.yaml", "\u{0}")] {
        std::fs::write(etc.join(name), text).unwrap();
    }
    std::fs::write(etc.join("latin1.json"), b"\xe4").unwrap();
    std::fs::create_dir(&run).unwrap();
    std::fs::write(run.join("r.json"), "r").unwrap();
    let found = crate::cdi::read::sources(&[etc, run, dir.path().join("none")]);
    let names: Vec<_> =
        found.iter().map(|s| (s.path.file_name().unwrap().to_str().unwrap(), s.priority)).collect();
    assert_eq!(names, [("a.json", 0), ("b.yaml", 0), ("bad.yaml", 0), ("latin1.json", 0), ("r.json", 1)]);
    assert!(found[3].text.as_ref().unwrap_err().starts_with("can't be read: "));
    let null = crate::cdi::read::lstat(Path::new("/dev/null")).unwrap();
    assert_eq!((null.kind, null.major, null.minor), ('c', 1, 3));
    assert_eq!(crate::cdi::read::lstat(Path::new("/dev/stdin")), None, "a symlink is no node");
}

proptest! {
    #[test]
    fn never_panics(cut in 0usize..MIG.len(), other in ".{0,40}", whole in ".*") {
        let at = |text: &str| (0..=cut.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap();
        for text in [MIG, DEFAULT, V1_14_6] {
            let broken = format!("{}{other}{}", &text[..at(text)], &text[(at(text) + 7).min(text.len())..]);
            let _ = gather(&[source("/x.yaml", 0, &broken), source("/y.yaml", 0, GDS)], &Wanted::default(), &machine);
        }
        let _ = gather(&[source("/x.yaml", 0, &whole)], &Wanted::default(), &machine);
    }
}
