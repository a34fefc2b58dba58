//! Controller, agents and client as real processes on this host, each agent with a root directory of its own.

mod lab;

use lab::{Lab, PROGRAM, start_controller};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

#[test]
fn a_life_with_real_processes() {
    let mut lab = Lab::new();
    lab.ok("add-machine -n 2");
    lab.agent(0);
    lab.agent(1);
    fs::write(lab.folder.path().join("blob.txt"), "blob").unwrap();
    lab.ok("deploy ./probe.charm pa --to 0 --resource blob=./blob.txt");
    lab.ok("deploy ./probe.charm pb --to 1 --config num=9");
    lab.settle();
    assert_eq!(
        lab.hooks("pa/0")[..5],
        ["install", "ring-relation-created", "leader-elected", "config-changed", "start"]
    );
    let status = lab.ok("status");
    let row = |text: &str, name: &str| {
        text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_string()
    };
    assert!(row(&status, "pa/0*").contains("active    idle   0        127.0.0.1       8080/tcp"), "{status}");
    assert!(row(&status, "pa  ").ends_with("app is fine"), "{status}");

    lab.ok("integrate pa:src pb:snk");
    lab.settle();
    assert_eq!(lab.ok("exec --unit pa/0 -- relation-get -r src:2 foo pb/0; config-get num"), "bar\n7\n");
    assert_eq!(lab.ok("exec --unit pb/0 -- config-get num"), "9\n");
    let path = lab.ok("exec --unit pa/0 -- resource-get blob");
    assert_eq!(fs::read_to_string(&path).unwrap(), "blob");
    assert!(path.ends_with("/var/lib/juju/agents/unit-pa-0/resources/blob.txt"), "{path}");
    let env = lab.ok("exec --unit pa/0 -- env");
    assert!(!env.contains("\nHOME=") && !env.contains("\nUSER="), "{env}");
    let log = lab.ok("debug-log --include pa/0");
    assert!(
        log.contains("DEBUG unit.pa/0.install out") && log.contains("WARNING unit.pa/0.install err"),
        "{log}"
    );

    lab.ok("attach-resource pa blob=./blob.txt");
    lab.settle();
    assert_eq!(
        lab.hooks("pa/0").iter().rev().take(2).collect::<Vec<_>>(),
        ["config-changed", "upgrade-charm"]
    );
    let root = lab.folder.path().join("m1");
    let exec = Command::new(PROGRAM)
        .args([
            "juju-exec",
            "pb/0",
            "is-leader; env | grep -c ^JUJU_ACTION; pwd | grep -o pb-0/charm; exit 4",
        ])
        .env("JUJU_EMULATED_ROOT", &root)
        .output()
        .unwrap();
    assert_eq!((exec.status.code(), exec.stdout.as_slice()), (Some(4), b"True\n0\npb-0/charm\n".as_slice()));
    let inside = Command::new(PROGRAM)
        .args(["juju-exec", "pb/0", "true"])
        .env("JUJU_EMULATED_ROOT", root)
        .env("JUJU_CONTEXT_ID", "pb/0-start-1")
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&inside.stderr).contains("cannot be called from within a hook"),
        "{inside:?}"
    );

    lab.ok("emulate fail-tool pa/0 is-leader --times 1 --text no\u{1}answer");
    assert_eq!(
        lab.juju("exec --unit pa/0 -- is-leader").stderr.split(|b| *b == b'\n').next(),
        Some(b"ERROR no answer".as_slice())
    );
    lab.ok("remove-application pa");
    lab.settle();
    lab.wait_for("the unit's files gone", |lab| {
        !lab.folder.path().join("m0/var/lib/juju/agents/unit-pa-0").exists()
    });
    assert_eq!(lab.hooks("pa/0").last().unwrap(), "remove");
}

#[test]
fn actions_print_what_juju_prints() {
    let mut lab = Lab::new();
    lab.agent(0);
    lab.wait_for("a machine", |lab| lab.dump()["machines"]["0"]["started"] == true);
    lab.ok("deploy ./probe.charm pa --to 0");
    lab.settle();
    let wanted = "a: \"1\"\nb:\n  c: two\n  d: three\nj: '{\"k\":1}'\nsp: x y\n\nto stdout\nto stderr\n";
    assert_eq!(lab.ok("run pa/0 probe"), wanted);
    assert_eq!(lab.ok("run pa/leader bad"), "Action id 3 failed: second\nr: partial\n\n");
    let crash = lab.juju("run pa/0 crash");
    assert_eq!(
        (crash.status.code(), crash.stdout),
        (Some(1), b"Action id 5 failed: exit status 3\n\nboom\n".to_vec())
    );
    let json: Value = serde_json::from_str(&lab.ok("run pa/0 probe --format=json msg=hi cnt=5")).unwrap();
    assert_eq!(json["pa/0"]["results"]["b"]["c"], "two");
    assert_eq!(json["pa/0"]["results"]["stdout"], "to stdout\n");
    let refused = [
        ("run pa/0 nosuch", 1, "ERROR action \"nosuch\" not defined for unit \"pa/0\". (not found)"),
        ("config pa num=abc", 1, "ERROR option \"num\" expected int, got \"abc\""),
        ("config pa nosuch=1", 1, "ERROR invalid application config: unknown option \"nosuch\""),
        ("add-secret mysec token=abc k2=v", 2, "ERROR key \"k2\" not valid"),
        ("deploy .", 1, "ERROR attempting to deploy \".\": deploying from directory not supported"),
        ("refresh pa", 2, "ERROR --path is required: only local charms are emulated"),
    ];
    for (line, rc, text) in refused {
        assert_eq!(lab.refused(line), (rc, text.to_string()), "{line}");
    }
    let wrong = lab.ok("run pa/0 probe cnt=abc nosuch=1");
    assert_eq!(
        wrong,
        "Action id 9 failed: cannot run \"probe\" action: validation failed: (root).cnt : must be of type integer, given \
         \"abc\"; (root) : additional property \"nosuch\" is not allowed, given {\"cnt\":\"abc\",\"nosuch\":1}\n"
    );
}

