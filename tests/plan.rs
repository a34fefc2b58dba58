//! Goldens: what is planned, and what is said, for worlds that differ in one thing from a healthy one.

#![allow(clippy::missing_panics_doc, missing_docs)]

#[path = "plan/actions.rs"]
mod actions;
#[path = "plan/gpus.rs"]
mod gpus;
#[path = "plan/keys.rs"]
mod keys;
mod kit;
#[path = "plan/outside.rs"]
mod outside;
#[path = "plan/packages.rs"]
mod packages;
#[path = "plan/pause.rs"]
mod pause;
#[path = "plan/untagged.rs"]
mod untagged;

use concourse_ci_machine::event::Goal;
use concourse_ci_machine::world::{Concern, Override};
use insta::assert_snapshot;
use kit::unit::{KEYS, TestUnit};

#[test]
fn a_new_web_unit_goes_from_nothing_to_ready() {
    let mut unit = TestUnit::new("web/0", "web").database("pw");
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    write /var/lib/concourse/charm/unit 644 Root
    create user
    say maintenance: Installing Concourse 8.2.5...
    install 8.2.5 from a URL
    publish database:3 (app): database requested-secrets
    open 2222/tcp
    open 8080/tcp
    open 9391/tcp
    --
    switch to 8.2.5
    generate Ssh key /var/lib/concourse/keys/tsa_host_key
    generate Rsa key /var/lib/concourse/keys/session_signing_key
    share secret concourse-keys
    share secret concourse-admin
    --
    write /etc/systemd/system/concourse-web.service 644 Root
    write /etc/concourse/web.env 640 RootConcourse
    write /var/lib/concourse/keys/tsa_host_key 600 Concourse
    write /var/lib/concourse/keys/tsa_host_key.pub 644 Concourse
    write /var/lib/concourse/keys/session_signing_key 600 Concourse
    write /var/lib/concourse/keys/authorized_worker_keys 644 Concourse
    daemon-reload
    enable concourse-web.service
    say maintenance: Starting the web node...
    restart concourse-web.service
    --
    write /var/lib/concourse/charm/proven-version 644 Root
    --
    tell version 8.2.5
    ");
    assert_snapshot!(unit.status(), @"active: Web server ready (v8.2.5) http://10.0.0.5:8080");
}

#[test]
fn a_new_worker_goes_from_nothing_to_ready() {
    let mut unit = TestUnit::new("worker/0", "worker").tsa("10.0.0.5:2222");
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    write /var/lib/concourse/charm/unit 644 Root
    create user
    say maintenance: Installing Concourse 8.2.5...
    install 8.2.5 from a URL
    --
    switch to 8.2.5
    install programs
    write /usr/local/lib/concourse-ci-machine/containerd 755 Root
    write /etc/concourse/runtime.json 644 Root
    generate Ssh key /var/lib/concourse/keys/worker_key
    probe volumes of concourse-worker.service
    --
    write /etc/systemd/system/concourse-worker.service 644 Root
    write /etc/systemd/system/concourse-worker.service.d/10-charm.conf 644 Root
    write /etc/concourse/worker.env 600 Root
    write /var/lib/concourse/keys/tsa_host_keys.pub 644 Root
    daemon-reload
    init work dir of concourse-worker.service
    publish worker-tsa:1: worker-public-key
    --
    enable concourse-worker.service
    say maintenance: Starting the worker...
    restart concourse-worker.service
    --
    write /var/lib/concourse/charm/proven-version 644 Root
    --
    tell version 8.2.5
    ");
    assert_snapshot!(unit.status(), @"active: Worker ready");
}

#[test]
fn at_rest_nothing_is_planned() {
    for unit in [TestUnit::web(), TestUnit::worker_unit()] {
        assert_eq!(unit.plan(), "nothing");
    }
}

