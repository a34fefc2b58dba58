//! GPUs: looked at, told, given by policy; and away again.

use crate::kit::unit::TestUnit;
use concourse_ci_machine::actions::{Action, answer};
use concourse_ci_machine::event::Goal;
use concourse_ci_machine::oci::lease::shown::{Shown, ShownLease, ShownUnit, ShownWaiter};
use insta::assert_snapshot;

fn with_gpus() -> TestUnit {
    TestUnit::worker_unit().config("enable-gpu", true).settled()
}

#[test]
fn they_are_looked_at_and_told() {
    let mut unit = TestUnit::worker_unit().config("enable-gpu", true);
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    write /etc/concourse/runtime.json 644 Root
    write /etc/concourse/gpu.json 644 Root
    write /etc/systemd/system/concourse-gpu.service 644 Root
    write /etc/systemd/system/concourse-gpu.path 644 Root
    write /etc/systemd/system/concourse-gpu.timer 644 Root
    daemon-reload
    watch GPUs
    look at GPUs
    --
    write /etc/systemd/system/concourse-worker.service.d/10-charm.conf 644 Root
    write /etc/concourse/worker.env 600 Root
    daemon-reload
    say maintenance: Restarting the worker...
    restart concourse-worker.service
    ");
    assert_snapshot!(unit.status(), @"active: Worker ready (GPU: 2x NVIDIA)");
}

#[test]
fn who_gets_them_changes_without_a_restart() {
    let mut unit = with_gpus().config("gpu-access", "exclusive");
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    remove /run/concourse-gpu/leases.json
    write /etc/concourse/runtime.json 644 Root
    write /etc/concourse/gpu.json 644 Root
    look at GPUs
    ");
    let mut unit = unit.config("gpu-replicas", 2);
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"write /etc/concourse/runtime.json 644 Root");
    let mut unit = unit.config("folder-mounts", "none");
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"write /etc/concourse/runtime.json 644 Root");
}

#[test]
fn gpu_info_tells_who_has_them_and_who_waits() {
    let mut unit = with_gpus().config("gpu-access", "exclusive");
    unit.hook(Goal::Run);
    let info = |unit: &TestUnit| answer(&Action::GpuInfo, &unit.world).results.get("leases").cloned();
    assert_eq!(info(&unit), None);
    let lease = ShownLease {
        container: "8c1e5b7a".into(),
        build: Some("main/train/fit #12".into()),
        seconds: 3700,
        state: "in use by 4711".into(),
        in_use: true,
    };
    let gpu = |name: &str, sick: Option<&str>, leases: Vec<ShownLease>| ShownUnit {
        id: format!("GPU-{name}"),
        names: vec![name.into()],
        model: Some("NVIDIA H200".into()),
        replicas: 1,
        sick: sick.map(str::to_owned),
        leases,
    };
    let waiter = ShownWaiter {
        container: "77d0".into(),
        build: None,
        seconds: 9,
        count: 1,
        units: vec!["GPU-0".into()],
    };
    let units = vec![gpu("0", None, vec![lease]), gpu("1", Some("XID 79"), vec![])];
    unit.world.machine.leases = Some(Ok(Shown { units, waiters: vec![waiter] }));
    assert_snapshot!(info(&unit).unwrap(), @"
    0 (GPU-0)  NVIDIA H200
      container 8c1e5b7a (main/train/fit #12) for 1h1m: in use by 4711
    1 (GPU-1)  NVIDIA H200  out of order: XID 79
    waits, 1. in line: container 77d0 for 9s, for 1 of 1
    ");
    unit.world.machine.leases = Some(Err("leases.json: is from before the last boot".into()));
    assert_snapshot!(info(&unit).unwrap(), @"the lease table can't be read: leases.json: is from before the last boot");
}

#[test]
fn a_machine_without_them_is_told_what_to_do_and_works_on() {
    let mut unit = with_gpus();
    let report = unit.world.machine.gpus.as_mut().unwrap();
    (report.summary, report.tags) = (None, vec![]);
    report.blocked = Some("NVIDIA GPU not passed on: see gpu-diagnose".into());
    assert_snapshot!(unit.status(), @"blocked: NVIDIA GPU not passed on: see gpu-diagnose");
    assert!(unit.hook(Goal::Run).iter().all(|pass| !pass.contains("stop ")));
}

#[test]
fn switched_off_nothing_of_them_is_left() {
    let mut unit = with_gpus().config("enable-gpu", false);
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    write /etc/concourse/runtime.json 644 Root
    watch no more GPUs
    remove /etc/systemd/system/concourse-gpu.path
    remove /etc/systemd/system/concourse-gpu.timer
    remove /etc/systemd/system/concourse-gpu.service
    daemon-reload
    remove /etc/concourse/gpu.json
    remove /run/concourse-gpu
    write /etc/systemd/system/concourse-worker.service.d/10-charm.conf 644 Root
    write /etc/concourse/worker.env 600 Root
    daemon-reload
    say maintenance: Restarting the worker...
    restart concourse-worker.service
    ");
    assert_snapshot!(unit.status(), @"active: Worker ready");
}
