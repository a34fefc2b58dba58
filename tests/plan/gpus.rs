//! GPUs: looked at, told, given by policy; and away again.

use crate::kit::unit::TestUnit;
use concourse_ci_machine::actions::{Action, answer, steps};
use concourse_ci_machine::event::Goal;
use concourse_ci_machine::gpu::ladder::{Ladder, Rung, State};
use concourse_ci_machine::gpu::trial::{Outcome, Verdict, fingerprint};
use concourse_ci_machine::oci::devices::{Devices, Vendor};
use concourse_ci_machine::oci::lease::shown::{Shown, ShownLease, ShownUnit, ShownWaiter};
use concourse_ci_machine::paths;
use concourse_ci_machine::view::gpu::wanted;
use insta::assert_snapshot;
use serde_json::Map;

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
    write /etc/systemd/system/concourse-gpu-folders.path 644 Root
    write /etc/systemd/system/concourse-gpu.timer 644 Root
    write /etc/systemd/system/concourse-gpu-tell.service 644 Root
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
        withdrawn: false,
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
fn a_vendor_that_is_named_needs_no_other_option() {
    let vendors = |unit: TestUnit| wanted(&unit.world).map(|wanted| wanted.vendors);
    let named = |runtime: &str, on: bool| {
        vendors(TestUnit::worker_unit().config("compute-runtime", runtime).config("enable-gpu", on))
    };
    for on in [false, true] {
        assert_eq!(named("cuda", on), Some(vec![Vendor::Nvidia]));
        assert_eq!(named("rocm", on), Some(vec![Vendor::Amd]));
        assert_eq!(named("intel", on), Some(vec![Vendor::Intel]));
        assert_eq!(named("none", on), None);
    }
    assert_eq!(named("auto", false), None);
    assert_eq!(named("auto", true).map(|vendors| vendors.len()), Some(3));
}

#[test]
fn what_changed_between_two_hooks_is_noted_as_told_with_the_worker_restarted() {
    let mut unit = with_gpus();
    let report = unit.world.machine.gpus.as_mut().unwrap();
    (report.summary, report.tags) = (Some("GPU: 1x NVIDIA".into()), vec!["gpu".into()]);
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    write /etc/concourse/worker.env 600 Root
    say maintenance: Restarting the worker...
    restart concourse-worker.service
    ");
    assert_snapshot!(unit.status(), @"active: Worker ready (GPU: 1x NVIDIA)");
    let noted = &unit.world.machine.files[paths::GPU_TOLD].text;
    assert_snapshot!(noted, @r#"{"blocked":null,"status":"GPU: 1x NVIDIA","tags":["gpu"]}"#);
    unit.world.machine.gpus.as_mut().unwrap().notes.push("a note is for gpu-diagnose".into());
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"");
}

#[test]
fn a_unit_that_stops_watches_no_more() {
    let mut unit = with_gpus();
    // One of them was switched off by hand.
    unit.world.machine.gpus_watched = false;
    let stopped = unit.hook(Goal::Stop).join("\n--\n");
    assert!(stopped.contains("watch no more GPUs"), "{stopped}");
}

#[test]
fn switched_off_nothing_of_them_is_left() {
    let mut unit = with_gpus().config("enable-gpu", false);
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    write /etc/concourse/runtime.json 644 Root
    watch no more GPUs
    remove /etc/systemd/system/concourse-gpu.path
    remove /etc/systemd/system/concourse-gpu-folders.path
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

/// Of the world after the action.
fn answered(action: &Action, unit: &TestUnit) -> String {
    let answer = answer(action, &unit.world);
    let mut lines: Vec<String> =
        answer.results.iter().map(|(key, value)| format!("{key}: {}", value.replace('\n', " | "))).collect();
    lines.extend(answer.failure.map(|why| format!("FAILED {why}")));
    lines.join("\n")
}

fn with_a_test() -> TestUnit {
    let mut unit = with_gpus();
    let machine = &mut unit.world.machine;
    let devices = r#"{"format": 1, "vendors": {"nvidia": {"version": "580.65.06"}},
        "units": [{"id": "GPU-a", "names": ["0"], "vendor": "nvidia", "edits": {}}]}"#;
    let devices: Devices = serde_json::from_str(devices).unwrap();
    let rung = |name: &str, state| Rung { name: name.into(), state };
    let rungs = vec![
        rung("device data", State::Ok { seen: "1 GPU".into() }),
        rung("a container sees it", State::NotReached),
    ];
    machine.gpus.as_mut().unwrap().ladders = vec![Ladder { vendor: Vendor::Nvidia, rungs }];
    machine.gpu_test = Some(Outcome {
        at: "2026-01-02T03:04:05Z".into(),
        asked: "GPU_COUNT=all".into(),
        verdict: Verdict::Passed,
        units: vec!["0 (GPU-a)".into()],
        vendors: vec![Vendor::Nvidia],
        nodes: vec!["/dev/nvidia0 195:0 opens".into(), "/dev/nvidiactl 195:255 opens".into()],
        cuda: Some("1 device".into()),
        of: fingerprint(&devices),
        ..Outcome::default()
    });
    machine.devices = Some(devices);
    unit
}

