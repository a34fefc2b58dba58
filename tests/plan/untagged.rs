//! Goldens of `worker-untagged`: a second worker beside the one with tags.

use crate::kit::model::Model;
use crate::kit::unit::TestUnit;
use concourse_ci_machine::actions::{Action, answer, steps};
use concourse_ci_machine::event::Goal;
use concourse_ci_machine::oci::policy::BUNDLES;
use concourse_ci_machine::paths;
use concourse_ci_machine::world::{Concern, Role, Volumes, Worker};
use insta::assert_snapshot;

fn env(unit: &TestUnit) -> String {
    unit.world.file(paths::UNTAGGED.env).unwrap_or_default().to_owned()
}

/// Its unit gives the directories of both containerds the names by which the wrapper looks for their containers.
#[test]
fn each_worker_sees_the_containers_of_both() {
    let text = include_str!("../../charm/units/concourse-worker-untagged.service");
    let has = |line: String| assert!(text.lines().any(|own| own == line), "{line}");
    let (main, own, new) = (paths::WORKER.containerd, paths::UNTAGGED.containerd, paths::MAIN_CONTAINERD);
    has(format!("BindPaths={own}:{main}"));
    has(format!("BindPaths=-{main}:{new}:norbind"));
    has(format!("ExecStartPre=+/bin/mkdir -p -m 711 {main}"));
    let below = |dir: &str| dir.strip_prefix("/run/").unwrap().to_owned();
    has(format!("RuntimeDirectory={} {}", below(own), below(new)));
    let tasks = paths::BUNDLES.strip_prefix(main).unwrap();
    assert_eq!(BUNDLES, [main, new, own].map(|dir| format!("{dir}{tasks}")));
}

