//! The controller in one process: hooks of a charm directory on this host.

use emulated_juju::Controller;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const DISPATCH: &str = r#"#!/bin/sh
case "$JUJU_DISPATCH_PATH" in
  *-relation-created) relation-set "where=$WHERE";;
  */start) status-set active; printf 'token: s3cret\n' | secret-add --owner unit --label own --file - || true;;
  */stop) exit 3;;
esac
"#;

/// The probe charm with a dispatch that does something.
fn charm(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/charms/probe");
    let target = folder.join("charm");
    fs::create_dir(&target).unwrap();
    for file in ["metadata.yaml", "config.yaml", "actions.yaml", "manifest.yaml"] {
        fs::copy(source.join(file), target.join(file)).unwrap();
    }
    fs::write(target.join("dispatch"), DISPATCH).unwrap();
    fs::set_permissions(target.join("dispatch"), fs::Permissions::from_mode(0o755)).unwrap();
    target
}

#[test]
fn hooks_run_in_juju_s_order_and_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let charm = charm(folder.path());
    let mut juju = Controller::new("4.0.15.1", Path::new(env!("CARGO_BIN_EXE_emulated-juju"))).unwrap();
    juju.set_extra_env(vec![("WHERE".into(), "here".into())]);
    juju.add_app("pa", &charm).unwrap();
    juju.add_app("pb", &charm).unwrap();
    let unit = juju.add_unit("pa").unwrap();
    juju.add_unit("pb").unwrap();
    let ran = juju.settle().unwrap();
    let own: Vec<&str> =
        ran.iter().filter(|(who, _)| *who == unit).map(|(_, result)| result.hook.as_str()).collect();
    assert_eq!(own, ["install", "ring-relation-created", "leader-elected", "config-changed", "start"]);
    assert_eq!(juju.juju(&["integrate", "pa:src", "pb:snk"]).rc, 0);
    juju.settle().unwrap();
    assert_eq!(juju.model().relations[&2].bags["pa/0"].data["where"], "here");
    let secret = juju.model().secrets.values().next().unwrap().clone();
    assert_eq!((secret.label.as_str(), secret.revisions[&1]["token"].as_str()), ("own", "s3cret"));
    let result = juju.run_hook(&unit, "start").unwrap();
    assert_eq!(result.rc, 0, "the label is taken, which the charm does not mind: {}", result.stderr);
    let calls: Vec<String> = result.calls.iter().map(|call| format!("{} {}", call.tool, call.rc)).collect();
    assert_eq!(calls, ["status-set 0", "secret-add 1"]);
    assert!(!format!("{:?}", result.calls).contains("s3cret"), "standard input is no argument");
    assert_eq!(juju.run_hook(&unit, "stop").unwrap().rc, 3);
    let status = juju.juju(&["status"]);
    assert!(status.out.contains("hook failed: \"stop\""), "{}", status.out);
    assert_eq!(juju.juju(&["resolved", "pa/0", "--no-retry"]).rc, 0);
    assert!(juju.settle().unwrap().is_empty());
}