#[test]
fn a_new_worker_is_a_reload() {
    let unit = TestUnit::web().worker("gpu/0", KEYS[2]);
    assert_snapshot!(unit.plan(), @"
    write /var/lib/concourse/keys/authorized_worker_keys 644 Concourse
    reload concourse-web.service
    publish web-tsa:3: concourse-version tsa-host tsa-public-key
    ");
}

#[test]
fn a_worker_that_left_is_revoked_and_pruned() {
    let mut unit = TestUnit::web().unrelated("web-tsa:6");
    std::rc::Rc::make_mut(&mut unit.world.memory).departed.insert("worker-0".into());
    assert_snapshot!(unit.plan(), @"
    write /var/lib/concourse/keys/authorized_worker_keys 644 Concourse
    reload concourse-web.service
    prune worker-0
    ");
}

#[test]
fn options_that_only_the_charm_reads_restart_nothing() {
    let unit = TestUnit::web().config("concourse-download-url", "https://mirror/{version}.tgz");
    assert_eq!(unit.plan(), "nothing");
    let unit = TestUnit::worker_unit().config("web-port", 8081);
    assert_eq!(unit.plan(), "nothing");
}

#[test]
fn a_tag_is_a_restart_which_builds_survive() {
    assert_snapshot!(TestUnit::worker_unit().config("tag", "big,gpu").plan(), @"
    write /etc/concourse/worker.env 600 Root
    say maintenance: Restarting the worker...
    restart concourse-worker.service
    ");
}

#[test]
fn a_rotated_database_password_is_a_restart() {
    assert_snapshot!(TestUnit::web_alone().database("n3w").plan(), @"
    write /etc/concourse/web.env 640 RootConcourse
    say maintenance: Restarting the web node...
    restart concourse-web.service
    ");
}

#[test]
fn a_dns_proxy_without_its_port_stops_nothing() {
    let mut unit = TestUnit::worker_unit().config("containerd-dns-proxy-enable", true);
    unit.world.machine.dns_port_taken = true;
    assert_eq!(unit.plan(), "nothing");
    assert_snapshot!(unit.status(), @"blocked: containerd-dns-proxy-enable: another program has port 53 of this machine; set it to false, or free the port (of systemd-resolved: DNSStubListener=no in /etc/systemd/resolved.conf, and /etc/resolv.conf a link to /run/systemd/resolve/resolv.conf)");
    unit.world.machine.dns_port_taken = false;
    assert!(unit.plan().contains("restart concourse-worker.service"), "{}", unit.plan());
}

#[test]
fn bad_options_stop_nothing() {
    for (name, value) in
        [("web-port", 70000.into()), ("deployment-mode", "both".into()), ("log-level", "warn".into())]
            as [(&str, serde_json::Value); 3]
    {
        for unit in [TestUnit::web(), TestUnit::worker_unit()] {
            let unit = unit.config(name, value.clone());
            assert_eq!(unit.plan(), "nothing", "{name}");
            assert!(unit.status().starts_with(&format!("blocked: {name}")), "{}", unit.status());
        }
    }
}

#[test]
fn a_worker_without_its_relation_retires() {
    let mut unit = TestUnit::worker_unit().unrelated("worker-tsa:1");
    assert_snapshot!(unit.plan(), @"
    retire concourse-worker.service
    end containers of concourse-worker.service concourse-worker-untagged.service
    disable concourse-worker.service
    ");
    unit.hook(Goal::Run);
    assert_snapshot!(unit.status(), @"blocked: Relate a web node: juju integrate WEB:web-tsa worker:worker-tsa");
}

#[test]
fn a_unit_that_is_no_worker_any_more_leaves_no_trace_of_one() {
    let mut unit = TestUnit::new("ci/0", "all").database("s3cret").settled().config("deployment-mode", "web");
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    retire concourse-worker.service
    end containers of concourse-worker.service concourse-worker-untagged.service
    disable concourse-worker.service
    remove /etc/systemd/system/concourse-worker.service
    remove /etc/systemd/system/concourse-worker.service.d/10-charm.conf
    remove /etc/systemd/system/concourse-worker.service.d if empty
    daemon-reload
    remove /etc/concourse/worker.env
    remove /var/lib/concourse/keys/worker_key
    remove /var/lib/concourse/keys/worker_key.pub
    remove /var/lib/concourse/keys/tsa_host_keys.pub
    --
    write /var/lib/concourse/keys/authorized_worker_keys 644 Concourse
    reload concourse-web.service
    prune ci-0 ci-0-untagged
    remove work dir of concourse-worker.service
    remove /etc/concourse/runtime.json
    remove /usr/local/bin/runc-gpu-wrapper
    remove /usr/local/lib/concourse-ci-machine
    remove /var/lib/concourse/charm/programs
    ");
    assert_eq!(unit.plan(), "nothing");
}

#[test]
fn a_lost_work_dir_takes_the_old_registration_away_first() {
    let mut unit = TestUnit::worker_unit();
    unit.world.machine.work_dirs.clear();
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    stop concourse-worker.service
    end containers of concourse-worker.service concourse-worker-untagged.service
    forget concourse-worker.service
    init work dir of concourse-worker.service
    --
    say maintenance: Starting the worker...
    restart concourse-worker.service
    ");
}

#[test]
fn other_bytes_of_the_same_version_are_started() {
    let mut unit = TestUnit::worker_unit();
    unit.world.machine.installed[0].sha256 = "another archive".into();
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    say maintenance: Restarting the worker...
    restart concourse-worker.service
    ");
}

#[test]
fn a_version_that_does_not_come_up_is_left_again() {
    let mut unit = TestUnit::web_alone().config("concourse-version", "8.2.6");
    let mut model = kit::model::Model::default();
    model.broken.insert("8.2.6".parse().unwrap());
    assert_snapshot!(model.hook(&mut unit.world, Goal::Run).join("\n--\n"), @"
    say maintenance: Installing Concourse 8.2.6...
    install 8.2.6 from a URL
    --
    switch to 8.2.6, keep 8.2.5
    --
    say maintenance: Restarting the web node...
    restart concourse-web.service
    --
    stop concourse-web.service
    migrate with 8.2.6 down to 8.2.5
    mark 8.2.6 as failed
    switch to 8.2.5
    --
    say maintenance: Starting the web node...
    restart concourse-web.service
    ");
    assert_snapshot!(unit.status(), @"blocked: Concourse 8.2.6 did not come up, 8.2.5 runs (Web did not come up); set concourse-version=8.2.5, or try again with update-concourse-version");
    assert_eq!(unit.plan(), "nothing");
}

#[test]
fn parts_of_a_download_stay_for_as_long_as_it_is_wanted() {
    let mut unit = TestUnit::worker_unit().config("concourse-version", "8.2.6");
    unit.world.machine.half_installed = true;
    unit.world.troubles.insert(Concern::Install, "Mirror away".into());
    assert_eq!(unit.plan(), "nothing");
    let mut unit = unit.config("concourse-version", "8.2.5");
    unit.world.troubles.clear();
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"remove parts of versions");
}

#[test]
fn a_wish_that_failed_does_not_come_back_by_itself() {
    let wish = Override { version: "8.2.6".parse().unwrap(), pinned: "8.2.5".parse().unwrap() };
    let mut unit = TestUnit::web_alone();
    unit.world.machine.override_version = Some(wish);
    let mut model = kit::model::Model::default();
    model.broken.insert("8.2.6".parse().unwrap());
    model.hook(&mut unit.world, Goal::Run);
    // As the status advises; and then the option is taken back.
    let mut unit = unit.config("concourse-version", "8.2.5");
    model.hook(&mut unit.world, Goal::Run);
    let unit = unit.config("concourse-version", "");
    assert_eq!(unit.plan(), "nothing");
    assert_snapshot!(unit.status(), @"active: Web server ready (v8.2.5) http://10.0.0.5:8080");
}

#[test]
fn what_is_missing_is_said() {
    let rows = [
        (TestUnit::new("web/0", "web").settled(), ""),
        (TestUnit::new("worker/0", "worker").settled(), ""),
        (
            TestUnit::new("worker/0", "worker")
                .related("worker-tsa:1", "web", &[], &[("web/0", &[])])
                .settled(),
            "",
        ),
        (TestUnit::new("worker/0", "worker").tsa("nonsense").settled(), ""),
    ];
    let said: Vec<String> = rows.iter().map(|(unit, _)| unit.status()).collect();
    assert_snapshot!(said.join("\n"), @r#"
    blocked: PostgreSQL database required: juju integrate web:database postgresql:database
    blocked: Relate a web node: juju integrate WEB:web-tsa worker:worker-tsa
    waiting: Waiting for TSA connection info...
    blocked: The web node's data can't be used: worker-tsa:1: web/0 says tsa-host that is bad: "nonsense" has no port; write HOST:PORT
    "#);
}

#[test]
fn a_removed_unit_leaves_nothing() {
    for mut unit in [TestUnit::web(), TestUnit::worker_unit()] {
        unit.hook(Goal::Stop);
        unit.world.machine.leftovers = concourse_ci_machine::paths::OURS.map(str::to_owned).to_vec();
        unit.hook(Goal::Remove);
        assert!(unit.world.machine.files.is_empty(), "{:?}", unit.world.machine.files);
        assert!(unit.world.machine.user.is_none());
        assert!(unit.world.machine.services.values().all(|s| !s.active && !s.enabled));
    }
}

#[test]
fn one_machine_is_one_units() {
    let mut unit = TestUnit::worker_unit();
    unit.world.machine.claim = Some("web/0 4075b630-e862-4195-830a-20ca42d22366".into());
    assert_eq!(unit.plan(), "nothing");
    assert_snapshot!(unit.status(), @"blocked: Unit web/0 of this charm runs this machine: use another machine, or deployment-mode=all for both roles");
}