#[test]
fn it_joins_and_leaves_the_other_one_alone() {
    let mut unit = TestUnit::worker_unit().config("tag", "gpu").settled().config("worker-untagged", true);
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    probe volumes of concourse-worker-untagged.service
    --
    write /etc/systemd/system/concourse-worker-untagged.service 644 Root
    write /etc/systemd/system/concourse-worker-untagged.service.d/10-charm.conf 644 Root
    write /etc/concourse/worker-untagged.env 600 Root
    daemon-reload
    init work dir of concourse-worker-untagged.service
    --
    enable concourse-worker-untagged.service
    say maintenance: Starting the untagged worker...
    restart concourse-worker-untagged.service
    ");
    assert_snapshot!(unit.status(), @"active: Worker ready");
    assert_eq!(unit.plan(), "nothing");
    assert_snapshot!(env(&unit), @r#"
    # Written by the charm concourse-ci-machine and replaced as a whole: what is changed here is lost.
    # Own lines go into the file beside it that ends in .local.env; that one is read last and wins.
    CONCOURSE_BAGGAGECLAIM_BIND_PORT="17788"
    CONCOURSE_BAGGAGECLAIM_DEBUG_BIND_PORT="17787"
    CONCOURSE_BAGGAGECLAIM_DRIVER="overlay"
    CONCOURSE_BIND_IP="127.0.0.1"
    CONCOURSE_BIND_PORT="17777"
    CONCOURSE_CONTAINERD_BIN="/usr/local/lib/concourse-ci-machine/containerd"
    CONCOURSE_CONTAINERD_DNS_PROXY_ENABLE="false"
    CONCOURSE_DEBUG_BIND_PORT="17776"
    CONCOURSE_HEALTHCHECK_BIND_IP="127.0.0.1"
    CONCOURSE_HEALTHCHECK_BIND_PORT="18888"
    CONCOURSE_LOG_LEVEL="info"
    CONCOURSE_NAME="worker-0-untagged"
    CONCOURSE_RUNTIME="containerd"
    CONCOURSE_TSA_HOST="10.0.0.5:2222"
    CONCOURSE_TSA_PUBLIC_KEY="/var/lib/concourse/keys/tsa_host_keys.pub"
    CONCOURSE_TSA_WORKER_PRIVATE_KEY="/var/lib/concourse/keys/worker_key"
    CONCOURSE_WORK_DIR="/var/lib/concourse/worker-untagged"
    "#);
    assert!(unit.world.file(paths::WORKER.env).unwrap().contains("WORKER_TAG_ARGS=\"--tag=gpu\""));
}

#[test]
fn switched_off_nothing_of_it_stays() {
    for off in [("worker-untagged", false.into()), ("tag", serde_json::Value::from(""))] {
        let mut unit = TestUnit::two_workers().config(off.0, off.1);
        let plans = unit.hook(Goal::Run).join("\n--\n");
        if off.0 == "worker-untagged" {
            assert_snapshot!(plans, @"
            retire concourse-worker-untagged.service
            end containers of concourse-worker-untagged.service
            disable concourse-worker-untagged.service
            remove /etc/systemd/system/concourse-worker-untagged.service
            remove /etc/systemd/system/concourse-worker-untagged.service.d/10-charm.conf
            remove /etc/systemd/system/concourse-worker-untagged.service.d if empty
            daemon-reload
            remove /etc/concourse/worker-untagged.env
            remove work dir of concourse-worker-untagged.service
            ");
        }
        assert!(!unit.world.machine.files.keys().any(|path| path.contains("untagged")));
        assert!(!unit.world.record.work_dirs.contains_key(&Worker::Untagged));
        assert_eq!(unit.plan(), "nothing", "{}", off.0);
        assert_eq!(unit.status(), "active: Worker ready");
    }
}

/// What does not run can't retire: its registration is deleted instead.
#[test]
fn a_dead_one_is_taken_off_the_list_too() {
    let mut unit = TestUnit::two_workers();
    unit.world.machine.services.get_mut(&Role::Untagged).unwrap().active = false;
    let mut unit = unit.config("worker-untagged", false);
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    disable concourse-worker-untagged.service
    remove /etc/systemd/system/concourse-worker-untagged.service
    remove /etc/systemd/system/concourse-worker-untagged.service.d/10-charm.conf
    remove /etc/systemd/system/concourse-worker-untagged.service.d if empty
    daemon-reload
    remove /etc/concourse/worker-untagged.env
    forget concourse-worker-untagged.service
    remove work dir of concourse-worker-untagged.service
    ");
}

#[test]
fn without_tags_there_is_none() {
    let unit = TestUnit::worker_unit().config("worker-untagged", true);
    assert_eq!(unit.plan(), "nothing");
    assert_snapshot!(unit.status(), @"active: Worker ready");
    let check = Action::CheckStatus { verbose: false };
    assert_snapshot!(answer(&check, &unit.world).results["worker-untagged"], @"not needed: the worker has no tags, so it takes untagged steps itself");
}

#[test]
fn each_is_seen_for_itself() {
    let mut unit = TestUnit::two_workers();
    unit.world.machine.connected.remove(&Worker::Untagged);
    let waits = unit.status();
    unit.world.machine.services.get_mut(&Role::Untagged).unwrap().active = false;
    let down = unit.status();
    unit.world.troubles.insert(Concern::Untagged, "The untagged worker did not register within 60 s".into());
    assert_snapshot!([waits, down, unit.status()].join("\n"), @"
    waiting: Waiting for the web node to accept this untagged worker
    blocked: The untagged worker does not run: see journalctl -u concourse-worker-untagged
    blocked: The untagged worker did not register within 60 s: see journalctl -u concourse-worker-untagged
    ");
    let check = answer(&Action::CheckStatus { verbose: false }, &unit.world).results;
    assert_snapshot!(["worker", "worker-untagged", "volumes-untagged"].map(|key| check[key].as_str()).join("\n"), @"
    runs, connected to 10.0.0.5:2222
    does not run, not connected to 10.0.0.5:2222
    overlay
    ");
}

#[test]
fn its_failure_is_not_the_versions() {
    let mut unit = TestUnit::two_workers().config("concourse-version", "8.2.6");
    unit.world.machine.connected.clear();
    let mut broken = unit.clone();
    let mut model = Model { deaf: [Role::Untagged].into(), ..Model::default() };
    model.hook(&mut unit.world, Goal::Run);
    assert_eq!(unit.world.machine.current, Some("8.2.6".parse().unwrap()));
    assert_snapshot!(unit.status(), @"blocked: Untagged did not come up: see journalctl -u concourse-worker-untagged");
    model.deaf.insert(Role::Worker);
    model.hook(&mut broken.world, Goal::Run);
    assert_eq!(broken.world.machine.current, Some("8.2.5".parse().unwrap()));
}

#[test]
fn a_drain_is_for_both_at_once() {
    let mut unit = TestUnit::two_workers();
    let drain = Action::parse("drain", &serde_json::Map::new()).unwrap();
    let planned: Vec<String> = steps(&drain, &unit.world).unwrap().iter().map(ToString::to_string).collect();
    assert_snapshot!(planned.join("\n"), @"
    write /var/lib/concourse/charm/drained 644 Root
    land concourse-worker.service concourse-worker-untagged.service
    end containers of concourse-worker.service concourse-worker-untagged.service
    ");
    let restart = Action::parse("restart-services", &serde_json::Map::new()).unwrap();
    let planned: Vec<String> =
        steps(&restart, &unit.world).unwrap().iter().map(ToString::to_string).collect();
    assert_snapshot!(planned.join("\n"), @"
    land concourse-worker.service concourse-worker-untagged.service
    remove /run/concourse-ci-machine/worker.started
    remove /run/concourse-ci-machine/worker-untagged.started
    ");
    // The relation that goes is one for both, and a new key is.
    assert_snapshot!(unit.clone().unrelated("worker-tsa:1").plan(), @"
    retire concourse-worker.service concourse-worker-untagged.service
    end containers of concourse-worker.service concourse-worker-untagged.service
    disable concourse-worker.service
    disable concourse-worker-untagged.service
    ");
    unit.world.machine.files.get_mut(paths::WORKER_KEY).unwrap().text.push_str("new");
    assert_snapshot!(unit.plan(), @"
    say maintenance: Restarting the worker...
    restart concourse-worker.service
    say maintenance: Restarting the untagged worker...
    restart concourse-worker-untagged.service
    ");
}

#[test]
fn a_lost_work_dir_is_one_workers_matter() {
    let mut unit = TestUnit::two_workers();
    unit.world.machine.work_dirs.remove(&Worker::Untagged);
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    stop concourse-worker-untagged.service
    end containers of concourse-worker-untagged.service
    forget concourse-worker-untagged.service
    init work dir of concourse-worker-untagged.service
    --
    say maintenance: Starting the untagged worker...
    restart concourse-worker-untagged.service
    ");
    unit.world.machine.work_dirs.remove(&Worker::Main);
    assert_snapshot!(unit.plan(), @"
    stop concourse-worker.service
    end containers of concourse-worker.service
    forget concourse-worker.service
    init work dir of concourse-worker.service
    ");
}

#[test]
fn each_keeps_volumes_its_own_way() {
    let mut unit = TestUnit::two_workers();
    unit.world.machine.volumes.insert(Worker::Untagged, Volumes::Naive);
    let unit = unit.config("volume-driver", "overlay");
    assert_snapshot!(unit.status(), @"active: Worker ready (volume-driver takes effect with the actions drain and resume)");
    assert_snapshot!(unit.plan(), @"
    write /etc/concourse/worker-untagged.env 600 Root
    say maintenance: Restarting the untagged worker...
    restart concourse-worker-untagged.service
    ");
}

#[test]
fn containers_that_were_left_are_ended_apart() {
    let mut unit = TestUnit::two_workers().config("worker-untagged", false);
    let service = unit.world.machine.services.get_mut(&Role::Untagged).unwrap();
    (service.active, service.enabled) = (false, false);
    unit.world.machine.containers.insert(Worker::Untagged);
    assert_snapshot!(unit.plan(), @"
    end containers of concourse-worker-untagged.service
    remove /etc/systemd/system/concourse-worker-untagged.service
    remove /etc/systemd/system/concourse-worker-untagged.service.d/10-charm.conf
    remove /etc/systemd/system/concourse-worker-untagged.service.d if empty
    daemon-reload
    remove /etc/concourse/worker-untagged.env
    forget concourse-worker-untagged.service
    remove work dir of concourse-worker-untagged.service
    ");
}

#[test]
fn ports_that_the_operator_moved_stay_apart() {
    let yaml = "{CONCOURSE_HEALTHCHECK_BIND_PORT: 9000, CONCOURSE_BAGGAGECLAIM_BIND_PORT: 60000}";
    let mut unit = TestUnit::two_workers()
        .config("concourse-env", yaml)
        .config("containerd-dns-proxy-enable", true)
        .config("containerd-dns-server", "10.0.0.2");
    unit.hook(Goal::Run);
    let set = |env: &str| -> String {
        let lines =
            env.lines().filter(|l| l.contains("PORT=") || l.contains("DNS") || l.contains("HOST_ACCESS"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let main = set(unit.world.file(paths::WORKER.env).unwrap());
    assert_snapshot!([main, set(&env(&unit))].join("\n--\n"), @r#"
    CONCOURSE_BAGGAGECLAIM_BIND_PORT="60000"
    CONCOURSE_CONTAINERD_DNS_PROXY_ENABLE="true"
    CONCOURSE_CONTAINERD_DNS_SERVER="10.0.0.2"
    CONCOURSE_HEALTHCHECK_BIND_PORT="9000"
    --
    CONCOURSE_BAGGAGECLAIM_BIND_PORT="50000"
    CONCOURSE_BAGGAGECLAIM_DEBUG_BIND_PORT="17787"
    CONCOURSE_BIND_PORT="17777"
    CONCOURSE_CONTAINERD_ALLOW_HOST_ACCESS="true"
    CONCOURSE_CONTAINERD_DNS_PROXY_ENABLE="false"
    CONCOURSE_CONTAINERD_DNS_SERVER="10.0.0.2,10.0.0.5"
    CONCOURSE_DEBUG_BIND_PORT="17776"
    CONCOURSE_HEALTHCHECK_BIND_PORT="19000"
    "#);
}

#[test]
fn a_removed_unit_leaves_nothing_of_either() {
    let mut unit = TestUnit::two_workers();
    assert_snapshot!(unit.hook(Goal::Stop).join("\n--\n"), @"
    retire concourse-worker.service concourse-worker-untagged.service
    end containers of concourse-worker.service concourse-worker-untagged.service
    disable concourse-worker-untagged.service
    disable concourse-worker.service
    ");
    unit.world.machine.leftovers = paths::OURS.map(str::to_owned).to_vec();
    unit.hook(Goal::Remove);
    assert!(unit.world.machine.files.is_empty(), "{:?}", unit.world.machine.files);
    assert!(unit.world.machine.services.values().all(|s| !s.active && !s.enabled));
}

#[test]
fn its_unit_says_what_the_charm_counts_on() {
    let unit = TestUnit::two_workers();
    let text = unit.world.file(paths::UNTAGGED.unit).unwrap();
    assert!(text.contains(&format!("\nSlice={}\n", paths::UNTAGGED_SLICE)));
    assert!(text.contains(&format!("\nBindPaths={}:/run/containerd\n", paths::UNTAGGED.containerd)));
    // What both need for the same reasons, both have.
    for line in unit
        .world
        .file(paths::WORKER.unit)
        .unwrap()
        .lines()
        .filter(|l| l.contains('=') && !l.starts_with('#'))
    {
        let own = line.contains("worker") || text.contains(&format!("\n{line}\n"));
        assert!(own, "{line} is missing");
    }
}

#[test]
fn another_role_ends_both() {
    let unit = TestUnit::two_workers();
    // A drained worker is still on the list; the key that takes it off goes last.
    let mut drained = unit.clone();
    drained.world.machine.drained = true;
    drained.world.machine.services.values_mut().for_each(|service| service.active = false);
    let web = |unit: TestUnit| unit.config("deployment-mode", "web").plan();
    assert_snapshot!([web(unit), web(drained)].join("\n--\n"), @"
    generate Ssh key /var/lib/concourse/keys/tsa_host_key
    generate Rsa key /var/lib/concourse/keys/session_signing_key
    share secret concourse-keys
    share secret concourse-admin
    retire concourse-worker.service concourse-worker-untagged.service
    end containers of concourse-worker.service concourse-worker-untagged.service
    disable concourse-worker.service
    disable concourse-worker-untagged.service
    remove /etc/systemd/system/concourse-worker-untagged.service
    remove /etc/systemd/system/concourse-worker-untagged.service.d/10-charm.conf
    remove /etc/systemd/system/concourse-worker-untagged.service.d if empty
    daemon-reload
    remove /etc/concourse/worker-untagged.env
    remove work dir of concourse-worker-untagged.service
    remove /etc/systemd/system/concourse-worker.service
    remove /etc/systemd/system/concourse-worker.service.d/10-charm.conf
    remove /etc/systemd/system/concourse-worker.service.d if empty
    daemon-reload
    remove /etc/concourse/worker.env
    remove /var/lib/concourse/keys/worker_key
    remove /var/lib/concourse/keys/worker_key.pub
    remove /var/lib/concourse/keys/tsa_host_keys.pub
    publish worker-tsa:1: worker-public-key
    open 2222/tcp
    open 8080/tcp
    open 9391/tcp
    --
    generate Ssh key /var/lib/concourse/keys/tsa_host_key
    generate Rsa key /var/lib/concourse/keys/session_signing_key
    share secret concourse-keys
    share secret concourse-admin
    remove /etc/concourse/runtime.json
    remove /usr/local/bin/runc-gpu-wrapper
    remove /usr/local/lib/concourse-ci-machine
    remove /var/lib/concourse/charm/programs
    disable concourse-worker.service
    disable concourse-worker-untagged.service
    remove /etc/systemd/system/concourse-worker-untagged.service
    remove /etc/systemd/system/concourse-worker-untagged.service.d/10-charm.conf
    remove /etc/systemd/system/concourse-worker-untagged.service.d if empty
    daemon-reload
    remove /etc/concourse/worker-untagged.env
    forget concourse-worker-untagged.service
    remove work dir of concourse-worker-untagged.service
    remove /etc/systemd/system/concourse-worker.service
    remove /etc/systemd/system/concourse-worker.service.d/10-charm.conf
    remove /etc/systemd/system/concourse-worker.service.d if empty
    daemon-reload
    remove /etc/concourse/worker.env
    remove /var/lib/concourse/keys/worker_key
    remove /var/lib/concourse/keys/worker_key.pub
    remove /var/lib/concourse/keys/tsa_host_keys.pub
    publish worker-tsa:1: worker-public-key
    open 2222/tcp
    open 8080/tcp
    open 9391/tcp
    ");
}
