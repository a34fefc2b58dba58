//! Options: a bad one is told and stops nothing, a good one reaches the programs, and the operator's own files stay.

use crate::kit::cloud::Cloud;

const PROGRAMS: [(&str, &str); 2] = [("1", "concourse-web"), ("2", "concourse-worker")];

fn pids(cloud: &Cloud) -> [String; 2] {
    PROGRAMS.map(|(machine, service)| cloud.pid(machine, service))
}

#[test]
#[ignore = "needs machines"]
fn machine_bad_options_stop_nothing() {
    let cloud = Cloud::with_workers("badopt", &[("worker", false)]);
    let before = pids(&cloud);
    let rows = [
        ("web", "web-port=70000", "web-port: 70000 is not a port; use 1 to 65535"),
        ("web", "web-port=-1", "web-port: -1 is not a port; use 1 to 65535"),
        ("web", "web-port=0", "web-port: 0 is not a port; use 1 to 65535"),
        ("web", "web-port=2222", "web-port: 2222 is where workers register; use another port, such as 8080"),
        (
            "worker",
            "log-level=warn",
            "log-level: \"warn\" is not one of debug, info, error, fatal; use error",
        ),
        (
            "worker",
            "containerd-dns-proxy-enable=true",
            "containerd-dns-proxy-enable: another program has port 53 of this machine; set it to false, or free the port \
             (of systemd-resolved: DNSStubListener=no in /etc/systemd/resolved.conf, and /etc/resolv.conf a link to \
             /run/systemd/resolve/resolv.conf)",
        ),
        ("web", "deployment-mode=both", "deployment-mode: \"both\" is not one of auto, all, web, worker"),
        (
            "worker",
            "concourse-env=CONCOURSE_CONTAINERD_MAX_CONTAINER: 5",
            "concourse-env: CONCOURSE_CONTAINERD_MAX_CONTAINER is no setting of Concourse; did you mean CONCOURSE_CONTAINERD_MAX_CONTAINERS?",
        ),
    ];
    for (app, option, told) in rows {
        cloud.config(app, option);
        assert_eq!(cloud.status(&format!("{app}/0")), format!("blocked: {told}"), "{option}");
        assert_eq!(pids(&cloud), before, "{option}");
        let name = option.split('=').next().unwrap();
        // The mode has no usable default here: what was good is said again.
        let back = if name == "deployment-mode" {
            ["config", app, "deployment-mode=web"].to_vec()
        } else {
            vec!["config", app, "--reset", name]
        };
        cloud.juju(&back);
        cloud.settle();
        assert!(
            cloud.status(&format!("{app}/0")).starts_with("active: "),
            "{option} taken back: {}",
            cloud.status(&format!("{app}/0"))
        );
    }

    // All at once: one message with every one of them, and what is good among them waits for the rest.
    cloud.juju(&[
        "config",
        "web",
        "web-port=0",
        "log-level=warn",
        "deployment-mode=both",
        "tag=a b",
        "concourse-env=CONCOURSE_CLUSTERNAME: ci",
        "external-url=http://ci.example.com",
    ]);
    cloud.settle();
    let said = cloud.status("web/0");
    for name in ["deployment-mode: ", "web-port: ", "log-level: ", "tag: ", "concourse-env: "] {
        assert!(said.starts_with("blocked: ") && said.contains(name), "{name} is not in {said:?}");
    }
    assert_eq!(pids(&cloud), before);
    // Workers come and go meanwhile: what runs is looked after as before.
    cloud.juju(&["remove-relation", "web:web-tsa", "worker:worker-tsa"]);
    cloud.settle();
    assert_eq!(cloud.exec("1", "cat /var/lib/concourse/keys/authorized_worker_keys"), "");
    cloud.juju(&["config", "web", "--reset", "web-port,log-level,tag,concourse-env,external-url"]);
    cloud.config("web", "deployment-mode=web");
    assert!(cloud.status("web/0").starts_with("active: "), "{}", cloud.status("web/0"));
    assert_eq!(pids(&cloud)[0], before[0]);
}

/// Everything that a shell, systemd or a URL would take for something else.
const SPECIAL: &str = r##"a b  "c" 'd' \e $HOME ${PATH} %h `id` #f; é=*!&|<>"##;

