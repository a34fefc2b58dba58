//! Builds that run go on, and lose no line of their output, whatever is done to their worker short of draining it.

use crate::kit::cloud::{Cloud, kit, run, wait};
use crate::kit::task::{Task, UNTIL_TOLD, start_task};
use std::process::Command;
use std::time::Duration;

/// Applications with their machines; the second one is privileged.
const WORKERS: [(&str, &str); 2] = [("small", "2"), ("big", "3")];

#[test]
#[ignore = "needs machines"]
fn machine_running_builds_survive() {
    let cloud = Cloud::with_workers("builds", &[("small", false), ("big", true)]);
    for (app, _) in WORKERS {
        cloud.config(app, &format!("tag={app}"));
    }
    // One of them has a GPU, which systemd looks at before each start.
    let spec = r#"{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0",
        "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}, {"path": "/dev/nvidiactl"}]}}]}"#;
    cloud.exec(
        "3",
        &format!(
            "mknod -m 666 /dev/nvidia0 c 1 3; mknod -m 666 /dev/nvidiactl c 1 7; mkdir -p /etc/cdi; echo '{spec}' >/etc/cdi/one.json"
        ),
    );
    cloud.config("big", "enable-gpu=true");
    cloud.wait_status("big/0", "active: Worker ready (GPU: 1x NVIDIA)");
    let tasks = WORKERS.map(|(app, _)| start_task(&cloud, app, UNTIL_TOLD));
    let new_process = |what: &str, change: &dyn Fn(&str, &str)| disturb(&cloud, &tasks, true, what, change);

    new_process("another log level", &|app, _| {
        cloud.juju(&["config", app, "log-level=debug"]);
    });
    new_process("another tag", &|app, _| {
        cloud.juju(&["config", app, &format!("tag={app},new")]);
    });
    new_process("restart-services", &|app, _| {
        cloud.run(&format!("{app}/0"), &["restart-services", "force=true"]);
    });
    new_process("kill -9", &|_, machine| {
        cloud.exec(machine, "systemctl kill --kill-who=main --signal=KILL concourse-worker");
    });
    let charm = another_charm();
    let path = charm.path().join("next.charm");
    disturb(&cloud, &tasks, false, "a new charm", &|app, _| {
        cloud.juju(&["refresh", app, "--path", path.to_str().unwrap()]);
    });
    end(tasks);

    // Restarts of the web node are heard through as well: by new settings, by the operator, with a new version.
    let tasks = WORKERS.map(|(app, _)| start_task(&cloud, app, UNTIL_TOLD));
    let mut web = cloud.pid("1", "concourse-web");
    for change in [&["config", "web", "log-level=debug"][..], &["run", "web/0", "restart-services"]] {
        cloud.juju(change);
        cloud.settle();
        cloud.wait_active("web/0");
        let before = std::mem::replace(&mut web, cloud.pid("1", "concourse-web"));
        assert_ne!(before, web, "{change:?} restarted nothing");
        for ((app, _), task) in WORKERS.iter().zip(&tasks) {
            cloud.wait_active(&format!("{app}/0"));
            task.more();
        }
    }
    cloud.config("web", "concourse-version=8.2.6");
    cloud.wait_status("web/0", "active: Web server ready (v8.2.6)");
    for ((app, machine), task) in WORKERS.iter().zip(&tasks) {
        cloud.wait_active(&format!("{app}/0"));
        let runs =
            cloud.exec(machine, "readlink /proc/$(systemctl show --value -p MainPID concourse-worker)/exe");
        assert_eq!(runs.trim(), "/opt/concourse/versions/8.2.6/bin/concourse");
        task.more();
    }
    end(tasks);
}

