//! The order of events, as plain tables: no processes, only the model and what it would run next.

mod sim;

use emulated_juju::Outcome;
use emulated_juju::model::Operation;
use emulated_juju::time::now;
use sim::Sim;
use std::collections::BTreeMap;

const BOTH: [&str; 2] = ["4.0.15.1", "3.6.27"];

#[test]
fn a_first_unit_leads_and_a_second_does_not() {
    for version in BOTH {
        let mut sim = Sim::new(version);
        sim.deploy("pa", 1);
        let first = ["install", "ring-relation-created", "leader-elected", "config-changed", "start"];
        assert_eq!(sim.settle(), first.map(|hook| format!("pa/0 {hook}")), "{version}");
        sim.add_unit("pa");
        let ran = sim.settle();
        let own: Vec<&str> = ran.iter().filter_map(|step| step.strip_prefix("pa/1 ")).collect();
        let mut wanted = vec!["install", "ring-relation-created"];
        wanted.extend((version == "3.6.27").then_some("leader-settings-changed"));
        wanted.extend(["config-changed", "start", "ring-relation-joined pa/0", "ring-relation-changed pa/0"]);
        assert_eq!(own, wanted, "{version}");
        let others: Vec<&str> = ran.iter().filter_map(|step| step.strip_prefix("pa/0 ")).collect();
        assert_eq!(others, ["ring-relation-joined pa/1", "ring-relation-changed pa/1"], "{version}");
    }
}

#[test]
fn a_relation_is_created_joined_and_changed_then_quiet() {
    let mut sim = Sim::new("4.0.15.1");
    sim.deploy("pa", 1);
    sim.deploy("pb", 1);
    sim.settle();
    sim.model.relate("pa:src", "pb:snk").unwrap();
    let wanted = [
        "pa/0 src-relation-created",
        "pb/0 snk-relation-created",
        "pa/0 src-relation-joined pb/0",
        "pa/0 src-relation-changed pb/0",
        "pb/0 snk-relation-joined pa/0",
        "pb/0 snk-relation-changed pa/0",
    ];
    assert_eq!(sim.settle(), wanted);
    sim.exec("pa/0", "relation-set -r src:2 key=value");
    assert_eq!(sim.settle(), ["pb/0 snk-relation-changed pa/0"], "data moved");
    sim.exec("pa/0", "relation-set -r src:2 key=value");
    assert!(sim.settle().is_empty(), "nothing moved");
    sim.exec("pa/0", "relation-set -r src:2 --app key=value");
    assert_eq!(sim.settle(), ["pb/0 snk-relation-changed"], "application data");
}

#[test]
fn a_leader_hears_of_its_own_peer_data_only_in_4() {
    for (version, wanted) in [("4.0.15.1", vec!["pa/0 ring-relation-changed"]), ("3.6.27", vec![])] {
        let mut sim = Sim::new(version);
        sim.deploy("pa", 1);
        sim.settle();
        sim.exec("pa/0", "relation-set -r ring:0 --app key=value");
        assert_eq!(sim.settle(), wanted, "{version}");
        sim.exec("pa/0", "relation-set -r ring:0 key=value");
        assert!(sim.settle().is_empty(), "its own unit data is never news");
    }
}

#[test]
fn a_unit_that_leaves_departs_first_and_the_others_hear_of_it_after() {
    let mut sim = Sim::new("4.0.15.1");
    sim.writes.push(("-relation-departed", "relation-set late=word"));
    sim.deploy("pa", 2);
    sim.deploy("pb", 1);
    sim.settle();
    sim.model.relate("pa:src", "pb:snk").unwrap();
    sim.settle();
    sim.model.remove_unit("pa/0").unwrap();
    let wanted = [
        "pa/0 ring-relation-departed pa/1 (pa/0 departs)",
        "pa/0 src-relation-departed pb/0 (pa/0 departs)",
        "pa/0 src-relation-broken",
        "pa/0 stop",
        "pa/0 remove",
        "pa/1 leader-elected",
        "pa/1 ring-relation-departed pa/0 (pa/0 departs)",
        "pb/0 snk-relation-departed pa/0 (pa/0 departs)",
    ];
    let ran = sim.settle();
    assert_eq!(ran[..wanted.len()], wanted);
    let rest = ["pa/1 src-relation-changed pb/0"];
    assert_eq!(ran[wanted.len()..], rest, "pb/0 wrote in its own -departed");
}