#[test]
#[ignore = "needs machines"]
fn machine_settings_reach_the_programs() {
    let cloud = Cloud::with_workers("goodopt", &[("worker", false)]);
    let own = "umask 077; printf 'CONCOURSE_CLUSTER_NAME=mine\nOWN=yes\n' > /etc/concourse/$0.local.env; \
        mkdir -p /etc/systemd/system/concourse-$0.service.d; \
        printf '[Service]\nEnvironment=DROPPED_IN=yes\n' > /etc/systemd/system/concourse-$0.service.d/50-own.conf; \
        systemctl daemon-reload; systemctl restart concourse-$0";
    for (machine, role) in [("1", "web"), ("2", "worker")] {
        cloud.exec(machine, &own.replace("$0", role));
    }
    cloud.wait_active("web/0");
    cloud.wait_active("worker/0");

    // From the option, but what the operator wrote on the machine wins.
    let yaml = |name: &str| format!("concourse-env={}", serde_json::json!({ name: SPECIAL }));
    cloud.config("web", &yaml("CONCOURSE_TRACING_SERVICE_NAME"));
    cloud.config("worker", &yaml("CONCOURSE_TRACING_SERVICE_NAME"));
    for (machine, service) in PROGRAMS {
        let seen = cloud.environment(machine, service);
        assert_eq!(seen["CONCOURSE_TRACING_SERVICE_NAME"], SPECIAL, "{service}");
        assert_eq!([&seen["OWN"], &seen["DROPPED_IN"]], ["yes", "yes"], "{service}");
    }
    cloud.config("web", "concourse-env=CONCOURSE_CLUSTER_NAME: theirs");
    assert!(cloud.exec("1", "cat /etc/concourse/web.env").contains("theirs"));
    assert_eq!(cloud.environment("1", "concourse-web")["CONCOURSE_CLUSTER_NAME"], "mine");

    // From a secret: not before it is granted, then at once what it holds, also when that is replaced.
    let id = cloud.juju(&["add-secret", "ldap", &format!("ldap-bind-pw={SPECIAL}")]);
    let before = pids(&cloud);
    cloud.config("web", &format!("concourse-secrets={}", id.trim()));
    assert_eq!(
        cloud.status("web/0"),
        "blocked: concourse-secrets: grant it to this application: juju grant-secret NAME web"
    );
    assert_eq!(pids(&cloud), before);
    cloud.juju(&["grant-secret", "ldap", "web"]);
    cloud.wait_active("web/0");
    assert_eq!(cloud.environment("1", "concourse-web")["CONCOURSE_LDAP_BIND_PW"], SPECIAL);
    cloud.juju(&["update-secret", "ldap", "ldap-bind-pw=other"]);
    cloud.settle();
    assert_eq!(cloud.environment("1", "concourse-web")["CONCOURSE_LDAP_BIND_PW"], "other");

    // A new charm with nothing new in it restarts nothing, and leaves what isn't its own.
    let before = pids(&cloud);
    cloud.refresh("web");
    cloud.refresh("worker");
    assert_eq!(pids(&cloud), before, "restarted by a refresh");
    let files =
        "cat /etc/concourse/worker.local.env /etc/systemd/system/concourse-worker.service.d/50-own.conf";
    assert_eq!(cloud.exec("2", files).lines().count(), 4);
    cloud.juju(&["remove-unit", "worker/0"]);
    cloud.settle();
    assert_eq!(
        cloud.exec("2", files).lines().count(),
        4,
        "the operator's files are not the charm's to remove"
    );
    let left = cloud.exec("2", "ls /etc/concourse /etc/systemd/system/concourse-worker.service.d");
    assert_eq!(
        left.lines().filter(|line| line.ends_with(".env") || line.ends_with(".conf")).count(),
        2,
        "{left}"
    );
}

#[test]
#[ignore = "needs machines"]
fn machine_another_volume_driver_waits_for_a_drain() {
    let cloud = Cloud::with_workers("volumes", &[("worker", false)]);
    let driver = || cloud.environment("2", "concourse-worker")["CONCOURSE_BAGGAGECLAIM_DRIVER"].clone();
    assert_eq!(driver(), "overlay");
    let before = pids(&cloud);
    cloud.config("worker", "volume-driver=naive");
    // Volumes of one driver are nothing to another: it would cost the running builds theirs.
    assert_eq!(
        cloud.status("worker/0"),
        "active: Worker ready (volume-driver takes effect with the actions drain and resume)"
    );
    assert_eq!(pids(&cloud), before);

    cloud.run("worker/0", &["drain"]);
    assert_eq!(cloud.status("worker/0"), "blocked: Worker drained: bring it back with the action resume");
    assert_eq!(cloud.pid("2", "concourse-worker"), "0");
    cloud.tsa_takes_commands("1");
    cloud.run("worker/0", &["resume"]);
    cloud.wait_active("worker/0");
    assert_eq!(cloud.status("worker/0"), "active: Worker ready");
    assert_eq!(driver(), "naive");
    assert_eq!(cloud.workers(), ["worker-0 running"]);
}