#[test]
fn failures_are_shown_retried_and_resolved() {
    let mut lab = Lab::new();
    lab.agent(0);
    lab.wait_for("a machine", |lab| lab.dump()["machines"]["0"]["started"] == true);
    lab.charm("noexec", 0o644);
    lab.ok("deploy ./noexec.charm noexec --to 0");
    lab.wait_for("an error", |lab| lab.ok("status").contains("hook failed: \"install\""));
    lab.ok("remove-unit noexec/0");
    assert!(lab.ok("status").contains("noexec/0"), "a unit in error stays until it is resolved");
    lab.ok("remove-unit noexec/0 --force --no-prompt");
    assert!(!lab.ok("status").contains("noexec/0"));
    lab.ok("deploy ./probe.charm pa --to 0 --config str-def=boom");
    lab.wait_for("an error", |lab| lab.ok("status").contains("hook failed: \"config-changed\""));
    lab.ok("run pa/0 probe");
    let (rc, text) = lab.refused("emulate settle --timeout 1s");
    assert!(rc == 1 && text.contains("config-changed"), "{text}");
    assert!(
        lab.hooks("pa/0").iter().filter(|hook| *hook == "config-changed").count() > 1,
        "it is tried again"
    );
    assert!(lab.dump()["units"]["pa/0"]["state"].get("lost").is_none());
    lab.ok("model-config automatically-retry-hooks=false");
    lab.ok("config pa str-def=fine");
    lab.wait_for("an end of the retries", |lab| {
        let failed = &lab.dump()["units"]["pa/0"]["local"]["failed"];
        failed.is_null() || failed["retry_at"].is_null()
    });
    if !lab.dump()["units"]["pa/0"]["local"]["failed"].is_null() {
        lab.ok("resolved pa/0");
    }
    lab.wait_for("the start", |lab| lab.hooks("pa/0").contains(&"start".to_string()));
}

#[test]
fn agents_and_controller_may_be_killed() {
    let mut lab = Lab::new();
    lab.agent(0);
    lab.wait_for("a machine", |lab| lab.dump()["machines"]["0"]["started"] == true);
    lab.ok("deploy ./probe.charm pa --to 0");
    lab.settle();
    let marks = lab.folder.path().join("marks");
    lab.ok(&format!("config pa str-def=slow str-none={}", marks.display()));
    lab.wait_for("a slow hook", |_| marks.exists());
    lab.agents[0].kill().unwrap();
    lab.agents[0].wait().unwrap();
    lab.agent(0);
    lab.settle();
    // The one that was cut off, the same again, and the second that 4.0 fires.
    assert_eq!(fs::read_to_string(&marks).unwrap().lines().count(), 3);
    let saved =
        |lab: &Lab| fs::read_to_string(lab.folder.path().join("state/model.json")).unwrap_or_default();
    lab.wait_for("the model saved", |lab| saved(lab).contains("marks"));
    lab.controller.kill().unwrap();
    lab.controller.wait().unwrap();
    lab.controller = start_controller(lab.folder.path(), &lab.address);
    lab.wait_for("the agent back", |lab| lab.ok("status").contains("started"));
    assert_eq!(lab.ok("exec --unit pa/0 -- config-get str-def"), "slow\n");
}

#[test]
fn hooks_and_actions_may_be_killed() {
    let mut lab = Lab::new();
    lab.agent(0);
    lab.wait_for("a machine", |lab| lab.dump()["machines"]["0"]["started"] == true);
    lab.ok("deploy ./probe.charm pa --to 0");
    lab.settle();
    lab.ok("run pa/0 sleepy --background");
    lab.wait_for("the action", |lab| lab.dump()["actions"]["1"]["status"] == "Running");
    lab.ok("cancel-task 1");
    lab.wait_for("its end", |lab| lab.dump()["actions"]["1"]["status"] == "Aborted");
    let marks = lab.folder.path().join("marks");
    lab.ok(&format!("config pa str-def=slow str-none={}", marks.display()));
    lab.wait_for("a slow hook", |_| marks.exists());
    lab.ok("emulate kill pa/0");
    lab.settle();
    let all: Value = serde_json::from_str(&lab.ok("emulate hooks pa/0 --json")).unwrap();
    let ends: Vec<i64> =
        all.as_array().unwrap().iter().rev().take(3).map(|hook| hook["rc"].as_i64().unwrap()).collect();
    assert_eq!(ends, [0, 0, -1], "killed, then twice to its end");
}

#[test]
fn a_tool_without_a_hook_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("config-get");
    symlink(PROGRAM, &tool).unwrap();
    let output = Command::new(tool).output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(1), b"ERROR JUJU_CONTEXT_ID not set\n".to_vec()));
}