#[test]
fn a_relation_that_goes_departs_every_unit_then_breaks() {
    let mut sim = Sim::new("4.0.15.1");
    sim.deploy("pa", 2);
    sim.deploy("pb", 1);
    sim.settle();
    let id = sim.model.relate("pa:src", "pb:snk").unwrap();
    sim.settle();
    sim.model.remove_relation(id);
    let wanted = [
        "pa/0 src-relation-departed pb/0 (pb/0 departs)",
        "pa/0 src-relation-broken",
        "pa/1 src-relation-departed pb/0 (pb/0 departs)",
        "pa/1 src-relation-broken",
        "pb/0 snk-relation-departed pa/0 (pa/0 departs)",
        "pb/0 snk-relation-departed pa/1 (pa/1 departs)",
        "pb/0 snk-relation-broken",
    ];
    assert_eq!(sim.settle(), wanted);
    assert!(!sim.model.relations.contains_key(&id));
}

#[test]
fn options_refresh_resource_and_boot_each_have_their_hooks() {
    for version in BOTH {
        let mut sim = Sim::new(version);
        sim.deploy("pa", 1);
        sim.settle();
        sim.model.set_config("pa", BTreeMap::from([("num".into(), 9.into())]));
        let times = if version == "3.6.27" { 1 } else { 2 };
        assert_eq!(sim.settle(), vec!["pa/0 config-changed"; times], "{version}");
        sim.model.set_config("pa", BTreeMap::from([("num".into(), 9.into())]));
        assert!(sim.settle().is_empty(), "the same value again");
        sim.model.applications.get_mut("pa").unwrap().modified += 1;
        assert_eq!(sim.settle(), ["pa/0 upgrade-charm", "pa/0 config-changed"], "{version}");
        sim.model.greeted("0", "first boot", None);
        assert!(sim.settle().is_empty(), "a new agent is no boot");
        sim.model.greeted("0", "second boot", None);
        assert_eq!(sim.settle(), ["pa/0 start"], "{version}");
    }
}

#[test]
fn a_failed_hook_runs_again_and_leaves_nothing_but_its_status() {
    let mut sim = Sim::new("4.0.15.1");
    sim.deploy("pa", 1);
    sim.settle();
    sim.failing.insert("config-changed");
    sim.model.set_config("pa", BTreeMap::from([("num".into(), 9.into())]));
    for call in [
        "relation-set -r ring:0 x=1",
        "state-set k=v",
        "open-port 80",
        "secret-add --owner unit token=abc",
        "status-set blocked why",
        "application-version-set 9.9",
    ] {
        sim.writes.push(("config-changed", call));
    }
    assert_eq!(sim.step().as_deref(), Some("pa/0 config-changed"));
    let unit = sim.model.units["pa/0"].clone();
    assert_eq!(unit.local.failed.as_ref().unwrap().tries, 1);
    assert!(unit.state.is_empty() && unit.ports.is_empty() && sim.model.secrets.is_empty());
    assert!(!sim.model.relations[&0].bags["pa/0"].data.contains_key("x"));
    assert_eq!(
        (unit.status.word.as_str(), sim.model.applications["pa"].workload_version.as_str()),
        ("blocked", "9.9")
    );
    assert_eq!(sim.model.workload_status(&unit).message, "hook failed: \"config-changed\"");
    sim.model.enqueue_action("pa/0", "crash", serde_json::json!({})).unwrap();
    assert_eq!(sim.step().as_deref(), Some("pa/0 crash"), "actions run in the middle of a hook error");
    assert_eq!(sim.step().as_deref(), Some("pa/0 config-changed"), "the same hook again");
    sim.failing.clear();
    assert_eq!(sim.settle(), ["pa/0 config-changed", "pa/0 config-changed"]);
    assert!(sim.model.units["pa/0"].state.contains_key("k"));
}

