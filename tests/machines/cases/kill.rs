//! A hook that is killed anywhere is made good by the one that Juju runs next.

use crate::kit::cloud::Cloud;
use crate::kit::task::quoted;
use serde_json::Value;
use std::time::Duration;

/// What stands on the disk when `dispatch` is killed, and how many seconds later that is.
const INSTALL: [(&str, &str); 8] = [
    ("[ -e /var/lib/concourse/charm/unit ]", "0"),
    ("ls /opt/concourse/downloads/*.part", "0.03"),
    ("ls -d /opt/concourse/versions/.staging*", "0"),
    ("ls -d /opt/concourse/versions/.staging*", "0.3"),
    ("[ -e /opt/concourse/versions/8.2.5 ]", "0"),
    ("ls -d /var/lib/concourse/keys/.new-*", "0.1"),
    ("[ -e /etc/systemd/system/concourse-web.service ]", "0"),
    ("systemctl is-active concourse-web", "0"),
];
const WORKER: [(&str, &str); 6] = [
    ("[ -e /var/lib/concourse/charm/unit ]", "0"),
    ("ls -d /opt/concourse/versions/.staging*", "0.1"),
    ("[ -e /var/lib/concourse/keys/worker_key ]", "0"),
    ("[ -e /var/lib/concourse/worker ]", "0"),
    ("[ -e /etc/systemd/system/concourse-worker.service ]", "0"),
    ("systemctl is-active concourse-worker", "0"),
];
const UPGRADE: [(&str, &str); 5] = [
    ("ls /opt/concourse/downloads/*8.2.6*.part", "0.1"),
    ("ls -d /opt/concourse/versions/.staging*", "0.5"),
    ("[ -e /opt/concourse/versions/8.2.6 ]", "0"),
    ("[ $(readlink /opt/concourse/current) = versions/8.2.6 ]", "0.05"),
    ("[ $(systemctl show --value -p MainPID concourse-web) != $before ]", "0"),
];

const WEB: (&str, &str) = ("1", "web/0");

/// What is half done.
const LEFT: &str = "find /opt/concourse /etc/concourse /var/lib/concourse -xdev -name '.new-*' -o -name '.staging*' \
    -o -name '.old-*' -o -path '*/downloads/*'";

#[test]
#[ignore = "needs machines"]
fn machine_kill_9_of_dispatch_converges() {
    let cloud = Cloud::start("kill");
    cloud.database();
    let machine = cloud.machine(false);
    cloud.deploy("web", &machine, &["deployment-mode=web"]);
    cloud.juju(&["integrate", "web:database", "postgresql:database"]);
    let mut kills = kill(&cloud, WEB, &INSTALL, "");
    assert_whole(&cloud, "8.2.5");

    cloud.deploy("worker", &cloud.machine(false), &["deployment-mode=worker"]);
    cloud.juju(&["integrate", "web:web-tsa", "worker:worker-tsa"]);
    let killed = kill(&cloud, ("2", "worker/0"), &WORKER, "");
    assert!(killed >= 3, "only {killed} hooks of the worker were killed");
    cloud.settle();
    cloud.wait_status("worker/0", "active: Worker ready");
    assert_eq!(cloud.exec("2", LEFT), "", "left behind");
    assert_eq!(cloud.workers(), ["worker-0 running"]);

    let before = cloud.pid("1", "concourse-web");
    cloud.juju(&["config", "web", "concourse-version=8.2.6"]);
    kills += kill(&cloud, WEB, &UPGRADE, &before);
    assert_whole(&cloud, "8.2.6");
    // On a quick machine a moment may be over before it is seen; most never are.
    assert!(kills >= 8, "only {kills} hooks were killed");
}

/// Kills `dispatch`, and nothing else, a little after each of the moments, as far as they come while a hook runs; Juju runs
/// the hook again. Gives how often: after ten seconds without any hook there will be none.
fn kill(cloud: &Cloud, (machine, unit): (&str, &str), moments: &[(&str, &str)], before: &str) -> usize {
    let moments: Vec<String> =
        moments.iter().map(|(moment, later)| format!("after {later} {}", quoted(moment))).collect();
    // All of them by one script, which sees the next hook as soon as it runs.
    let script = format!(
        "before={before}; killed=0
        after() {{
            idle=$((SECONDS + 10)); end=$((SECONDS + 60))
            while [ $SECONDS -lt $idle ] && [ $SECONDS -lt $end ]; do
                if pgrep -x dispatch; then
                    idle=$((SECONDS + 10))
                    if eval \"$2\"; then
                        sleep $1
                        if pkill -KILL -x dispatch; then killed=$((killed + 1)); return; fi
                    fi
                fi
                sleep 0.01
            done >/dev/null 2>&1
            if [ $SECONDS -ge $idle ]; then echo $killed; exit; fi
        }}
        {}
        echo $killed",
        moments.join("\n")
    );
    std::thread::scope(|scope| {
        let script = scope.spawn(|| cloud.exec(machine, &script));
        while !script.is_finished() {
            // Juju waits longer each time; an operator doesn't have to. There is nothing to resolve if it was quicker.
            cloud.try_juju(&["resolved", unit]);
            std::thread::sleep(Duration::from_millis(200));
        }
        script.join().unwrap().trim().parse().unwrap()
    })
}

/// It runs, nothing half done is left, and nothing was made twice.
fn assert_whole(cloud: &Cloud, version: &str) {
    cloud.settle();
    cloud.wait_status("web/0", &format!("active: Web server ready (v{version})"));
    assert_eq!(cloud.exec("1", LEFT), "", "left behind");
    let secrets: Value = serde_json::from_str(&cloud.juju(&["secrets", "--format", "json"])).unwrap();
    let mut labels: Vec<&str> =
        secrets.as_object().unwrap().values().filter_map(|secret| secret["label"].as_str()).collect();
    labels.retain(|label| label.starts_with("concourse-"));
    labels.sort_unstable();
    assert_eq!(labels, ["concourse-admin", "concourse-keys"], "{secrets}");
    // The secret holds what is on the disk: another web node would be the same to workers.
    let dump = cloud.dump().to_string();
    let public = cloud.exec("1", "cat /var/lib/concourse/keys/tsa_host_key.pub");
    assert!(dump.contains(public.trim()), "the keys on the disk are not those of the secret");
    let password = cloud.password("web/0");
    assert!(!cloud.login("1", &password).is_empty());
}
