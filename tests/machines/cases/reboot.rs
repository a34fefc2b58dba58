//! Machines come back by themselves, and a controller that is heard again finds nothing to do.

use crate::kit::cloud::{Cloud, wait};
use std::time::Duration;

const SERVICES: [(&str, &str); 2] = [("1", "concourse-web"), ("2", "concourse-worker")];

#[test]
#[ignore = "needs machines"]
fn machine_reboots_need_no_controller() {
    let cloud = Cloud::with_workers("reboot", &[("worker", false)]);
    let token = cloud.login("1", &cloud.password("web/0"));
    let started = || cloud.worker_rows("1", &token)[0]["start_time"].as_u64().unwrap();
    let before = started();
    for (machine, _) in SERVICES {
        cloud.exec(machine, "systemctl disable --quiet --now jujud-machine");
    }
    // The worker first: it finds a web node that is away, and has to wait for it.
    cloud.reboot("2");
    cloud.reboot("1");

    wait("the web node's answer", Duration::from_secs(60), || {
        let out = cloud.try_exec("1", "curl -sf http://127.0.0.1:8080/api/v1/info");
        if out.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&out.stderr).into_owned()) }
    });
    // The row says `running` for two minutes after a worker is gone; when it was started tells a new registration.
    wait("the worker's new registration", Duration::from_secs(90), || match started() {
        now if now > before => Ok(()),
        now => Err(format!("started at {now}")),
    });
    cloud.wait_workers("1", &token, &["worker-0"]);
    let agents = SERVICES.map(|(machine, _)| cloud.exec(machine, "systemctl is-active jujud-machine; true"));
    assert_eq!(agents, ["inactive\n", "inactive\n"], "an agent has helped");

    let pids = SERVICES.map(|(machine, service)| cloud.pid(machine, service));
    cloud.juju(&["emulate", "calls", "--reset"]);
    for (machine, _) in SERVICES {
        cloud.exec(machine, "systemctl enable --quiet --now jujud-machine");
    }
    cloud.settle();
    for unit in ["web/0", "worker/0"] {
        wait(&format!("the start hook of {unit}"), Duration::from_secs(30), || match cloud.hooks(unit) {
            hooks if hooks.iter().any(|hook| hook == "start") => Ok(()),
            hooks => Err(format!("{hooks:?}")),
        });
        cloud.settle();
        assert!(cloud.status(unit).starts_with("active: "), "{}", cloud.status(unit));
    }
    assert_eq!(
        SERVICES.map(|(machine, service)| cloud.pid(machine, service)),
        pids,
        "restarted by a hook after the boot"
    );
}