#[test]
fn what_a_boot_cut_off_runs_again_before_start() {
    let mut sim = Sim::new("4.0.15.1");
    sim.deploy("pa", 1);
    sim.settle();
    sim.model.greeted("0", "first boot", None);
    sim.model.set_config("pa", BTreeMap::from([("num".into(), 9.into())]));
    let operation = sim.model.next_operation("pa/0", now()).unwrap();
    sim.model.begin("pa/0", operation);
    sim.model.greeted("0", "second boot", None);
    assert_eq!(sim.settle(), ["pa/0 config-changed", "pa/0 start", "pa/0 config-changed"]);
}

#[test]
fn leadership_moves_and_a_late_loser_cannot_commit() {
    let mut sim = Sim::new("4.0.15.1");
    sim.deploy("pa", 2);
    sim.settle();
    sim.model.elect("pa", Some("pa/1"));
    assert_eq!(sim.settle(), ["pa/1 leader-elected"]);
    let task = sim.model.enqueue_exec("pa/1", "").unwrap();
    let context = sim.model.begin("pa/1", Operation::Exec(task));
    assert_eq!(sim.call(&context, "relation-set -r ring:0 --app k=v").rc, 0);
    sim.model.elect("pa", Some("pa/0"));
    sim.model.finish(&context, &Outcome::default());
    assert!(sim.model.actions[&task].message.contains("not leader"));
    assert!(!sim.model.relations[&0].bags["pa"].data.contains_key("k"));
}

#[test]
fn a_new_revision_is_told_to_who_read_the_old_one() {
    let mut sim = Sim::new("4.0.15.1");
    sim.deploy("pa", 1);
    sim.deploy("pb", 1);
    sim.settle();
    sim.model.relate("pa:src", "pb:snk").unwrap();
    sim.settle();
    let added = sim.exec("pa/0", "secret-add --label one token=abc");
    let id = added.stdout.trim().rsplit('/').next().unwrap().to_string();
    assert_eq!(sim.exec("pb/0", &format!("secret-get {id}")).stderr, "ERROR permission denied\n");
    sim.exec("pa/0", &format!("secret-grant {id} -r src:2"));
    assert_eq!(sim.exec("pb/0", &format!("secret-get {id} --label mine")).stdout, "token: abc\n");
    sim.exec("pa/0", &format!("secret-set {id} token=def"));
    assert_eq!(sim.settle(), ["pb/0 secret-changed"]);
    assert_eq!(sim.exec("pb/0", "secret-get --label mine").stdout, "token: abc\n");
    assert_eq!(sim.exec("pb/0", "secret-get --label mine --peek").stdout, "token: def\n");
    assert!(sim.settle().is_empty(), "a peek moves nothing");
    assert_eq!(sim.exec("pb/0", "secret-get --label mine --refresh").stdout, "token: def\n");
    assert_eq!(sim.settle(), ["pa/0 secret-remove"], "nobody uses the first revision any more");
    sim.exec("pa/0", &format!("secret-set {id} token=def"));
    assert!(sim.settle().is_empty(), "the same content makes no revision");
    let relation = sim.model.find_relation("pa:src", "pb:snk").unwrap();
    sim.model.remove_relation(relation);
    sim.settle();
    assert_eq!(sim.exec("pb/0", &format!("secret-get {id}")).stderr, "ERROR permission denied\n");
}

#[test]
fn the_two_jujus_differ_where_they_do() {
    let rows = [
        ("state-get --format=json", "null\n", "{}\n"),
        (
            "secret-get --label no",
            "ERROR secret URI for consumer label \"no\" not found\n",
            "ERROR consumer label \"no\" not found\n",
        ),
        (
            "leader-get --format=json",
            "ERROR bad request: bad command: unknown command \"leader-get\"\n",
            "{}\n",
        ),
        ("relation-get -r ring:0 private-address pa/0", "", "10.0.0.11\n"),
    ];
    for (call, four, three) in rows {
        for (version, wanted) in [("4.0.15.1", four), ("3.6.27", three)] {
            let mut sim = Sim::new(version);
            sim.deploy("pa", 1);
            sim.settle();
            let reply = sim.exec("pa/0", call);
            assert_eq!(format!("{}{}", reply.stdout, reply.stderr), wanted, "{version}: {call}");
        }
    }
}
