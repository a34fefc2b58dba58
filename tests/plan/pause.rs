//! Goldens of the pause: workers stand still while their web node restarts.

use crate::kit::model::Model;
use crate::kit::unit::{KEYS, TestUnit};
use concourse_ci_machine::actions::{Action, answer, steps};
use concourse_ci_machine::event::Goal;
use concourse_ci_machine::parse::Moment;
use concourse_ci_machine::paths;
use concourse_ci_machine::world::{Role, Worker};
use insta::assert_snapshot;

fn act(unit: &mut TestUnit, action: &Action) {
    let first = steps(action, &unit.world).unwrap();
    Model::default().carry_out(&mut unit.world, &first);
}

#[test]
fn a_web_node_asks_and_restarts_with_the_last_answer() {
    let mut unit = TestUnit::web().worker("gpu/0", KEYS[1]).settled().database("n3w");
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    write /etc/concourse/web.env 640 RootConcourse
    look again in 20 s
    publish web-tsa:3: pause
    publish web-tsa:6: pause
    ");
    assert_eq!(unit.world.record.unit_bags["web-tsa:6"]["pause"], "1000");
    assert_snapshot!(unit.status(), @"waiting: Waiting for gpu/0 and 1 more to pause, then the web node restarts");
    // Whatever else happens to options: one pause is enough.
    let mut unit = unit.database("n3wer");
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"write /etc/concourse/web.env 640 RootConcourse");
    let mut unit = unit.answered("1000");
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    say maintenance: Restarting the web node...
    restart concourse-web.service
    publish web-tsa:3: pause
    publish web-tsa:6: pause
    ");
    assert!(!unit.world.record.unit_bags["web-tsa:6"].contains_key("pause"));
    assert_eq!(unit.plan(), "nothing");
}

