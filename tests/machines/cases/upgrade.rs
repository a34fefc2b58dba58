//! Versions change by option and by action, and a version that does not come up is left again.

use crate::kit::cloud::Cloud;
use std::collections::BTreeSet;

#[test]
#[ignore = "needs machines"]
fn machine_a_version_that_does_not_come_up_is_left_again() {
    let cloud = Cloud::with_workers("upgrade", &[("worker", false)]);

    // The web node tries, goes back, says so, and does not try again by itself; its worker is not concerned.
    cloud.config("web", "concourse-version=8.2.7");
    let gave_up = "blocked: Concourse 8.2.7 did not come up, 8.2.5 runs (The web node ends again and again";
    cloud.wait_status("web/0", gave_up);
    assert_eq!(answers(&cloud), "8.2.5");
    let web = cloud.pid("1", "concourse-web");
    cloud.fire("web/0", "update-status");
    assert!(cloud.status("web/0").starts_with(gave_up), "{}", cloud.status("web/0"));
    assert_eq!(cloud.pid("1", "concourse-web"), web, "tried again");
    assert_eq!(
        versions(&cloud, "2"),
        ["8.2.5".to_owned()].into(),
        "a worker followed a version that never ran"
    );
    assert_eq!(cloud.workers(), ["worker-0 running"]);

    // The action doesn't fight with the option; where they agree it tries again, and the status tells how that went.
    let why = refused(&cloud, "web/0", "8.2.6");
    assert_eq!(why, "concourse-version is 8.2.7: juju config web concourse-version=8.2.6 does what you want");
    let said = cloud.run("web/0", &["update-concourse-version", "version=8.2.7"]);
    assert!(said["message"].as_str().unwrap().starts_with("The web node restarts as soon as"), "{said}");
    cloud.settle();
    cloud.wait_status("web/0", gave_up);
    assert_ne!(cloud.pid("1", "concourse-web"), web, "did not try");
    assert_eq!(answers(&cloud), "8.2.5");

    // The advice of the status works.
    cloud.config("web", "concourse-version=8.2.5");
    assert!(
        cloud.status("web/0").starts_with("active: Web server ready (v8.2.5)"),
        "{}",
        cloud.status("web/0")
    );
    cloud.config("web", "concourse-version=");

    // By the action: the worker follows, the version before is kept, the one that failed is not.
    for nonsense in ["newest", "8.2.x"] {
        let why = refused(&cloud, "web/0", nonsense);
        assert!(why.starts_with("version: "), "{nonsense:?}: {why}");
    }
    assert_eq!(cloud.run("web/0", &["update-concourse-version", "version=8.2.6"])["version"], "8.2.6");
    cloud.settle();
    cloud.wait_active("worker/0");
    assert_eq!(answers(&cloud), "8.2.6");
    for machine in ["1", "2"] {
        assert_eq!(link(&cloud, machine, "current"), "versions/8.2.6");
        assert_eq!(link(&cloud, machine, "previous"), "versions/8.2.5");
        assert_eq!(versions(&cloud, machine), ["8.2.5", "8.2.6"].map(str::to_owned).into());
    }
    assert_eq!(
        refused(&cloud, "worker/0", "8.2.5"),
        "This worker follows its web node, which runs 8.2.6: update the web node, or set concourse-version"
    );

    // A worker with a wish of its own comes back from it too, and the web node never notices.
    let web = cloud.pid("1", "concourse-web");
    cloud.config("worker", "concourse-version=8.2.7");
    cloud.wait_status(
        "worker/0",
        "blocked: Concourse 8.2.7 did not come up, 8.2.6 runs (The worker ends again and again",
    );
    assert_eq!(link(&cloud, "2", "current"), "versions/8.2.6");
    assert_eq!(cloud.workers(), ["worker-0 running"]);
    cloud.config("worker", "concourse-version=");
    cloud.wait_status("worker/0", "active: Worker ready");
    assert!(!versions(&cloud, "2").contains("8.2.7"), "kept what does not run");
    assert_eq!(cloud.pid("1", "concourse-web"), web);
}

/// What the web node says it is.
fn answers(cloud: &Cloud) -> String {
    cloud.exec("1", "curl -sf http://127.0.0.1:8080/api/v1/info | jq -r .version").trim().to_owned()
}

fn refused(cloud: &Cloud, unit: &str, version: &str) -> String {
    let (results, failure) =
        cloud.try_run(unit, &["update-concourse-version", &format!("version={version}")]);
    cloud.settle();
    failure.unwrap_or_else(|| panic!("{unit} took {version:?}: {results}"))
}

fn link(cloud: &Cloud, machine: &str, name: &str) -> String {
    cloud.exec(machine, &format!("readlink /opt/concourse/{name}")).trim().to_owned()
}

fn versions(cloud: &Cloud, machine: &str) -> BTreeSet<String> {
    cloud.exec(machine, "ls -A /opt/concourse/versions").lines().map(str::to_owned).collect()
}
