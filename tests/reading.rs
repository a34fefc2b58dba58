//! What the charm asks Juju for and what becomes of the answers, with hook tools of its own.

#![allow(missing_docs)]

use concourse_ci_machine::event::Context;
use concourse_ci_machine::juju::memory::{Memory, PEERS, Stale};
use concourse_ci_machine::juju::read::refresh;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Tools are found by the PATH, and that is the process's: so each reading is done by a process of its own, which is
/// this program once more with this variable.
const MEMORY: &str = "TEST_MEMORY";

/// Two relations of an endpoint, of which the second reaches this unit from another model.
const TOOLS: [(&str, &str); 4] = [
    ("relation-ids", r#"case $2 in web-tsa) echo '["web-tsa:1","web-tsa:2"]';; *) echo '[]';; esac"#),
    ("relation-list", r#"case $* in *--app) echo '"worker"';; *) echo '[]';; esac"#),
    (
        "network-get",
        r#"case $* in
        '--format=json web-tsa --ingress-address -r web-tsa:1') echo '"10.1.0.1"';;
        '--format=json web-tsa --ingress-address -r web-tsa:2') echo '"203.0.113.9"';;
        '--format=json concourse-peer --ingress-address') echo '"10.0.0.5"';;
        *) exit 1;;
        esac"#,
    ),
    ("resource-get", "cat resource"),
];

/// A unit that is told to read everything.
struct Unit(TempDir);

impl Unit {
    fn new() -> Self {
        let unit = Unit(tempfile::tempdir().unwrap());
        fs::write(unit.path("memory"), serde_json::to_string(&Memory::default()).unwrap()).unwrap();
        for (name, script) in TOOLS {
            unit.tool(name, script);
        }
        unit
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn tool(&self, name: &str, script: &str) {
        let tool = self.path(name);
        fs::write(&tool, format!("#!/bin/sh\ncd {}\n{script}\n", self.0.path().display())).unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What it knows then.
    fn reads(&self) -> Memory {
        let path = format!("{}:/usr/bin:/bin", self.0.path().display());
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "a_reading"]).env("PATH", path).env(MEMORY, self.path("memory"));
        let out = again.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
        serde_json::from_str(&fs::read_to_string(self.path("memory")).unwrap()).unwrap()
    }
}

/// Done by [`Unit::reads`]; by itself it has nothing to read.
#[test]
fn a_reading() {
    let Some(file) = std::env::var_os(MEMORY) else { return };
    let file = Path::new(&file);
    let env = [("JUJU_DISPATCH_PATH", "hooks/upgrade-charm"), ("JUJU_UNIT_NAME", "web/0")];
    let others = ["JUJU_MODEL_NAME", "JUJU_MODEL_UUID", "JUJU_CHARM_DIR"].map(|name| (name, "x"));
    let env = env.into_iter().chain(others).map(|(name, value)| (name.to_owned(), value.to_owned()));
    let context = Context::from_env(&env.collect()).unwrap();
    let mut memory = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    refresh(&mut memory, &context, &Stale { everything: true, ..Stale::default() }).unwrap();
    fs::write(file, serde_json::to_string(&memory).unwrap()).unwrap();
}

#[test]
fn each_relation_is_told_the_address_by_which_it_reaches_this_unit() {
    let unit = Unit::new();
    fs::write(unit.path("resource"), "/resources/concourse.tgz\n").unwrap();
    let told = [("web-tsa:1", "10.1.0.1"), ("web-tsa:2", "203.0.113.9"), (PEERS, "10.0.0.5")];
    let told = BTreeMap::from(told.map(|(of, address)| (of.to_owned(), address.parse().unwrap())));
    assert_eq!(unit.reads().addresses, told);

    // Juju does not know it for a moment: what was told before is still the best there is.
    unit.tool("network-get", "exit 1");
    assert_eq!(unit.reads().addresses, told);
}

#[test]
fn a_resource_that_cannot_be_got_is_the_one_that_was() {
    let unit = Unit::new();
    fs::write(unit.path("resource"), "/resources/concourse.tgz\n").unwrap();
    let path = Some("/resources/concourse.tgz".into());
    assert_eq!(unit.reads().resource, path);
    for failing in ["echo 'could not download resource' >&2; exit 1", "true"] {
        unit.tool("resource-get", failing);
        assert_eq!(unit.reads().resource, path, "{failing}");
    }
}

#[test]
fn no_resource_is_no_failure() {
    let unit = Unit::new();
    unit.tool("resource-get", "echo 'resource \"concourse\" not found' >&2; exit 1");
    assert_eq!(unit.reads().resource, None);
}
