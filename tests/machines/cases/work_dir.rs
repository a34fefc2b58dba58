//! A work dir that is gone takes the worker's old registration along: with its volumes missing, builds would fail.

use crate::kit::cloud::Cloud;
use crate::kit::task::start_task;

#[test]
#[ignore = "needs machines"]
fn machine_a_lost_work_dir_is_a_new_registration() {
    let cloud = Cloud::with_workers("workdir", &[("worker", false)]);
    let told = || {
        let (succeeded, lines) = start_task(&cloud, "", "echo told; sleep 2").wait();
        assert_eq!((succeeded, lines), (true, vec!["told".to_owned()]));
    };
    told();

    // While its TSA does not take it back, the worker stays away and says why.
    cloud.exec("2", "systemctl stop concourse-worker; rm -rf /var/lib/concourse/worker");
    cloud.exec("1", "systemctl stop concourse-web");
    cloud.fire("worker/0", "update-status");
    let said = cloud.status("worker/0");
    assert!(
        said.starts_with(
            "blocked: The old registration of worker-0 could not be taken off the web node's list"
        ),
        "{said}"
    );
    assert_eq!(cloud.pid("2", "concourse-worker"), "0");
    // Nor does a boot without a controller in reach bring it back.
    cloud.exec("2", "systemctl start concourse-worker");
    assert_eq!(cloud.pid("2", "concourse-worker"), "0");

    cloud.exec("1", "systemctl start concourse-web");
    cloud.fire("web/0", "update-status");
    cloud.tsa_takes_commands("1");
    cloud.wait_active("worker/0");
    // Otherwise this would be the old one that is running again.
    assert_ne!(cloud.exec("1", "journalctl -u concourse-web -o cat --grep delete-worker; true").trim(), "");
    assert_eq!(cloud.workers(), ["worker-0 running"]);
    told();
}
