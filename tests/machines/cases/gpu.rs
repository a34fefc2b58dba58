//! Simulated GPUs on a real worker, plain character nodes with a CDI spec: passed on by the charm's own LXD profile, found,
//! told, given to tasks, chosen, lost and found again.

use super::steps;
use crate::kit::cloud::{Cloud, repository, run, wait};
use crate::kit::task::{Task, UNTIL_TOLD, start_task, start_task_with};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

/// Nodes of this computer show in all machines: one test at a time has some.
pub static NODES_OF_THE_HOST: Mutex<()> = Mutex::new(());

/// What the host's driver would make.
const NODES: [&str; 4] = ["nvidia-uvm", "nvidia14", "nvidia15", "nvidiactl"];

/// What `nvidia-ctk cdi generate` would say of them.
const SPEC: &str = r#"{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [
    {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia14"}]}},
    {"name": "1", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia15"}]}}],
    "containerEdits": {"deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}]}}"#;

/// What a task sees of them, and whether it can open one.
const LOOK: &str = "echo nodes: $(ls /dev | grep nvidia); for n in /dev/nvidia1?; do if [ -e $n ]; then \
    if head -c 0 $n; then echo opens $n; else echo closed: $n; fi; fi; done; echo visible: $NVIDIA_VISIBLE_DEVICES";

struct Host;

impl Host {
    /// Makes the nodes on this computer, as if it had GPUs; `None`: it has real ones.
    fn with_gpus() -> Option<Self> {
        if NODES.iter().any(|name| Path::new("/dev").join(name).exists()) {
            return None;
        }
        let host = Host;
        host.make(&NODES);
        Some(host)
    }

    fn make(&self, names: &[&str]) {
        run(Command::new(repository().join("tests/gpus")).arg("node").args(names));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        NODES.iter().for_each(|name| drop(std::fs::remove_file(Path::new("/dev").join(name))));
    }
}

/// Each task has its own, in turn.
fn own_gpus(cloud: &Cloud) {
    cloud.juju(&["config", "small", "gpu-access=exclusive", "gpu-default-count=1"]);
    cloud.settle();
    cloud.wait_status("small/0", "active: Worker ready (GPU: 2x NVIDIA)");
    let script = format!("ls /dev | grep nvidia1; {UNTIL_TOLD}");
    // Whoever had GPUs before keeps others off them until it is sure that nothing of it lives: up to two minutes.
    let first = [start_task(cloud, "small", &script), start_task(cloud, "small", &script)];
    let has = |task: &Task<'_>| task.seen()[0].clone();
    let mut had = first.each_ref().map(has);
    had.sort();
    assert_eq!(had, ["nvidia14", "nvidia15"]);
    let leases = |what: &str| {
        cloud.exec("2", &format!("runc-gpu-wrapper leases --json | jq -c '{what}'")).trim().to_owned()
    };
    assert_eq!(leases("[.units[].leases | length]"), "[1,1]");

    // A test takes its turn as well, and does not wait for long.
    let (said, why) = cloud.try_run("small/0", &["gpu-test"]);
    let why = why.unwrap();
    assert!(
        why.starts_with(
            "Not tested: GPU: the task asks for GPU_COUNT=1, and waited 10s for it in vain: container"
        ),
        "{why} {said}"
    );
    // Whoever kills it finds nothing of it.
    cloud.juju(&["run", "small/0", "gpu-test", "--background"]);
    let waiters = |count: &'static str| {
        wait(&format!("{count} in line"), Duration::from_secs(60), || {
            match leases(".waiters | length").as_str() {
                now if now == count => Ok(()),
                other => Err(other.to_owned()),
            }
        });
    };
    waiters("1");
    cloud.exec("2", "systemctl kill -s KILL concourse-gpu-test.service");
    cloud.settle();
    waiters("0");
    nothing_left(cloud, "2");

    // The third one waits for a place, and what can never be is refused at once.
    let third = start_task_with(cloud, "small", &script, &[]);
    waiters("1");
    let said = start_task_with(cloud, "small", &script, &["GPU_COUNT=3"]).log();
    assert!(said.contains("GPU_COUNT=3"), "{said}");
    assert!(third.seen().is_empty(), "it started without a GPU");
    cloud.exec("2", "pkill -USR1 -o -f '[t]rap told=1'");
    wait("the third task to start", Duration::from_secs(60), || match third.seen().first() {
        Some(node) if node.starts_with("nvidia1") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    first[0].tell("2");
    for task in first.into_iter().chain([third]) {
        assert!(task.wait().0);
    }
    wait("all leases to end", Duration::from_secs(60), || {
        match leases("[.units[].leases | length]").as_str() {
            "[0,0]" => Ok(()),
            other => Err(other.to_owned()),
        }
    });
    cloud.juju(&["config", "small", "gpu-access=request"]);
    cloud.settle();
}

/// A container of the charm's own sees what a task's would.
fn tested(cloud: &Cloud, machine: &str, unit: &str) {
    let lines = |results: &serde_json::Value| results["devices"].as_str().unwrap_or_default().to_owned();
    let opens = |names: &[&str]| {
        let number = |name: &str| Path::new("/dev").join(name).metadata().unwrap().rdev();
        let line = |name: &&str| {
            let (major, minor) = (nix::sys::stat::major(number(name)), nix::sys::stat::minor(number(name)));
            format!("/dev/{name} {major}:{minor} opens")
        };
        names.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    let seen = cloud.run(unit, &["gpu-test"]);
    assert_eq!((lines(&seen), seen["verdict"].as_str()), (opens(&NODES), Some("passed")), "{seen}");
    let one = opens(&["nvidia-uvm", "nvidia15", "nvidiactl"]);
    assert_eq!(lines(&cloud.run(unit, &["gpu-test", "devices=1"])), one);
    let (said, why) = cloud.try_run(unit, &["gpu-test", "count=3"]);
    assert!(why.is_some_and(|why| why.contains("count: 3 GPUs are more than there are")), "{said}");
    cloud.run(unit, &["gpu-test", "count=none"]);
    nothing_left(cloud, machine);
}

fn nothing_left(cloud: &Cloud, machine: &str) {
    let left = "ls -d /var/lib/concourse/gpu-test /run/containerd/io.containerd.runtime.v2.task/concourse/gpu-test* 2>/dev/null; \
        systemctl list-units --all --plain --no-legend 'concourse-gpu-test*'; find /sys/fs/cgroup -name 'gpu-test-*' -ignore_readdir_race";
    assert_eq!(cloud.exec(machine, left), "");
}

/// Waits until tags and status both tell of that many GPUs, of which nobody tells Juju but the machine itself.
fn shows(cloud: &Cloud, app: &str, count: usize) {
    let (tag, status) =
        (format!("gpu-count={count}"), format!("active: Worker ready (GPU: {count}x NVIDIA)"));
    wait(&format!("{app} to show {count} GPUs"), Duration::from_secs(60), || {
        let said = cloud.status(&format!("{app}/0"));
        let listed = cloud.workers().into_iter().find(|worker| worker.starts_with(app)).unwrap_or_default();
        if said == status && listed.contains(&tag) && listed.contains(" running ") {
            return Ok(());
        }
        // Whether LXD has passed a node on, or the charm has not seen it.
        let there = cloud.try_exec(if app == "small" { "2" } else { "3" }, "ls /dev | grep nvidia").stdout;
        Err(format!("{said}; {listed}; in /dev: {}", String::from_utf8_lossy(&there).replace('\n', " ")))
    });
}

/// In the middle of things, and no hook is due: tags and status follow within a minute.
fn lost_and_back(host: &Host, cloud: &Cloud) {
    cloud.settle();
    let ran = |app: &str| cloud.hooks(&format!("{app}/0"));
    let before = ["small", "big"].map(ran);
    std::fs::remove_file("/dev/nvidia15").unwrap();
    ["small", "big"].iter().for_each(|app| shows(cloud, app, 1));
    let (_, why) = cloud.try_run("small/0", &["gpu-test", "devices=1"]);
    assert!(why.is_some_and(|why| why.contains("there is no GPU 1 that tasks can have; this worker has 0")));
    let seen = cloud.run("small/0", &["gpu-test"]);
    assert!(!seen["devices"].as_str().unwrap().contains("nvidia15"), "{seen}");
    host.make(&["nvidia15"]);
    ["small", "big"].iter().for_each(|app| shows(cloud, app, 2));

    // The same of one machine only, by its operator.
    device(&["add", "gpu-2", "nvidia15", "none"]);
    shows(cloud, "small", 1);
    device(&["remove", "gpu-2", "nvidia15"]);
    shows(cloud, "small", 2);
    // Each change is told once, and nothing tells of what a hook has seen itself.
    cloud.settle();
    let told = |app: &str, before: &[String]| {
        ran(app)[before.len()..].iter().filter(|hook| *hook != "gpu-test").cloned().collect::<Vec<_>>()
    };
    for (app, before, changes) in [("small", &before[0], 4), ("big", &before[1], 2)] {
        let told = told(app, before);
        assert!(told.iter().all(|hook| hook == "juju-exec"), "{app}: {told:?}");
        assert!((changes..=2 * changes).contains(&told.len()), "{app}: {told:?}");
    }
    cloud.fire("small/0", "config-changed");
    cloud.exec(
        "2",
        "systemctl start concourse-gpu.service; systemctl is-failed concourse-gpu-tell.service || true",
    );
    cloud.settle();
    assert_eq!(told("small", &before[0]).last().unwrap(), "config-changed");
}

/// Commands as the operator types them on the host of the containers.
fn on_the_host(script: &str) {
    let machines = repository().join("tests/machines/machines");
    let script = format!("set -e\neval \"$({} env)\"\n{script}", machines.display());
    run(Command::new("bash").args(["-c", &script]));
}

/// `lxc config device …`
fn device(args: &[&str]) {
    on_the_host(&format!("lxc -q config device {}", args.join(" ")));
}

/// The commands of gpu-diagnose, run as they are printed, give what is missing.
fn mended_as_printed(cloud: &Cloud) {
    on_the_host("lxc -q profile remove gpu-2 ccm-gpu-2");
    cloud.wait_status("small/0", "blocked: NVIDIA GPU not passed on");
    let commands = || {
        let ladder = cloud.run("small/0", &["gpu-diagnose"])["ladder"].clone();
        let lines = ladder.as_str().unwrap().lines().map(str::trim);
        lines.filter(|line| line.starts_with("lxc ")).collect::<Vec<_>>().join("\n")
    };
    let first = commands();
    assert!(first.contains("/dev/nvidia14") && first.contains("/dev/nvidia15"), "{first}");
    on_the_host(&first);
    // One rung after the other.
    wait("all rungs to be there", Duration::from_secs(60), || match commands() {
        none if none.is_empty() => Ok(()),
        more if more == first => Err(more),
        more => {
            on_the_host(&more);
            Err(more)
        }
    });
    shows(cloud, "small", 2);
    let seen = start_task_with(cloud, "small", LOOK, &["GPU_COUNT=2"]).wait().1;
    assert_eq!(seen[0], "nodes: nvidia-uvm nvidia14 nvidia15 nvidiactl");
}

/// What a driver holds in the kernel can't be ended, and is left behind: no worker waits for it.
fn held_by_a_driver(cloud: &Cloud) {
    let script = r##"set -e
        printf '#!/bin/sh\n(trap : TERM; while :; do sleep 1; done) >/dev/null 2>&1 &\necho $! >/run/held.pid\n' >/run/held
        chmod +x /run/held
        mkdir -p /run/systemd/system/concourse-gpu.service.d
        printf '[Service]\nExecStartPost=/run/held\n' >/run/systemd/system/concourse-gpu.service.d/held.conf
        systemctl daemon-reload
        timeout 60 systemctl start concourse-gpu.service
        held=$(cat /run/held.pid)
        timeout 60 systemctl restart concourse-worker
        kill -0 $held $(cat /run/held.pid)
        rm -r /run/systemd/system/concourse-gpu.service.d
        systemctl daemon-reload
        pkill -KILL -f /run/held"##;
    cloud.exec("2", script);
    cloud.wait_active("small/0");
}

#[test]
#[ignore = "needs machines"]
fn machine_simulated_gpus_from_the_profile_to_the_task() {
    // What another test left when it failed does no harm.
    let _alone = NODES_OF_THE_HOST.lock();
    let Some(host) = Host::with_gpus() else {
        eprintln!("not simulated: this computer has GPUs of its own");
        return;
    };
    let cloud = Cloud::with_workers("gpu", &[("small", false), ("big", true)]);
    steps::patch(&cloud, "2");
    for (app, machine) in [("small", "2"), ("big", "3")] {
        let unit = format!("{app}/0");
        cloud.exec(machine, &format!("mkdir -p /etc/cdi; echo '{SPEC}' > /etc/cdi/simulated.json"));
        // Off, a worker has no GPU to give, whatever is there.
        cloud.config(app, &format!("tag={app}"));
        let said = start_task_with(&cloud, app, "echo started", &["GPU_COUNT=1"]).log();
        assert!(
            said.contains("GPU: the task asks for GPU_COUNT=1, and this worker has no GPU to give"),
            "{said}"
        );

        cloud.config(app, "enable-gpu=true");
        cloud.wait_status(&unit, "active: Worker ready (GPU: 2x NVIDIA)");
        let tags = ["cuda", "gpu", "gpu-access=shared", "gpu-count=2", "gpu-devices=0,1", "gpu-type=nvidia"];
        let listed = cloud.workers().into_iter().find(|worker| worker.starts_with(app)).unwrap();
        assert!(tags.iter().all(|tag| listed.contains(tag)), "{listed}");

        // All of them, some of them, none of them.
        let all =
            ["nodes: nvidia-uvm nvidia14 nvidia15 nvidiactl", "opens /dev/nvidia14", "opens /dev/nvidia15"];
        assert_eq!(start_task(&cloud, app, LOOK).wait().1[..3], all, "{app}");
        let one = start_task_with(&cloud, app, LOOK, &["GPU_COUNT=1"]).wait().1;
        assert_eq!(one[..2], ["nodes: nvidia-uvm nvidia14 nvidiactl", "opens /dev/nvidia14"], "{app}");
        let none = start_task_with(&cloud, app, LOOK, &["NVIDIA_VISIBLE_DEVICES=none"]).wait().1;
        assert_eq!(none[0], "nodes:", "{app}");
        let said = start_task_with(&cloud, app, LOOK, &["GPU_COUNT=3"]).log();
        assert!(said.contains("the task asks for GPU_COUNT=3, and only 2 GPUs fit on this worker"), "{said}");

        // The operator's choice, and who has to ask, reach the next task by the same worker.
        cloud.config(app, "gpu-device-ids=1");
        cloud.wait_status(&unit, "active: Worker ready (GPU: 1x NVIDIA)");
        let chosen = start_task(&cloud, app, LOOK).wait().1;
        assert_eq!(chosen[..2], ["nodes: nvidia-uvm nvidia15 nvidiactl", "opens /dev/nvidia15"], "{app}");
        cloud.config(app, "gpu-device-ids=7");
        cloud.wait_status(&unit, "blocked: gpu-device-ids names \"7\", and this machine has 0, 1");
        cloud.juju(&["config", app, "gpu-device-ids=all", "gpu-access=request"]);
        cloud.settle();
        cloud.wait_status(&unit, "active: Worker ready (GPU: 2x NVIDIA)");
        assert_eq!(start_task(&cloud, app, LOOK).wait().1[0], "nodes:", "{app} gives what nobody asked for");
        assert!(
            start_task_with(&cloud, app, LOOK, &["GPU_COUNT=2"]).wait().1[0].contains("nvidia14 nvidia15")
        );

        let info = cloud.run(&unit, &["gpu-info"])["gpus"].clone();
        assert_eq!(info.as_str().unwrap().lines().count(), 2, "{info}");
        let ladder = cloud.run(&unit, &["gpu-diagnose"])["ladder"].clone();
        assert!(ladder.as_str().unwrap().contains("ok       device nodes"), "{ladder}");
        tested(&cloud, machine, &unit);
        let ladder = cloud.run(&unit, &["gpu-diagnose"])["ladder"].clone();
        assert!(ladder.as_str().unwrap().contains("-        a container sees it"), "{ladder}");
        cloud.run(&unit, &["gpu-test"]);
        let ladder = cloud.run(&unit, &["gpu-diagnose"])["ladder"].clone();
        assert!(ladder.as_str().unwrap().contains("ok       a container sees it: tested 20"), "{ladder}");
    }

    steps::only_tasks_see_gpus(&cloud, "small", "2");
    own_gpus(&cloud);

    lost_and_back(&host, &cloud);
    mended_as_printed(&cloud);
    held_by_a_driver(&cloud);

    // Off again: nothing of it is left.
    cloud.config("small", "enable-gpu=false");
    cloud.wait_status("small/0", "active: Worker ready");
    let left = cloud.exec("2", "ls -d /run/concourse-gpu /etc/concourse/gpu.json /etc/systemd/system/concourse-gpu* 2>/dev/null; true");
    assert_eq!(left, "");
    assert_eq!(start_task(&cloud, "small", LOOK).wait().1[0], "nodes:");
}
