//! A web node and workers find each other, work, and are told apart when they go.

use crate::kit::cloud::{Cloud, wait};
use std::time::Duration;

#[test]
#[ignore = "needs machines"]
fn machine_workers_come_and_go() {
    let cloud = Cloud::with_workers("job", &[("worker", false), ("big", true)]);
    assert_eq!(cloud.workers(), ["big-0 running", "worker-0 running"]);
    assert_eq!(cloud.status("worker/0"), "active: Worker ready");

    // Nothing changed: nothing is done, and it costs a handful of calls.
    cloud.juju(&["emulate", "calls", "--reset"]);
    let before = cloud.exec("1", "systemctl show -p MainPID concourse-web");
    for unit in ["web/0", "worker/0"] {
        cloud.fire(unit, "update-status");
        let calls = cloud.juju(&["emulate", "hooks", unit, "--json"]);
        let calls: serde_json::Value = serde_json::from_str(&calls).unwrap();
        let count = calls.as_array().unwrap().last().unwrap()["calls"].as_array().unwrap().len();
        assert!(count <= 6, "{unit} made {count} calls");
    }
    cloud.config("web", "concourse-sha256=");
    assert_eq!(cloud.exec("1", "systemctl show -p MainPID concourse-web"), before);

    // Tags are told at once.
    cloud.config("worker", "tag=gpu,a=b");
    wait("tags", Duration::from_secs(30), || match cloud.workers() {
        seen if seen == ["big-0 running", "worker-0 running [a=b gpu]"] => Ok(()),
        seen => Err(format!("{seen:?}")),
    });

    // A web node that has to restart asks its workers first; one that can't answer is not waited for, and no hook of
    // Juju's is needed for that.
    cloud.exec("3", "systemctl kill --signal=STOP jujud-machine");
    let before = cloud.pid("1", "concourse-web");
    cloud.juju(&["config", "web", "log-level=debug"]);
    wait("the web node's restart", Duration::from_secs(90), || match cloud.pid("1", "concourse-web") {
        now if now != before && now != "0" => Ok(()),
        now => Err(format!("{before}, now {now}")),
    });
    cloud.exec("3", "systemctl kill --signal=CONT jujud-machine");
    cloud.settle();
    cloud.wait_active("web/0");
    cloud.wait_active("big/0");

    // A unit that goes is off the list and its key is refused.
    let key = cloud.exec("3", "cat /var/lib/concourse/keys/worker_key.pub");
    cloud.juju(&["remove-unit", "big/0"]);
    cloud.settle();
    assert_eq!(cloud.workers(), ["worker-0 running [a=b gpu]"]);
    let keys = cloud.exec("1", "cat /var/lib/concourse/keys/authorized_worker_keys");
    assert!(!keys.contains(key.trim()), "{keys}");
    let left = cloud.exec(
        "3",
        "ls -d /opt/concourse /etc/concourse /var/lib/concourse /run/concourse-ci-machine /etc/systemd/system/concourse* 2>/dev/null; \
         getent passwd concourse; grep concourse /proc/mounts; pgrep -a containerd; true",
    );
    assert_eq!(left, "", "left behind");

    // A relation that goes is no longer called ready.
    cloud.juju(&["remove-relation", "web:web-tsa", "worker:worker-tsa"]);
    cloud.settle();
    assert_eq!(
        cloud.status("worker/0"),
        "blocked: Relate a web node: juju integrate WEB:web-tsa worker:worker-tsa"
    );
    wait("the worker to be gone", Duration::from_secs(60), || match cloud.workers() {
        seen if seen.is_empty() => Ok(()),
        seen => {
            cloud.fire("web/0", "update-status");
            Err(format!("{seen:?}"))
        }
    });
    cloud.juju(&["integrate", "web:web-tsa", "worker:worker-tsa"]);
    cloud.settle();
    cloud.wait_active("worker/0");
}
