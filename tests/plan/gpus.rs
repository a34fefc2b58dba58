//! GPUs: looked at, told, given by policy; and away again.

use crate::kit::unit::TestUnit;
use concourse_ci_machine::event::Goal;
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
    write /etc/systemd/system/concourse-gpu-tell.service 644 Root
    daemon-reload
    watch GPUs
    look at GPUs
    --
    write /var/lib/concourse/charm/gpus-told.json 644 Root
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
fn a_machine_without_them_is_told_what_to_do_and_works_on() {
    let mut unit = with_gpus();
    let report = unit.world.machine.gpus.as_mut().unwrap();
    (report.summary, report.tags) = (None, vec![]);
    report.blocked = Some("NVIDIA GPU not passed on: see gpu-diagnose".into());
    assert_snapshot!(unit.status(), @"blocked: NVIDIA GPU not passed on: see gpu-diagnose");
    assert!(unit.hook(Goal::Run).iter().all(|pass| !pass.contains("stop ")));
}

#[test]
fn what_changed_between_two_hooks_is_noted_as_told_with_the_worker_restarted() {
    let mut unit = with_gpus();
    let report = unit.world.machine.gpus.as_mut().unwrap();
    (report.summary, report.tags) = (Some("GPU: 1x NVIDIA".into()), vec!["gpu".into()]);
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    write /var/lib/concourse/charm/gpus-told.json 644 Root
    write /etc/concourse/worker.env 600 Root
    say maintenance: Restarting the worker...
    restart concourse-worker.service
    ");
    assert_snapshot!(unit.status(), @"active: Worker ready (GPU: 1x NVIDIA)");
    unit.world.machine.gpus.as_mut().unwrap().notes.push("a note is for gpu-diagnose".into());
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"");
}

#[test]
fn a_unit_that_stops_watches_no_more() {
    let stopped = with_gpus().hook(Goal::Stop).join("\n--\n");
    assert!(stopped.contains("watch no more GPUs"), "{stopped}");
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
    remove /etc/systemd/system/concourse-gpu-tell.service
    daemon-reload
    remove /etc/concourse/gpu.json
    remove /var/lib/concourse/charm/gpus-told.json
    remove /run/concourse-gpu
    write /etc/systemd/system/concourse-worker.service.d/10-charm.conf 644 Root
    write /etc/concourse/worker.env 600 Root
    daemon-reload
    say maintenance: Restarting the worker...
    restart concourse-worker.service
    ");
    assert_snapshot!(unit.status(), @"active: Worker ready");
}
