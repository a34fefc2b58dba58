//! Whatever is wrong with a download, the status says what to do, what runs goes on, and the next hook makes it good.

use crate::kit::cloud::{Cloud, kit};
use crate::kit::mirror::Manners;
use std::path::PathBuf;

#[test]
#[ignore = "needs machines"]
fn machine_bad_downloads_are_said_and_lose_nothing() {
    let cloud = Cloud::start("mirror");
    cloud.database();
    let machine = cloud.machine(false);
    // A disk of its own for Concourse, too small for it.
    cloud.exec(&machine, "mkdir /opt/concourse && mount -t tmpfs -o size=20m tmpfs /opt/concourse");
    cloud.deploy("web", &machine, &["deployment-mode=web"]);
    cloud.juju(&["integrate", "web:database", "postgresql:database"]);
    cloud.settle();
    let no_room = "blocked: Concourse needs about ";
    assert_says(&cloud, no_room, "in /opt/concourse");
    cloud.exec(&machine, "mount -o remount,size=4g /opt/concourse");
    cloud.wait_status("web/0", "active: Web server ready (v8.2.5)");

    // An upgrade in every bad way. Nothing of it may touch what runs.
    let web = cloud.pid("1", "concourse-web");
    let archive = "concourse-8.2.6-linux-amd64.tgz";
    let bad = |start: &str, words: &str| {
        cloud.settle();
        assert_says(&cloud, start, words);
        assert_eq!(cloud.pid("1", "concourse-web"), web, "restarted");
        let info = cloud.exec("1", "curl -sf http://127.0.0.1:8080/api/v1/info | jq -r .version");
        assert_eq!(info.trim(), "8.2.5");
        assert_eq!(cloud.exec("1", "ls -A /opt/concourse/versions").trim(), "8.2.5", "left behind");
    };
    cloud.exec("1", "mount -o remount,size=$(($(df --output=used -B1 /opt/concourse | tail -1) + 20000000)) /opt/concourse");
    cloud.config("web", "concourse-version=8.2.6");
    bad(no_room, "in /opt/concourse");
    cloud.exec("1", "mount -o remount,size=4g /opt/concourse");

    cloud.config("web", &format!("concourse-sha256={}", "0".repeat(64)));
    bad("blocked: http://", "0000 as concourse-sha256 asks for: correct the option or the archive");
    cloud.mirror.set(Manners::Missing);
    cloud.config("web", "concourse-sha256=");
    bad("blocked: http://", "does not exist (HTTP 404): check concourse-version and concourse-download-url");
    cloud.mirror.set(Manners::Corrupt);
    cloud.fire("web/0", "update-status");
    bad("blocked: http://", &format!("{archive}.sha"));
    // Port 9 is discard, and nobody is there.
    let nowhere = "concourse-download-url=http://127.0.0.1:9/concourse-{version}-linux-{arch}.tgz";
    cloud.config("web", nowhere);
    bad(
        "blocked: http://127.0.0.1:9/",
        "connection refused: set concourse-download-url to a mirror or attach the resource",
    );
    cloud.mirror.set(Manners::Missing);
    cloud.config("web", &format!("concourse-download-url={}", cloud.mirror_url()));
    cloud.mirror.set(Manners::Hang(1 << 20));
    cloud.fire("web/0", "update-status");
    bad("blocked: http://", "sent nothing for 30 s");

    // What came before the mirror hung is not asked for again.
    let part = "stat -c %s /opt/concourse/downloads/*.part";
    assert_eq!(cloud.exec("1", part).trim(), (3 << 20).to_string());
    cloud.mirror.set(Manners::Good);
    cloud.fire("web/0", "update-status");
    assert_says(&cloud, "active: Web server ready (v8.2.6)", "");
    assert_eq!(cloud.exec("1", "find /opt/concourse -name '*.part' -o -name '.staging*'"), "", "left behind");
}

#[test]
#[ignore = "needs machines"]
fn machine_a_resource_needs_no_mirror() {
    let cloud = Cloud::start("resource");
    cloud.database();
    let release = kit("releases").join("concourse-8.2.6-linux-amd64.tgz");
    let empty = tempfile::NamedTempFile::new().unwrap();
    let deploy = |app: &str, file: PathBuf, url: &str| {
        let (charm, resource) = (kit("concourse-ci-machine.charm"), format!("concourse={}", file.display()));
        let (machine, mode) = (cloud.machine(false), format!("deployment-mode={app}"));
        let url = format!("concourse-download-url={url}");
        let args = ["deploy", charm.to_str().unwrap(), app, "--to", &machine, "--resource", &resource];
        cloud.juju(&[&args[..], &["--config", &mode, "--config", &url]].concat());
    };
    // Nobody is there.
    deploy("web", release.clone(), "http://127.0.0.1:9/concourse-{version}-linux-{arch}.tgz");
    cloud.juju(&["integrate", "web:database", "postgresql:database"]);
    // The archive says which version it is.
    cloud.wait_status("web/0", "active: Web server ready (v8.2.6)");

    // An empty file is what Charmhub holds for those who give none: the mirror is asked.
    cloud.mirror.set(Manners::Missing);
    deploy("worker", empty.path().to_owned(), &cloud.mirror_url());
    cloud.juju(&["integrate", "web:web-tsa", "worker:worker-tsa"]);
    cloud.settle();
    let status = cloud.status("worker/0");
    assert!(
        status.starts_with("blocked: http://") && status.contains("8.2.6-linux-amd64.tgz does not exist"),
        "{status}"
    );
    cloud.juju(&["attach-resource", "worker", &format!("concourse={}", release.display())]);
    cloud.settle();
    cloud.wait_active("worker/0");
    assert_eq!(cloud.workers(), ["worker-0 running"]);

    // The same version in other bytes, as a patched build would be: what runs is what was given.
    let before = cloud.pid("2", "concourse-worker");
    let patched = tempfile::tempdir().unwrap();
    let archive = patched.path().join("concourse.tgz");
    // One of two levels of compression is another one than the archive's own.
    let repack = format!(
        "gzip -dc {0} | gzip -9 > {1}; if cmp -s {0} {1}; then gzip -dc {0} | gzip -1 > {1}; fi; ! cmp -s {0} {1}",
        release.display(),
        archive.display()
    );
    assert!(std::process::Command::new("sh").args(["-c", &repack]).status().unwrap().success());
    cloud.juju(&["attach-resource", "worker", &format!("concourse={}", archive.display())]);
    cloud.settle();
    cloud.wait_active("worker/0");
    assert_ne!(cloud.pid("2", "concourse-worker"), before, "the old bytes still run");
    assert_eq!(cloud.workers(), ["worker-0 running"]);
}

fn assert_says(cloud: &Cloud, start: &str, words: &str) {
    let status = cloud.status("web/0");
    assert!(status.starts_with(start) && status.contains(words), "{status}");
}
