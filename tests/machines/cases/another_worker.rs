//! A machine with tags takes untagged steps too: by a second worker beside the first, and neither disturbs the other.

use crate::kit::cloud::{Cloud, wait};
use crate::kit::task::{Task, UNTIL_TOLD, stand_in, start_task};
use std::time::Duration;

const BOTH: [&str; 2] = ["concourse-worker", "concourse-worker-untagged"];

/// What the second worker may leave nowhere.
const TRACES: &str = "ls -d /etc/systemd/system/*untagged* /etc/concourse/*untagged* /var/lib/concourse/*untagged* \
    /var/lib/concourse/charm/*untagged* /run/concourse-ci-machine/*untagged* 2>/dev/null; \
    grep -l untagged /proc/[0-9]*/cgroup 2>/dev/null; grep untagged /proc/mounts; systemctl --no-legend list-units '*untagged*'; true";

fn pids(cloud: &Cloud, machine: &str) -> [String; 2] {
    BOTH.map(|service| cloud.pid(machine, service))
}

/// Lets something happen to one of the workers: it is another process then, the other one is the same, both are
/// registered, and of both tasks more arrives.
fn disturb(cloud: &Cloud, machine: &str, which: usize, tasks: &[Task<'_>; 2], command: &str) {
    let before = pids(cloud, machine);
    cloud.exec(machine, &command.replace("UNIT", BOTH[which]));
    wait(&format!("another process after {command}"), Duration::from_secs(60), || {
        match cloud.pid(machine, BOTH[which]) {
            now if now != before[which] && now != "0" => Ok(()),
            now => Err(now),
        }
    });
    let app = if machine == "2" { "small" } else { "big" };
    cloud.wait_active(&format!("{app}/0"));
    tasks.iter().for_each(Task::more);
    assert_eq!(cloud.pid(machine, BOTH[1 - which]), before[1 - which], "{command} touched the other one");
}

/// Whoever gives GPUs to the tasks of one worker must know those of the other.
fn each_sees_the_bundles_of_both(cloud: &Cloud, machine: &str) {
    let bundles = |seen_by: usize, containerd: &str| {
        let list = format!(
            "nsenter -m -t $(systemctl show --value -p MainPID {}) ls {containerd}/io.containerd.runtime.v2.task/concourse",
            BOTH[seen_by]
        );
        cloud.exec(machine, &list)
    };
    let [main, second] = [bundles(0, "/run/containerd"), bundles(1, "/run/containerd")];
    assert!(!main.is_empty() && !second.is_empty() && main != second, "{main} {second}");
    assert_eq!(bundles(1, "/run/concourse-ci-machine/containerd-main"), main);
    assert_eq!(bundles(0, "/run/concourse-ci-machine/containerd-untagged"), second);
}

#[test]
#[ignore = "needs machines"]
fn machine_a_second_worker_without_tags() {
    // The second machine is privileged: mounts of its first worker are in the machine's own mount namespace.
    let workers = [("small", "2"), ("big", "3")];
    let cloud = Cloud::with_workers("untagged", &[("small", false), ("big", true)]);

    // Without tags there is no use for it.
    cloud.config("small", "worker-untagged=true");
    assert_eq!(cloud.workers(), ["big-0 running", "small-0 running"]);
    assert_eq!(cloud.status("small/0"), "active: Worker ready");
    let why = cloud.run("small/0", &["check-status"])["worker-untagged"].clone();
    assert_eq!(why, "not needed: the worker has no tags, so it takes untagged steps itself");

    for (app, _) in workers {
        cloud.juju(&["config", app, &format!("tag={app}"), "worker-untagged=true"]);
    }
    cloud.settle();
    for (app, _) in workers {
        cloud.wait_active(&format!("{app}/0"));
    }
    assert_eq!(
        cloud.workers(),
        [
            "big-0 running [big]",
            "big-0-untagged running",
            "small-0 running [small]",
            "small-0-untagged running"
        ]
    );
    let check = cloud.run("small/0", &["check-status"]);
    for worker in ["worker", "worker-untagged"] {
        assert!(check[worker].as_str().unwrap().starts_with("runs, connected to "), "{check}");
    }

    for (app, machine) in workers {
        // An untagged step can only go to the one second worker that is left.
        let other = if app == "small" { "big" } else { "small" };
        cloud.config(other, "worker-untagged=false");
        let left: Vec<String> = cloud.workers().into_iter().filter(|w| w.contains("untagged")).collect();
        assert_eq!(left, [format!("{app}-0-untagged running")]);
        let tasks = [start_task(&cloud, app, UNTIL_TOLD), start_task(&cloud, "", UNTIL_TOLD)];
        tasks.iter().for_each(Task::more);
        each_sees_the_bundles_of_both(&cloud, machine);
        for which in [1, 0] {
            disturb(&cloud, machine, which, &tasks, "systemctl restart UNIT");
            if app == "small" {
                disturb(&cloud, machine, which, &tasks, "systemctl kill --kill-who=main --signal=KILL UNIT");
            }
        }
        if !stand_in(&cloud) {
            network(&cloud, app);
            // To Concourse, a process that has ended while nobody listens is an error.
            tasks.iter().for_each(Task::more);
        }
        tasks[0].tell(machine);
        for task in tasks {
            let (succeeded, lines) = task.wait();
            let mut whole: Vec<String> = (0..lines.len() - 1).map(|i| format!("line {i}")).collect();
            whole.push("told".into());
            assert_eq!((succeeded, lines), (true, whole), "{app}");
        }
        cloud.config(other, "worker-untagged=true");
        cloud.wait_active(&format!("{other}/0"));
    }

    // One status for both: it names the one that is missing.
    cloud.exec("2", "systemctl stop concourse-worker-untagged; \
        mkdir -p /etc/systemd/system/concourse-worker-untagged.service.d; \
        printf '[Service]\\nExecStart=\\nExecStart=/bin/false\\n' > /etc/systemd/system/concourse-worker-untagged.service.d/90-broken.conf");
    cloud.fire("small/0", "update-status");
    let told = cloud.status("small/0");
    assert!(
        told.starts_with("blocked: The untagged worker ")
            && told.contains("journalctl -u concourse-worker-untagged"),
        "{told}"
    );
    assert_eq!(
        cloud.run("small/0", &["check-status"])["worker"].as_str().unwrap().split(',').next(),
        Some("runs")
    );
    cloud.exec(
        "2",
        "rm /etc/systemd/system/concourse-worker-untagged.service.d/90-broken.conf; systemctl daemon-reload",
    );
    cloud.fire("small/0", "update-status");
    cloud.wait_active("small/0");

    // Drained and brought back are both.
    cloud.run("small/0", &["drain"]);
    let landed = ["small-0 landed [small]", "small-0-untagged landed"];
    assert_eq!(cloud.workers()[2..], landed);
    assert_eq!(pids(&cloud, "2"), ["0", "0"]);
    cloud.run("small/0", &["resume"]);
    cloud.wait_active("small/0");
    assert_eq!(cloud.workers()[2..], ["small-0 running [small]", "small-0-untagged running"]);

    // Another key is one for both, and both come back with it.
    let before = pids(&cloud, "2");
    cloud.run("small/0", &["rotate-keys"]);
    cloud.settle();
    cloud.wait_active("small/0");
    assert!(
        pids(&cloud, "2").iter().zip(&before).all(|(now, then)| now != then),
        "restarted with the old key"
    );
    assert_eq!(cloud.workers()[2..], ["small-0 running [small]", "small-0-untagged running"]);

    // Another version is one for both too, and after a reboot both are back without a controller's doing.
    cloud.config("small", "concourse-version=8.2.6");
    cloud.wait_active("small/0");
    cloud.reboot("2");
    wait("both workers after a reboot", Duration::from_secs(90), || {
        let running =
            BOTH.map(|unit| cloud.try_exec("2", &format!("systemctl is-active {unit}")).status.success());
        if running == [true; 2] { Ok(()) } else { Err(format!("{running:?}")) }
    });
    cloud.wait_active("small/0");
    for unit in BOTH {
        let runs =
            cloud.exec("2", &format!("readlink /proc/$(systemctl show --value -p MainPID {unit})/exe"));
        assert_eq!(runs.trim(), "/opt/concourse/versions/8.2.6/bin/concourse", "{unit}");
    }
    assert_eq!(cloud.workers()[2..], ["small-0 running [small]", "small-0-untagged running"]);

    // Switched off, it is gone at once with all that was its own.
    let before = cloud.pid("2", BOTH[0]);
    cloud.config("small", "worker-untagged=false");
    assert_eq!(cloud.workers(), ["big-0 running [big]", "big-0-untagged running", "small-0 running [small]"]);
    assert_eq!(cloud.exec("2", TRACES), "");
    assert_eq!(cloud.pid("2", BOTH[0]), before);
    assert_eq!(cloud.status("small/0"), "active: Worker ready");

    // A unit that goes leaves neither behind.
    cloud.juju(&["remove-unit", "big/0"]);
    cloud.settle();
    assert_eq!(cloud.workers(), ["small-0 running [small]"]);
    assert_eq!(cloud.exec("3", TRACES), "");
    let left = "ls -d /opt/concourse /etc/concourse /var/lib/concourse /run/concourse-ci-machine /etc/systemd/system/concourse* 2>/dev/null; \
        getent passwd concourse; grep concourse /proc/mounts; pgrep -a containerd; true";
    assert_eq!(cloud.exec("3", left), "", "left behind");
}

/// Containers of both workers reach the network while the other worker starts again, and after it.
fn network(cloud: &Cloud, app: &str) {
    let machine = if app == "small" { "2" } else { "3" };
    let address = cloud.exec("1", "hostname -I").split_whitespace().next().unwrap().to_owned();
    let ask = format!("wget -qO- http://{address}:8080/api/v1/info; echo");
    for which in [0, 1] {
        cloud.exec(machine, &format!("systemctl restart --no-block {}", BOTH[which]));
        let tag = if which == 0 { "" } else { app };
        let (succeeded, lines) = start_task(cloud, tag, &ask).wait();
        assert!(succeeded && lines.concat().contains("\"version\""), "{app} {which}: {lines:?}");
    }
    cloud.wait_active(&format!("{app}/0"));
}