#[test]
fn not_every_answer_is_one() {
    for other in ["", "999", "yes", "1000,1001"] {
        let mut unit = TestUnit::web().database("n3w");
        unit.hook(Goal::Run);
        assert_eq!(unit.answered(other).plan(), "nothing", "{other}");
    }
    let unit = TestUnit::web().answered("yes");
    assert_eq!(unit.plan(), "nothing");
    assert_snapshot!(unit.status(), @r#"blocked: A worker's data can't be used: web-tsa:6: worker/0 says paused that is bad: "yes" is no moment; write the seconds since 1970"#);
}

#[test]
fn a_worker_that_never_answers_is_not_waited_for_for_ever() {
    for later in [1020, 1_000_000, 10] {
        let mut unit = TestUnit::web().database("n3w");
        unit.hook(Goal::Run);
        unit.world.now = Moment::new(1019);
        assert_eq!(unit.plan(), "nothing");
        unit.world.now = Moment::new(later);
        assert!(unit.plan().contains("restart concourse-web.service"), "{later}: {}", unit.plan());
        unit.hook(Goal::Run);
        assert_eq!(unit.plan(), "nothing");
    }
}

#[test]
fn nobody_is_asked_for_a_web_node_that_does_not_answer() {
    let mut unit = TestUnit::web().database("n3w");
    unit.world.machine.web = None;
    assert!(unit.plan().contains("restart concourse-web.service"), "{}", unit.plan());
}

#[test]
fn what_is_asked_no_more_is_taken_back() {
    let mut unit = TestUnit::web().database("n3w");
    unit.hook(Goal::Run);
    let mut unit = unit.database("s3cret");
    unit.hook(Goal::Run);
    assert!(!unit.world.record.unit_bags["web-tsa:6"].contains_key("pause"));
}

#[test]
fn a_new_host_key_is_told_with_the_restart() {
    let mut unit = TestUnit::web();
    let told = unit.world.record.unit_bags["web-tsa:6"]["tsa-public-key"].clone();
    let content = unit.world.memory.secrets["concourse-keys"].clone();
    let id = "concourse-keys".to_owned();
    let mut other = content;
    other.insert("tsa-public-key".into(), KEYS[0].into());
    other.insert("tsa-host-key".into(), "another".into());
    crate::kit::unit::memory(&mut unit.world).secrets.insert(id, other);
    unit.hook(Goal::Run);
    assert_eq!(unit.world.record.unit_bags["web-tsa:6"]["tsa-public-key"], told);
    let mut unit = unit.answered("1000");
    unit.hook(Goal::Run);
    assert_eq!(unit.world.record.unit_bags["web-tsa:6"]["tsa-public-key"], KEYS[0]);
}

#[test]
fn a_worker_stops_answers_and_comes_back() {
    let mut unit = TestUnit::worker_unit().asked("1000");
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    write /run/concourse-ci-machine/pause 644 Root
    pause concourse-worker.service
    --
    publish worker-tsa:1: paused
    ");
    assert_snapshot!(unit.status(), @"waiting: Waiting for the web node to restart");
    assert_eq!(unit.world.record.unit_bags["worker-tsa:1"]["paused"], "1000");
    // New settings wait.
    let mut unit = unit.config("log-level", "debug");
    assert_eq!(unit.plan(), "nothing");
    unit = unit.asked("");
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    write /etc/concourse/worker.env 600 Root
    remove /run/concourse-ci-machine/pause
    say maintenance: Starting the worker...
    restart concourse-worker.service
    publish worker-tsa:1: paused
    ");
    assert_snapshot!(unit.status(), @"active: Worker ready");
    assert_eq!(unit.plan(), "nothing");
}

#[test]
fn a_worker_that_paused_for_a_new_version_starts_with_it() {
    let mut unit = TestUnit::worker_unit().asked("1000");
    unit.hook(Goal::Run);
    let bag: &[(&str, &str)] =
        &[("tsa-host", "10.0.0.5:2222"), ("tsa-public-key", KEYS[1]), ("concourse-version", "8.2.6")];
    let mut unit = unit.related("worker-tsa:1", "web", &[], &[("web/0", bag)]);
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    say maintenance: Installing Concourse 8.2.6...
    install 8.2.6 from a URL
    publish worker-tsa:1: paused
    --
    switch to 8.2.6, keep 8.2.5
    --
    remove /run/concourse-ci-machine/pause
    say maintenance: Starting the worker...
    restart concourse-worker.service
    --
    write /var/lib/concourse/charm/proven-version 644 Root
    --
    tell version 8.2.6
    ");
}

#[test]
fn both_workers_of_a_unit_pause() {
    let mut unit = TestUnit::two_workers().asked("1000");
    unit.hook(Goal::Run);
    assert!(unit.world.machine.connected.is_empty());
    assert_eq!(unit.world.record.unit_bags["worker-tsa:1"]["paused"], "1000");
    let mut unit = unit.asked("");
    unit.hook(Goal::Run);
    assert_snapshot!(unit.status(), @"active: Worker ready");
}

#[test]
fn a_worker_that_came_back_by_itself_is_left_alone() {
    let mut unit = TestUnit::worker_unit().asked("1000");
    unit.hook(Goal::Run);
    let service = unit.world.machine.services.get_mut(&Role::Worker).unwrap();
    (service.active, service.changing) = (true, false);
    unit.world.machine.connected.insert(Worker::Main);
    assert_snapshot!(unit.plan(), @"remove /run/concourse-ci-machine/pause");
    unit.hook(Goal::Run);
    assert_snapshot!(unit.status(), @"active: Worker ready");
    // Another restart is another pause.
    assert_snapshot!(unit.asked("1100").hook(Goal::Run).join("\n--\n"), @"
    write /run/concourse-ci-machine/pause 644 Root
    pause concourse-worker.service
    publish worker-tsa:1: paused
    --
    publish worker-tsa:1: paused
    ");
}

#[test]
fn an_ask_that_is_none_changes_nothing() {
    for nonsense in ["soon", "-1", "99999999999999999999999"] {
        let unit = TestUnit::worker_unit().asked(nonsense);
        assert_eq!(unit.plan(), "nothing", "{nonsense}");
    }
    assert_snapshot!(TestUnit::worker_unit().asked("soon").status(), @r#"blocked: A web node's data can't be used: worker-tsa:1: web/0 says pause that is bad: "soon" is no moment; write the seconds since 1970"#);
}

#[test]
fn who_does_not_run_answers_at_once() {
    let mut unit = TestUnit::worker_unit();
    let drain = Action::parse("drain", &serde_json::Map::new()).unwrap();
    act(&mut unit, &drain);
    unit.hook(Goal::Run);
    assert_snapshot!(unit.asked("1000").plan(), @"publish worker-tsa:1: paused");
}

#[test]
fn in_one_unit_it_is_one_plan() {
    let mut unit = TestUnit::new("ci/0", "all").database("s3cret").settled().database("n3w");
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    write /etc/concourse/web.env 640 RootConcourse
    write /run/concourse-ci-machine/pause 644 Root
    pause concourse-worker.service
    say maintenance: Restarting the web node...
    restart concourse-web.service
    --
    remove /run/concourse-ci-machine/pause
    say maintenance: Starting the worker...
    restart concourse-worker.service
    ");
    assert_eq!(unit.plan(), "nothing");
    assert!(unit.world.file(paths::PAUSE).is_none());
}

#[test]
fn peers_do_the_same() {
    let worker: &[(&str, &str)] = &[("worker-public-key", KEYS[0])];
    let mut web = TestUnit::new("ci/0", "auto").database("s3cret").related(
        "concourse-peer:0",
        "ci",
        &[],
        &[("ci/1", worker)],
    );
    web = web.settled().database("n3w");
    assert_snapshot!(web.plan(), @"
    write /etc/concourse/web.env 640 RootConcourse
    look again in 20 s
    publish concourse-peer:0: pause
    ");
    let asks: &[(&str, &str)] = &[("tsa-host", "10.0.0.5:2222"), ("tsa-public-key", KEYS[1])];
    let mut worker = TestUnit::new("ci/1", "auto");
    worker.world.leader = false;
    let worker = worker.related("concourse-peer:0", "ci", &[], &[("ci/0", asks)]).settled();
    let asks: &[(&str, &str)] =
        &[("tsa-host", "10.0.0.5:2222"), ("tsa-public-key", KEYS[1]), ("pause", "1000")];
    let mut worker = worker.related("concourse-peer:0", "ci", &[], &[("ci/0", asks)]);
    assert_snapshot!(worker.hook(Goal::Run).join("\n--\n"), @"
    write /run/concourse-ci-machine/pause 644 Root
    pause concourse-worker.service
    --
    publish concourse-peer:0: paused
    ");
}

#[test]
fn actions_say_that_it_takes_a_moment() {
    let mut unit = TestUnit::web();
    let restart = Action::parse("restart-services", &serde_json::Map::new()).unwrap();
    act(&mut unit, &restart);
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    look again in 20 s
    publish web-tsa:6: pause
    ");
    assert_snapshot!(answer(&restart, &unit.world).results["message"], @"The web node restarts as soon as its workers have paused, so that no output of builds is lost: see the unit's status");
    let mut unit = unit.answered("1000");
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    say maintenance: Restarting the web node...
    restart concourse-web.service
    publish web-tsa:6: pause
    ");

    let mut alone = TestUnit::web_alone();
    act(&mut alone, &restart);
    assert_snapshot!(alone.hook(Goal::Run).join("\n--\n"), @"
    say maintenance: Restarting the web node...
    restart concourse-web.service
    ");
    assert_snapshot!(answer(&restart, &alone.world).results["message"], @"Restarted");
    // Without its database it could not come up again.
    let lost = TestUnit::web().unrelated("database:3");
    assert_snapshot!(steps(&restart, &lost.world).err().unwrap(), @"Nothing was restarted: PostgreSQL database required: juju integrate web:database postgresql:database");
}

#[test]
fn where_systemd_looks_at_gpus_first_a_worker_waits_too() {
    let mut unit = TestUnit::worker_unit().config("enable-gpu", true).settled().asked("1000");
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    write /run/concourse-ci-machine/pause 644 Root
    pause concourse-worker.service
    --
    publish worker-tsa:1: paused
    ");
    assert!(!unit.world.service(Role::Worker).changing, "it is not yet in its start");
    assert!(unit.world.file(paths::PAUSE).is_some());
    assert_eq!(unit.plan(), "nothing");
}

#[test]
fn who_pauses_lets_no_builds_end() {
    let mut unit = TestUnit::worker_unit().asked("1000");
    unit.hook(Goal::Run);
    let refused = |name: &str| {
        let action = Action::parse(name, &serde_json::Map::new()).unwrap();
        steps(&action, &unit.world).err().unwrap()
    };
    assert_snapshot!(refused("drain"), @"The worker waits for its web node to restart: try again in half a minute");
    assert_eq!(refused("restart-services"), refused("drain"));
}

#[test]
fn a_unit_of_before_comes_first() {
    let mut unit = TestUnit::worker_unit().asked("1000");
    let path = Worker::Main.paths().unit;
    unit.world.machine.files.get_mut(path).unwrap().text = "[Service]\nExecStart=/bin/true\n".into();
    let steps = unit.hook(Goal::Run).join("\n--\n");
    let at = |what: &str| steps.find(what).unwrap_or_else(|| panic!("no {what} in\n{steps}"));
    assert!(at(path) < at("pause concourse-worker.service"), "{steps}");
    assert!(at("pause concourse-worker.service") < at("publish"), "{steps}");
}

#[test]
fn the_worker_beside_a_web_node_that_waits_goes_on_as_it_is() {
    let mut unit = TestUnit::new("ci/0", "all").database("s3cret").worker("gpu/0", KEYS[1]).settled();
    unit = unit.config("log-level", "debug");
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    write /etc/concourse/web.env 640 RootConcourse
    look again in 20 s
    publish web-tsa:3: pause
    ");
    let mut unit = unit.answered("1000");
    let steps = unit.hook(Goal::Run).join("\n--\n");
    assert!(
        steps.contains("restart concourse-web.service") && steps.contains("restart concourse-worker.service"),
        "{steps}"
    );
    assert_eq!(unit.plan(), "nothing");
}
