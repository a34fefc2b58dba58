//! The effect of our edits beside that of NVIDIA's own runtime, in sets: order is nobody's promise.

use super::{DEFAULT, MIG, machine, source, unit};
use crate::cdi::units::{Wanted, gather};
use crate::oci::devices::{Edits, Mount, Vendor};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What a container has in the end, as sets.
fn effect(edits: &[&Edits]) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut sets: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for edits in edits {
        for n in &edits.nodes {
            let numbers = format!("{}:{}", n.major, n.minor);
            let node = format!("{} {} {numbers} {} {} {}", n.path.display(), n.kind, n.mode, n.uid, n.gid);
            sets.entry("nodes").or_default().insert(node);
            sets.entry("rules").or_default().insert(format!("{} {numbers} {}", n.kind, n.permissions));
        }
        let mount = |m: &Mount| format!("{} {} {}", m.host.display(), m.path.display(), m.options.join(","));
        sets.entry("mounts").or_default().extend(edits.mounts.iter().map(mount));
        sets.entry("hooks")
            .or_default()
            .extend(edits.hooks.iter().map(|h| format!("{} {:?}", h.stage, h.args)));
        sets.entry("gids").or_default().extend(edits.gids.iter().map(u32::to_string));
    }
    sets
}

/// The same of a bundle that NVIDIA's runtime has edited.
fn effect_of(bundle: &Value) -> BTreeMap<&'static str, BTreeSet<String>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let mut sets: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for n in list(&bundle["linux"]["devices"]) {
        let numbers = format!("{}:{}", number(&n["major"]), number(&n["minor"]));
        let ids = format!("{} {} {}", number(&n["fileMode"]), number(&n["uid"]), number(&n["gid"]));
        let node = format!("{} {} {numbers} {ids}", text(&n["path"]), text(&n["type"]));
        sets.entry("nodes").or_default().insert(node);
    }
    for rule in list(&bundle["linux"]["resources"]["devices"]).iter().filter(|r| r["allow"] == true) {
        let numbers = format!("{}:{}", number(&rule["major"]), number(&rule["minor"]));
        let rule = format!("{} {numbers} {}", text(&rule["type"]), text(&rule["access"]));
        sets.entry("rules").or_default().insert(rule);
    }
    // What the container has of its own isn't the driver's.
    let driver = |m: &Value| m["options"].to_string().contains("rprivate");
    for m in list(&bundle["mounts"]).iter().filter(|m| driver(m)) {
        let options: Vec<String> = list(&m["options"]).iter().map(text).collect();
        let mount = format!("{} {} {}", text(&m["source"]), text(&m["destination"]), options.join(","));
        sets.entry("mounts").or_default().insert(mount);
    }
    for hook in list(&bundle["hooks"]["createContainer"]) {
        let args: Vec<String> = list(&hook["args"]).iter().map(text).collect();
        sets.entry("hooks").or_default().insert(format!("createContainer {args:?}"));
    }
    let gids = list(&bundle["process"]["user"]["additionalGids"]);
    sets.entry("gids").or_default().extend(gids.iter().map(|g| number(g).to_string()));
    sets
}

#[test]
fn as_nvidias_runtime() {
    let whole = ["0", "1", "2", "3", "4", "5", "6", "7"];
    for (spec, asked, after) in [
        (DEFAULT, &["0"][..], include_str!("../../../tests/cdi/runtime/cdi-index0.json")),
        (DEFAULT, &["0", "3"], include_str!("../../../tests/cdi/runtime/cdi-index0-3.json")),
        (DEFAULT, &whole, include_str!("../../../tests/cdi/runtime/cdi-all.json")),
        (
            DEFAULT,
            &["GPU-5950dd5d-5330-5738-9460-0d05550ffc14"],
            include_str!("../../../tests/cdi/runtime/cdi-uuid.json"),
        ),
        (MIG, &["0:1"], include_str!("../../../tests/cdi/runtime/cdi-mig-0-1.json")),
    ] {
        let wanted = Wanted { cards: true, ..Wanted::default() };
        let found = gather(&[source("/etc/cdi/nvidia.yaml", 0, spec)], &wanted, &machine);
        let mut edits = vec![&found.devices.vendors[&Vendor::Nvidia].edits];
        edits.extend(asked.iter().map(|name| &unit(&found, name).edits));
        let theirs = effect_of(&serde_json::from_str(after).unwrap());
        assert!(theirs["nodes"].len() >= 7 && theirs["mounts"].len() == 48 && theirs["hooks"].len() >= 6);
        for (kind, set) in effect(&edits) {
            assert_eq!(set, theirs[kind], "{kind} of {asked:?}");
        }
    }
}
