//! A worker in a container whose host has NVIDIA's driver: its libraries come by the machine's own apt, of exactly the
//! driver's version, follow it, and go again.

use super::gpu::NODES_OF_THE_HOST;
use crate::kit::cloud::{Cloud, repository, wait};
use crate::kit::task::start_task;
use crate::packages::Archive;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What the host's kernel module would tell in every container, and the nodes that a privileged one may make. They read
/// as nothing.
const HOST: &str = "mount -t tmpfs tmpfs /proc/driver
for minor in 0 1; do
    [ $minor = 0 ] && at=0000:1b:00.0 || at=0000:5c:00.0
    mkdir -p /proc/driver/nvidia/gpus/$at
    printf 'Model: NVIDIA H200\\nGPU UUID: GPU-0000000%s\\nDevice Minor: %s\\n' $minor $minor > /proc/driver/nvidia/gpus/$at/information
done
for node in nvidia0:3 nvidia1:5 nvidiactl:7 nvidia-uvm:8; do
    [ -e /dev/${node%:*} ] || mknod -m 666 /dev/${node%:*} c 1 ${node#*:}
done";

fn library(source: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    let made = Command::new("cc").args(["-shared", "-fPIC", "-w", "-xc", "-o"]).arg(to).arg(source).status();
    assert!(made.expect("cc").success());
}

/// As Ubuntu's, with a library that answers for two GPUs.
fn packages() -> Archive {
    let archive = Archive::new(&[]);
    for version in ["580.65.06", "580.95.05"] {
        archive.deb_with(&format!("libnvidia-compute-580 {version}-0ubuntu1"), &|tree| {
            let dir = tree.join("usr/lib/x86_64-linux-gnu");
            for (name, source) in [("nvidia-ml", "tests/gpu/nvml.c"), ("cuda", "/dev/null")] {
                library(&repository().join(source), &dir.join(format!("lib{name}.so.{version}")));
                let link = dir.join(format!("lib{name}.so.1"));
                std::os::unix::fs::symlink(format!("lib{name}.so.{version}"), link).unwrap();
            }
        });
        archive.deb(&format!(
            "nvidia-utils-580 {version}-0ubuntu1 libnvidia-compute-580 (= {version}-0ubuntu1)"
        ));
    }
    archive.deb("operators-own 1");
    archive.publish();
    archive
}

#[test]
#[ignore = "needs machines"]
fn machine_packages_of_the_hosts_driver_come_and_go() {
    let _alone = NODES_OF_THE_HOST.lock();
    let cloud = Cloud::with_workers("packages", &[("worker", true)]);
    let machine = "2";
    let archive = packages();
    let host = |version: &str| {
        cloud.exec(machine, &format!("echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  now' > /proc/driver/nvidia/version"));
    };
    cloud.exec(machine, HOST);
    host("580.65.06");
    // The operator's only source is not there yet.
    let source = "deb [signed-by=/opt/packages/key.gpg] file:///opt/packages /";
    cloud
        .exec(machine, &format!("rm -rf /etc/apt/sources.list.d/*; echo '{source}' > /etc/apt/sources.list"));
    let all = || cloud.exec(machine, "dpkg-query -W -f '${Package} ${Version} ${db:Status-Want}\\n'");
    let before = all();
    cloud.config("worker", "enable-gpu=true");
    let why = "blocked: No source of apt has libnvidia-compute-580 and nvidia-utils-580 580.65.06 (or the same with -server) (";
    cloud.wait_status("worker/0", why);
    assert!(cloud.status("worker/0").ends_with(": mirror it, or add a source that has it"));
    let pid = cloud.pid(machine, "concourse-worker");
    cloud.fire("worker/0", "update-status");
    assert_eq!(cloud.pid(machine, "concourse-worker"), pid, "restarted for what is not there");
    assert_eq!(all(), before);

    // It is mirrored: nothing else has to be done.
    let target = format!("packages-{machine}:/opt/packages");
    let push = Command::new(repository().join("tests/machines/machines"))
        .arg("push")
        .arg(archive.path())
        .arg(&target)
        .status();
    assert!(push.unwrap().success());
    cloud.wait_status("worker/0", "active: Worker ready (GPU: 2x NVIDIA)");
    let libraries = |version: &str| {
        let names = ["libnvidia-compute-580", "nvidia-utils-580"];
        names.map(|name| format!("{name} {version}-0ubuntu1 hold")).to_vec()
    };
    let new = |before: &str| -> Vec<String> {
        all().lines().filter(|line| !before.lines().any(|b| b == *line)).map(str::to_owned).collect()
    };
    assert_eq!(new(&before), libraries("580.65.06"));
    let listed = cloud.workers().into_iter().find(|worker| worker.starts_with("worker")).unwrap();
    assert!(
        ["gpu-count=2", "cuda", "gpu-model=NVIDIA-H200"].iter().all(|tag| listed.contains(tag)),
        "{listed}"
    );
    let seen =
        start_task(&cloud, "gpu", "ls /dev | grep nvidia; ls /usr/lib/x86_64-linux-gnu/ | grep libcuda.so.1");
    assert_eq!(seen.wait().1, ["nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl", "libcuda.so.1"]);

    // At rest apt is left alone; the operator goes on with it.
    let lists = "stat -c %Y.%Z /var/lib/apt/lists /var/cache/apt/pkgcache.bin";
    let rest = cloud.exec(machine, lists);
    cloud.fire("worker/0", "update-status");
    assert_eq!(cloud.exec(machine, lists), rest);
    cloud.exec(machine, "apt-get install -y -qq operators-own && apt-get upgrade -y -qq");
    assert!(new(&before).contains(&libraries("580.65.06")[0]), "upgraded past the driver");

    // The host has another driver: the libraries follow.
    host("580.95.05");
    // What the timer does every five minutes: nothing in /dev tells of another version.
    cloud.exec(machine, "systemctl start concourse-gpu.service");
    let own = "operators-own 1 install".to_owned();
    let followed = [libraries("580.95.05"), vec![own.clone()]].concat();
    wait("the libraries of the new driver", Duration::from_secs(60), || {
        let now = new(&before);
        (now == followed).then_some(()).ok_or_else(|| format!("{now:?}"))
    });
    cloud.wait_status("worker/0", "active: Worker ready (GPU: 2x NVIDIA)");

    cloud.config("worker", "enable-gpu=false");
    cloud.wait_status("worker/0", "active: Worker ready");
    assert_eq!(new(&before), [own]);
    assert_eq!(all().lines().count(), before.lines().count() + 1, "something else went");
}
