//! What the other side of a relation says is parsed or refused; a refusal changes nothing that works.

use crate::kit::cloud::Cloud;
use crate::kit::look::mute_charm;
use serde_json::{Value, json};

const RELAY: &str = "name: relay\nsummary: hands on what it is told\ndescription: and may say anything\n\
    provides: {web-tsa: {interface: concourse-tsa}}\nrequires: {worker-tsa: {interface: concourse-tsa}}\n";

/// Writes into the relay's bag of a relation what no decent charm would.
fn say(cloud: &Cloud, endpoint: &str, values: &Value) {
    let script = format!("relation-set -r $(relation-ids {endpoint}) --file - <<'END'\n{values}\nEND");
    cloud.juju(&["exec", "--unit", "relay/0", "--", &script]);
    cloud.settle();
}

/// What a unit has told the relay.
fn hear(cloud: &Cloud, endpoint: &str, unit: &str) -> Value {
    let script = format!("relation-get -r $(relation-ids {endpoint}) --format=json - {unit}");
    serde_json::from_str(&cloud.juju(&["exec", "--unit", "relay/0", "--", &script])).unwrap()
}

#[test]
#[ignore = "needs machines"]
fn machine_bad_data_from_the_other_side() {
    // The relay stands between the web node and the worker `far`, as a proxy of another model would; `worker` has the
    // web node for itself.
    let cloud = Cloud::with_workers("baddata", &[("worker", false)]);
    let charm = mute_charm(RELAY);
    cloud.juju(&["deploy", charm.path().join("mute.charm").to_str().unwrap(), "relay", "--to", "0"]);
    cloud.deploy("far", &cloud.machine(false), &["deployment-mode=worker"]);
    cloud.juju(&["integrate", "web:web-tsa", "relay:worker-tsa"]);
    cloud.juju(&["integrate", "relay:web-tsa", "far:worker-tsa"]);
    cloud.settle();
    assert_eq!(cloud.status("far/0"), "waiting: Waiting for TSA connection info...");
    let web = hear(&cloud, "worker-tsa", "web/0");
    let tsa = json!({"tsa-host": web["tsa-host"], "tsa-public-key": web["tsa-public-key"], "concourse-version": web["concourse-version"]});
    let key = hear(&cloud, "web-tsa", "far/0")["worker-public-key"].as_str().unwrap().to_owned();
    let good = json!({ "worker-public-key": key });
    say(&cloud, "worker-tsa", &good);
    say(&cloud, "web-tsa", &tsa);
    cloud.wait_active("far/0");
    let token = cloud.login("1", &cloud.password("web/0"));
    cloud.wait_workers("1", &token, &["far-0", "worker-0"]);

    let state = || {
        let pids = [("1", "concourse-web"), ("2", "concourse-worker"), ("3", "concourse-worker")];
        let files = "cat /etc/concourse/worker.env /var/lib/concourse/keys/tsa_host_keys.pub; readlink /opt/concourse/current";
        (pids.map(|(machine, service)| cloud.pid(machine, service)), cloud.exec("3", files))
    };
    let before = state();
    let keys = || cloud.exec("1", "cat /var/lib/concourse/keys/authorized_worker_keys");
    let both = keys();
    assert_eq!(both.lines().count(), 2);
    let others: Vec<&str> = both.lines().filter(|line| *line != key).collect();

    // To the web node: more than one key, and a key with powers. Only the worker behind the relay loses its place.
    let evil = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJWyUZNCB3fWu/mIu0MMLHpQzLMo+VQ9XzRvFPIVwnJQ";
    for bad in [
        format!("{key}\n{evil}"),
        format!("command=\"true\" {evil}"),
        "ssh-rsa AAAA".to_owned(),
        format!("{key}\r"),
    ] {
        say(&cloud, "worker-tsa", &json!({ "worker-public-key": bad }));
        let said = cloud.status("web/0");
        if bad.ends_with('\r') {
            // A line break at the end is how key files end.
            assert!(said.starts_with("active: "), "{bad:?}: {said}");
            continue;
        }
        assert!(
            said.starts_with("blocked: A worker's data can't be used: web-tsa:")
                && said.contains(": relay/0 says worker-public-key that is bad: "),
            "{bad:?}: {said}"
        );
        assert_eq!(keys().lines().collect::<Vec<_>>(), others, "{bad:?}");
        assert_eq!(state(), before, "{bad:?}");
    }
    say(&cloud, "worker-tsa", &good);
    assert_eq!(keys(), both);

    // To the worker: nothing of it reaches its settings, and what runs goes on with what was good.
    let host = web["tsa-host"].as_str().unwrap();
    let rows = [
        ("tsa-host", host.rsplit_once(':').unwrap().0.to_owned()),
        ("tsa-host", format!("{host}\nCONCOURSE_NAME=evil")),
        ("tsa-host", format!("{host},10.0.0.9:2222")),
        ("tsa-host", "-oProxyCommand=true:2222".to_owned()),
        ("tsa-public-key", format!("{}\n{evil}", web["tsa-public-key"].as_str().unwrap())),
        ("concourse-version", "../../../etc".to_owned()),
        ("concourse-version", "latest".to_owned()),
        ("concourse-version", "8.2.6\n".to_owned() + evil),
    ];
    for (name, value) in rows {
        let mut bad = tsa.clone();
        bad[name] = json!(value);
        say(&cloud, "web-tsa", &bad);
        let said = cloud.status("far/0");
        assert!(
            said.starts_with("blocked: The web node's data can't be used: worker-tsa:")
                && said.contains(&format!(": relay/0 says {name} that is bad: ")),
            "{name}={value:?}: {said}"
        );
        assert!(!said.contains('\n'), "{said}");
        assert_eq!(state(), before, "{name}={value:?}");
    }
    cloud.wait_workers("1", &token, &["far-0", "worker-0"]);
    say(&cloud, "web-tsa", &tsa);
    assert_eq!(cloud.status("far/0"), "active: Worker ready");
    assert!(cloud.status("web/0").starts_with("active: "));
    assert_eq!(state(), before, "good again");
}