#[test]
#[ignore = "needs machines"]
fn machine_drain_lets_builds_end() {
    let cloud = Cloud::with_workers("drain", &[("worker", false)]);
    cloud.config("worker", "tag=worker");
    let task = start_task(
        &cloud,
        "worker",
        "i=0; while [ $i -lt 20 ]; do echo line $i; i=$((i+1)); sleep 1; done; echo told",
    );

    cloud.run("worker/0", &["drain"]);
    assert_eq!(cloud.workers(), ["worker-0 landed [worker]"]);
    assert_eq!(cloud.status("worker/0"), "blocked: Worker drained: bring it back with the action resume");
    assert_whole("drain", task);
    assert_eq!(cloud.exec("2", "systemctl is-active concourse-worker; systemctl is-enabled concourse-worker; pgrep -a containerd; true"), "inactive\ndisabled\n");

    // No hook and no reboot brings it back, but the operator.
    cloud.config("worker", "log-level=debug");
    assert_eq!(cloud.workers(), ["worker-0 landed [worker]"]);
    cloud.run("worker/0", &["resume"]);
    cloud.wait_active("worker/0");
    assert_eq!(cloud.workers(), ["worker-0 running [worker]"]);
    assert_eq!(start_task(&cloud, "worker", "echo back; sleep 2").wait(), (true, vec!["back".to_owned()]));

    // A web node that is away meanwhile costs no build either.
    let task = start_task(&cloud, "worker", UNTIL_TOLD);
    cloud.juju(&["run", "worker/0", "drain", "--background"]);
    wait("the worker to land", Duration::from_secs(30), || match cloud.workers() {
        seen if seen == ["worker-0 landing [worker]"] => Ok(()),
        seen => Err(format!("{seen:?}")),
    });
    // Longer than a worker that goes for good waits for a web node.
    cloud.exec("1", "systemctl stop concourse-web; sleep 12; systemctl start concourse-web");
    wait("the worker to be told again", Duration::from_secs(60), || match cloud.workers() {
        seen if seen == ["worker-0 landing [worker]"] => Ok(()),
        seen => Err(format!("{seen:?}")),
    });
    task.tell("2");
    assert!(task.wait().0, "the build did not succeed");
    cloud.settle();
    assert_eq!(cloud.status("worker/0"), "blocked: Worker drained: bring it back with the action resume");
}

/// Does something to all workers; afterwards they work, and the web node gets more of what their tasks print.
fn disturb(cloud: &Cloud, tasks: &[Task<'_>; 2], new_process: bool, what: &str, change: &dyn Fn(&str, &str)) {
    let before = WORKERS.map(|(_, machine)| cloud.pid(machine, "concourse-worker"));
    for (app, machine) in WORKERS {
        change(app, machine);
    }
    cloud.settle();
    for (((app, machine), task), before) in WORKERS.iter().zip(tasks).zip(before) {
        // Otherwise this would test nothing, or a restart would have been for nothing. systemd takes a while to see a kill.
        wait(&format!("{what} to do what it should to {app}"), Duration::from_secs(60), || {
            match cloud.pid(machine, "concourse-worker") {
                now if (now != before) == new_process && now != "0" => Ok(()),
                now => Err(format!("{before}, now {now}")),
            }
        });
        cloud.wait_active(&format!("{app}/0"));
        task.more();
    }
}

/// Tells tasks to end, and has a look at all of their output.
fn end(tasks: [Task<'_>; 2]) {
    for (task, (app, machine)) in tasks.into_iter().zip(WORKERS) {
        task.tell(machine);
        assert_whole(app, task);
    }
}

/// It succeeded, and its output is there from the first line to the last.
fn assert_whole(what: &str, task: Task<'_>) {
    let (succeeded, lines) = task.wait();
    let mut wanted: Vec<String> = (0..lines.len().saturating_sub(1)).map(|i| format!("line {i}")).collect();
    wanted.push("told".to_owned());
    assert_eq!(lines, wanted, "{what}: output");
    assert!(succeeded, "{what}: the build did not succeed");
}

/// The charm as its next revision might be: what it runs is the same.
fn another_charm() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(kit("concourse-ci-machine.charm"), dir.path().join("next.charm")).unwrap();
    std::fs::write(dir.path().join("README.md"), "the next one").unwrap();
    run(Command::new("zip").args(["-qX", "next.charm", "README.md"]).current_dir(&dir));
    dir
}
