//! What the runtime wrapper gives to steps on real workers, with and without a user namespace around the worker.

use crate::kit::cloud::Cloud;
use crate::kit::task::{start_task, start_task_with};

const WORKERS: [(&str, &str); 2] = [("small", "2"), ("big", "3")];

/// What a task sees of the folders.
const LOOK: &str = "echo folders: $(ls /srv 2>/dev/null); cat /srv/data/held 2>/dev/null; \
    if echo lost > /srv/data/written; then echo data is writable; fi 2>/dev/null; \
    if echo kept > /srv/out_rw/written; then echo out_rw is writable; fi 2>/dev/null";

#[test]
#[ignore = "needs machines"]
fn machine_the_wrapper_gives_folders_and_refuses_what_is_not_there() {
    let cloud = Cloud::with_workers("wrapper", &[("small", false), ("big", true)]);
    for (app, machine) in WORKERS {
        cloud.config(app, &format!("tag={app}"));
        cloud.exec(
            machine,
            "mkdir -p /srv/data /srv/out_rw; echo a data set > /srv/data/held; chmod 1777 /srv/out_rw; ln -s /etc /srv/secrets",
        );
        cloud.fire(&format!("{app}/0"), "update-status");
        cloud.settle();
        cloud.wait_status(&format!("{app}/0"), "active: Worker ready (2 folders: 1 RO, 1 RW)");
        let told = cloud.run(&format!("{app}/0"), &["check-status"])["folders"].clone();
        assert_eq!(
            told,
            "tasks see folders: /srv/data read-only\n/srv/out_rw read-write\n/srv/secrets is a symlink to /etc, not to a folder \
             in /srv: no step sees it; use a bind mount instead"
        );
    }
    for (app, machine) in WORKERS {
        let (succeeded, lines) = start_task(&cloud, app, LOOK).wait();
        assert!(succeeded, "{app}: {lines:?}");
        assert_eq!(lines, ["folders: data out_rw", "a data set", "out_rw is writable"], "{app}");
        assert_eq!(cloud.exec(machine, "cat /srv/out_rw/written; ls /srv/data"), "kept\nheld\n", "{app}");
    }

    // Taken away from the next task on, by the same worker.
    let before = WORKERS.map(|(_, machine)| cloud.pid(machine, "concourse-worker"));
    for (app, _) in WORKERS {
        cloud.config(app, "folder-mounts=none");
        cloud.wait_status(&format!("{app}/0"), "active: Worker ready");
        assert_eq!(start_task(&cloud, app, LOOK).wait(), (true, vec!["folders:".to_owned()]), "{app}");
    }
    assert_eq!(WORKERS.map(|(_, machine)| cloud.pid(machine, "concourse-worker")), before);

    // What can't be given is refused where the author of the pipeline reads it.
    for (app, _) in WORKERS {
        let said = start_task_with(&cloud, app, "echo started", &["GPU_COUNT=1"]).log();
        let reason = "GPU: the task asks for GPU_COUNT=1, and this worker has no GPU to give";
        assert!(said.contains(reason), "{app}: {said}");
        assert!(!said.contains("succeeded") && !said.lines().any(|line| line == "started"), "{app}: {said}");
    }

    // Concourse's own files are as the release has them.
    let own = cloud.exec("2", "cd /opt/concourse/current/bin; readlink -f runc; ls -la runc | cut -c1");
    assert!(own.starts_with("/opt/concourse/versions/") && own.trim_end().ends_with('-'), "{own}");
}
