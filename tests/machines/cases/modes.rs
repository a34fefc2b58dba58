//! The roles of an application's units, and that units change them without a loss.

use crate::kit::cloud::Cloud;

/// What all web nodes of an application must have in common, and a worker must not have.
const SHARED: &str = "cd /var/lib/concourse/keys; cat tsa_host_key tsa_host_key.pub session_signing_key; \
    grep -E '^CONCOURSE_(POSTGRES_|ADD_LOCAL_USER)' /etc/concourse/web.env";

#[test]
#[ignore = "needs machines"]
fn machine_auto_mode_survives_its_leader() {
    // The other flavour of Juju, whose leaders and secrets differ most.
    let cloud = Cloud::of_juju("auto", "3.6.27");
    cloud.database();
    cloud.deploy("ci", &cloud.machine(false), &[]);
    let machines = ["1".to_owned(), cloud.add_unit("ci"), cloud.add_unit("ci")];
    assert_eq!(machines, ["1", "2", "3"]);
    cloud.juju(&["integrate", "ci:database", "postgresql:database"]);
    cloud.settle();
    cloud.wait_status("ci/0", "active: Web server ready (v");
    cloud.wait_status("ci/1", "active: Worker ready");
    cloud.wait_status("ci/2", "active: Worker ready");
    let password = cloud.password("ci/0");
    let token = cloud.login("1", &password);
    cloud.wait_workers("1", &token, &["ci-1", "ci-2"]);
    let shared = cloud.exec("1", SHARED);
    assert_eq!(shared.matches("PRIVATE KEY-----").count(), 4, "two private keys");

    cloud.juju(&["emulate", "elect", "ci/1"]);
    cloud.settle();
    cloud.wait_status("ci/1", "active: Web server ready (v");
    cloud.wait_status("ci/0", "active: Worker ready");
    cloud.wait_status("ci/2", "active: Worker ready");
    assert_eq!(cloud.exec("2", SHARED), shared);
    assert_eq!(cloud.password("ci/1"), password);
    // The old web node's token is good at the new one: the same database and the same users, and nobody logs in again.
    cloud.wait_workers("2", &token, &["ci-0", "ci-2"]);
    // A worker has no business with a web node's keys and settings.
    let left = "ls /var/lib/concourse/keys /etc/concourse /etc/systemd/system | grep -E '^(web|tsa_host_key($|\\.pub)|session|authorized)|concourse-web'; \
        grep -l 'PRIVATE KEY' /var/lib/concourse/charm/memory.json; systemctl is-active concourse-web; ss -Hltn 'sport = :8080 or sport = :2222'; true";
    assert_eq!(cloud.exec("1", left), "inactive\n");

    let before = cloud.pid("2", "concourse-web");
    cloud.juju(&["remove-unit", "ci/0"]);
    cloud.settle();
    cloud.wait_workers("2", &token, &["ci-2"]);
    assert_eq!(cloud.status("ci/2"), "active: Worker ready");
    assert_eq!(cloud.pid("2", "concourse-web"), before, "restarted for a worker that went");
}

#[test]
#[ignore = "needs machines"]
fn machine_all_mode_is_web_and_worker() {
    let cloud = Cloud::start("all");
    cloud.database();
    cloud.deploy("web", &cloud.machine(false), &["deployment-mode=all"]);
    // Word for word what seed 000 tells its users.
    cloud.juju(&["relate", "web:postgresql", "postgresql:db"]);
    cloud.settle();
    cloud.wait_status("web/0", "active: Web server and worker ready (v");
    assert_eq!(cloud.workers(), ["web-0 running"]);

    let before = ["concourse-web", "concourse-worker"].map(|service| cloud.pid("1", service));
    let second = cloud.add_unit("web");
    cloud.settle();
    cloud.wait_status("web/1", "active: Web server and worker ready (v");
    let password = cloud.password("web/0");
    assert_eq!(cloud.password("web/1"), password);
    let keys = "cd /var/lib/concourse/keys; cat tsa_host_key session_signing_key";
    assert_eq!(cloud.exec("1", keys), cloud.exec(&second, keys));
    assert_ne!(
        cloud.exec("1", "cat /var/lib/concourse/keys/worker_key"),
        cloud.exec(&second, "cat /var/lib/concourse/keys/worker_key")
    );
    // A login at one node is good at the other.
    let token = cloud.login("1", &password);
    cloud.wait_workers(&second, &token, &["web-0", "web-1"]);
    assert_eq!(["concourse-web", "concourse-worker"].map(|service| cloud.pid("1", service)), before);

    // New keys are those of all web nodes, each time.
    let mut old = cloud.exec("1", keys);
    for _ in 0..2 {
        cloud.run("web/0", &["rotate-keys"]);
        cloud.settle();
        cloud.wait_status("web/0", "active: Web server and worker ready (v");
        cloud.wait_status("web/1", "active: Web server and worker ready (v");
        let new = cloud.exec("1", keys);
        assert_ne!(new, old);
        assert_eq!(cloud.exec(&second, keys), new);
        old = new;
    }
    let token = cloud.login(&second, &password);
    cloud.wait_workers("1", &token, &["web-0", "web-1"]);

    // Web nodes only: their workers retire, and nothing tells of them any more.
    cloud.config("web", "deployment-mode=web");
    cloud.wait_status("web/0", "active: Web server ready (v");
    cloud.wait_status("web/1", "active: Web server ready (v");
    cloud.wait_workers("1", &token, &[]);
    let left = "ls -d /var/lib/concourse/worker /etc/concourse/worker* /etc/systemd/system/concourse-worker* 2>/dev/null; pgrep -a containerd; true";
    assert_eq!(cloud.exec("1", left), "");
}