#[test]
fn a_container_is_tested_and_what_it_saw_told() {
    let test = Action::parse("gpu-test", &Map::new()).unwrap();
    let all: Vec<String> =
        steps(&test, &with_gpus().world).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(all, ["look at GPUs", "test GPUs in a container"]);
    let off = steps(&test, &TestUnit::worker_unit().world).err().unwrap();
    assert!(off.contains("enable-gpu=true"), "{off}");

    let mut unit = with_a_test();
    assert_snapshot!(answered(&test, &unit), @"
    asked: GPU_COUNT=all
    cuda: 1 device
    devices: /dev/nvidia0 195:0 opens | /dev/nvidiactl 195:255 opens
    gpus: 0 (GPU-a)
    verdict: passed
    ");
    let outcome = unit.world.machine.gpu_test.as_mut().unwrap();
    (outcome.verdict, outcome.reasons) =
        (Verdict::Failed, vec!["/dev/nvidia0 is not in the container".into()]);
    outcome.nodes.remove(0);
    assert_snapshot!(answered(&test, &unit), @"
    asked: GPU_COUNT=all
    cuda: 1 device
    devices: /dev/nvidiactl 195:255 opens
    gpus: 0 (GPU-a)
    verdict: failed
    FAILED The container did not see what it should: /dev/nvidia0 is not in the container
    ");
    unit.world.machine.gpu_test =
        Some(Outcome::without(Verdict::NotTried, "container x has 0 (GPU-a) for 3m10s"));
    assert_snapshot!(answered(&test, &unit), @"
    verdict: not tried
    FAILED Not tested: container x has 0 (GPU-a) for 3m10s
    ");
}

#[test]
fn the_last_test_is_the_ladders_last_rung() {
    let mut unit = with_a_test();
    assert_snapshot!(answered(&Action::GpuDiagnose, &unit), @"
    ladder: NVIDIA |   ok       device data: 1 GPU |   ok       a container sees it: tested 2026-01-02T03:04:05Z with GPU_COUNT=all
    last-test: 2026-01-02T03:04:05Z passed, GPU_COUNT=all
    ");
    let outcome = unit.world.machine.gpu_test.as_mut().unwrap();
    (outcome.verdict, outcome.reasons) = (Verdict::Failed, vec!["CUDA fails: cuInit says 999".into()]);
    assert_snapshot!(answered(&Action::GpuDiagnose, &unit), @"
    ladder: NVIDIA |   ok       device data: 1 GPU |   MISSING  a container sees it: A container did not see the GPU: tested 2026-01-02T03:04:05Z: CUDA fails: cuInit says 999
    last-test: 2026-01-02T03:04:05Z failed, GPU_COUNT=all: CUDA fails: cuInit says 999
    ");
    // Another driver since.
    let driver = unit.world.machine.devices.as_mut().unwrap().vendors.get_mut(&Vendor::Nvidia).unwrap();
    driver.version = Some("590.10".into());
    assert_snapshot!(answered(&Action::GpuDiagnose, &unit), @"
    ladder: NVIDIA |   ok       device data: 1 GPU |   -        a container sees it: not tried yet; the action gpu-test tells
    last-test: 2026-01-02T03:04:05Z failed, GPU_COUNT=all: CUDA fails: cuInit says 999 (the GPUs or their driver have changed since: run gpu-test again)
    ");
}
