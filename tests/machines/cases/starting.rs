//! A worker's restart waits until no step is being started, and what runs meanwhile stands still.

use crate::kit::cloud::{Cloud, wait};
use crate::kit::task::{UNTIL_TOLD, quoted, stand_in, start_task};
use std::time::Duration;

/// Many short tasks by `fly`: some are being started, and some end, in each moment of half a minute.
const MANY: &str = r#"
cd /run/task && export HOME=$PWD
jq -n '{platform: "linux", image_resource: {type: "mock", source: {mirror_self: true, initial_version: "1"}},
    run: {path: "sh", args: ["-c", "echo it runs; sleep 1; echo it ends"]}}' >short.yml
end=$((SECONDS + 30))
for i in $(seq 100); do
    [ $SECONDS -lt $end ] || break
    (./fly -t task execute -c short.yml >many.$i 2>&1 </dev/null; echo "exit $?" >>many.$i) &
    sleep 1.7
done
wait
touch all-have-ended"#;

#[test]
#[ignore = "needs machines"]
fn machine_a_restart_waits_for_its_moment() {
    let cloud = Cloud::with_workers("starting", &[("worker", true)]);
    let task = start_task(&cloud, "", UNTIL_TOLD);
    let process = || cloud.pid("2", "concourse-worker");
    let nothing_held = || {
        let held = "systemctl is-active concourse-hold-worker; grep -l 1 $(find /sys/fs/cgroup -name cgroup.freeze); true";
        assert_eq!(cloud.exec("2", held), "inactive\n");
    };

    // Volumes are mounted for the worker alone: a real one mounts them again at each start, and shared mounts double.
    let mounts =
        |of: &str| cloud.exec("2", &format!("grep -c /worker/volumes/live/ /proc/{of}/mountinfo || true"));
    assert_eq!(mounts("1"), "0\n");
    assert_ne!(mounts(&process()), "0\n");

    // Somebody has a volume made, another one keeps a connection, as the worker itself does.
    let before = process();
    let ask = |unit: &str, what: &str| {
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/7788; printf '{what}' >&3; sleep infinity");
        cloud.exec("2", &format!("systemd-run --quiet --unit={unit} bash -c {}", quoted(&script)));
    };
    ask("keeps", "");
    ask("asks", "PUT /volumes");
    cloud.juju(&["config", "worker", "log-level=debug"]);
    wait("the hook to restart the worker", Duration::from_secs(20), || match cloud.status("worker/0") {
        now if now == "maintenance: Restarting the worker..." => Ok(()),
        other => Err(other),
    });
    assert_eq!(process(), before, "it did not wait");
    task.more();
    cloud.exec("2", "systemctl stop asks");
    cloud.settle();
    cloud.wait_active("worker/0");
    assert_ne!(process(), before, "it was not restarted");
    nothing_held();
    task.more();

    // In the middle of it, when steps stand still, the hook is killed.
    let killed = "until grep -qsx 'frozen 1' $(find /sys/fs/cgroup -name cgroup.events); do sleep 0.01; done
        touch /run/stood-still; pkill -KILL -x dispatch";
    cloud.exec("2", &format!("systemd-run --quiet --unit=kills bash -c {}", quoted(killed)));
    let before = process();
    cloud.juju(&["config", "worker", "log-level=info"]);
    wait("the kill", Duration::from_secs(60), || {
        let out = cloud.try_exec("2", "systemctl is-active kills");
        if out.status.success() { Err("not yet".to_owned()) } else { Ok(()) }
    });
    cloud.try_juju(&["resolved", "worker/0"]);
    cloud.settle();
    cloud.wait_active("worker/0");
    assert_ne!(process(), before, "it was not restarted");
    nothing_held();
    cloud.exec("2", "ls /run/stood-still");
    let never_calm =
        cloud.juju(&["debug-log", "--limit", "400"]).matches("has steps started all the time").count();
    assert_eq!(never_calm, 0, "a connection that is only kept was waited for");
    task.more();
    task.tell("2");
    assert!(task.wait().0, "the build did not succeed");

    if !stand_in(&cloud) {
        short_tasks(&cloud);
    }
}

/// None of them meets a restart's end.
fn short_tasks(cloud: &Cloud) {
    cloud.exec("1", &format!("systemd-run --quiet --unit=many bash -c {}", quoted(MANY)));
    for level in ["debug", "info"].iter().cycle() {
        let over = "[ -e /run/task/all-have-ended ] || [ $(ls /run/task/many.* | wc -l) -ge 16 ]";
        if cloud.try_exec("1", over).status.success() {
            break;
        }
        cloud.config("worker", &format!("log-level={level}"));
    }
    wait("all tasks to end", Duration::from_secs(120), || {
        let ended = cloud.try_exec("1", "ls /run/task/all-have-ended").status.success();
        if ended { Ok(()) } else { Err("not all have".to_owned()) }
    });
    let bad = "cd /run/task; grep -L 'it ends' many.*; grep -L 'exit 0' many.* | xargs -r tail -n 4";
    assert_eq!(cloud.exec("1", bad), "");
}
