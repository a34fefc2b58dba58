//! A container that tells what it sees of GPUs: the real runc, the wrapper, nodes that are none of a GPU. Root and runc.

#![allow(missing_docs)]

#[path = "gpu/real.rs"]
mod real;

use concourse_ci_machine::gpu::trial::bundle::{Place, last_user};
use concourse_ci_machine::gpu::trial::run::{Paths, clean, run};
use concourse_ci_machine::gpu::trial::{Asked, Outcome, Verdict};
use real::real;
use serde_json::json;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A worker with two GPUs, as far as the runtime is concerned.
struct Worker {
    dir: TempDir,
    prefix: String,
    paths: Paths,
}

impl Worker {
    fn new(name: &str, access: &str) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "needs root");
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for made in ["bin", "bundles", "srv", "run"] {
            fs::create_dir(at(made)).unwrap();
        }
        symlink(env!("CARGO_BIN_EXE_runc-gpu-wrapper"), at("bin/runc")).unwrap();
        // Concourse's does nothing else.
        fs::write(at("init.c"), "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n").unwrap();
        let made = Command::new("cc").arg("-static").arg(at("init.c")).arg("-o").arg(at("bin/init")).status();
        assert!(made.expect("cc").success());
        let paths = Paths {
            policy: at("policy.json"),
            runc: at("bin/runc"),
            program: env!("CARGO_BIN_EXE_concourse-gpu").into(),
            init: at("bin/init"),
            scratch: at("scratch"),
            bundles: at("bundles"),
            outcome: at("run/test.json"),
        };
        let worker = Worker { prefix: format!("ccm-{name}-{}", std::process::id()), paths, dir };
        for minor in [3, 5, 7] {
            worker.node(minor);
        }
        worker.write(access);
        worker
    }

    fn path(&self, minor: u32) -> PathBuf {
        format!("/dev/{}-{minor}", self.prefix).into()
    }

    fn node(&self, minor: u32) {
        let made = Command::new("mknod")
            .args(["-m", "666"])
            .arg(self.path(minor))
            .args(["c", "1"])
            .arg(minor.to_string())
            .status();
        assert!(made.unwrap().success());
    }

    fn write(&self, access: &str) {
        let runc = Command::new("sh").args(["-c", "command -v runc"]).output().unwrap().stdout;
        let runc = String::from_utf8(runc).unwrap();
        let node = |minor: u32| {
            json!({"path": self.path(minor), "host": self.path(minor), "type": "c", "major": 1, "minor": minor, "mode": 438,
                "uid": 0, "gid": 0, "permissions": "rw"})
        };
        let unit = |name: &str, minor: u32| json!({"id": format!("GPU-{name}"), "names": [name], "vendor": "nvidia", "edits": {"nodes": [node(minor)]}});
        let devices = json!({"format": 1, "vendors": {"nvidia": {"edits": {"nodes": [node(7)]}}},
            "units": [unit("0", 3), unit("1", 5)]});
        let at = |name: &str| self.dir.path().join(name);
        let policy = json!({"format": 1, "runc": runc.trim(), "folders": {"steps": "tasks", "root": at("srv")},
            "gpus": {"access": access, "devices": at("devices.json"), "leases": {"dir": at("run"), "wait_s": 1}}});
        fs::write(at("devices.json"), devices.to_string()).unwrap();
        fs::write(at("policy.json"), policy.to_string()).unwrap();
    }

    fn test(&self, asked: &Asked) -> Outcome {
        let outcome = run(&self.paths, asked).unwrap();
        let written = fs::read_to_string(&self.paths.outcome).unwrap();
        assert_eq!(outcome, serde_json::from_str(&written).unwrap());
        assert!(!self.paths.scratch.exists(), "the image is left");
        assert_eq!(fs::read_dir(&self.paths.bundles).unwrap().count(), 0, "a bundle is left");
        outcome
    }

    /// With this worker's names of nodes in short.
    fn short(&self, text: &str) -> String {
        text.replace(&self.prefix, "gpu")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        [3, 5, 7].iter().for_each(|minor| drop(fs::remove_file(self.path(*minor))));
    }
}

fn asked(count: &str, devices: &str) -> Asked {
    let word = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Asked { count: word(count), devices: word(devices) }
}

#[test]
#[ignore = "needs root and runc"]
fn trial_sees_what_a_task_would() {
    let worker = Worker::new("sees", "request");
    for (count, devices, nodes) in
        [("", "", &["3", "5", "7"][..]), ("1", "", &["3", "7"]), ("", "1", &["5", "7"]), ("none", "", &[])]
    {
        let outcome = worker.test(&asked(count, devices));
        assert_eq!(outcome.verdict, Verdict::Passed, "{count} {devices}: {outcome:?}");
        let expected: Vec<String> =
            nodes.iter().map(|minor| format!("/dev/gpu-{minor} 1:{minor} opens")).collect();
        let seen: Vec<String> = outcome.nodes.iter().map(|line| worker.short(line)).collect();
        assert_eq!(seen, expected, "{count} {devices}");
    }
    let outcome = worker.test(&asked("3", ""));
    assert_eq!(outcome.verdict, Verdict::NotTried);

    // A node that is gone is a container that can't be made.
    fs::remove_file(worker.path(5)).unwrap();
    let outcome = worker.test(&Asked::default());
    assert_eq!(outcome.verdict, Verdict::Failed);
    assert!(outcome.reasons[0].contains("-5 is not as its list of GPUs has it"), "{outcome:?}");
    assert_eq!(worker.test(&asked("", "0")).verdict, Verdict::Passed);
}

/// A container has exactly the GPU that was chosen, by what our own generator says, and CUDA works in it.
#[test]
#[ignore = "needs root, runc and a GPU of NVIDIA"]
fn trial_of_a_real_gpu() {
    let Some((_, decision)) = real("trial_of_a_real_gpu", env!("CARGO_BIN_EXE_concourse-gpu")) else {
        return;
    };
    let worker = Worker::new("real", "request");
    fs::write(worker.dir.path().join("devices.json"), serde_json::to_string(&decision.devices).unwrap())
        .unwrap();
    for unit in &decision.devices.units {
        let outcome = worker.test(&asked("", &unit.id));
        println!("{outcome:#?}");
        assert_eq!(outcome.verdict, Verdict::Passed);
        let gpus = |line: &&String| {
            let name = line.trim_start_matches("/dev/nvidia");
            line.starts_with("/dev/nvidia") && name.starts_with(|c: char| c.is_ascii_digit())
        };
        assert_eq!(outcome.nodes.iter().filter(gpus).count(), 1, "it sees others too");
        assert_eq!(outcome.cuda.as_deref(), Some("1 device"));
    }
}

#[test]
#[ignore = "needs root and runc"]
fn trial_takes_its_turn_and_leaves_nothing() {
    let worker = Worker::new("turn", "exclusive");
    let outcome = worker.test(&Asked::default());
    assert_eq!((outcome.verdict, outcome.units.as_slice()), (Verdict::Passed, &["0 (GPU-0)".to_owned()][..]));
    assert_eq!(worker.test(&asked("2", "")).verdict, Verdict::Passed, "the lease before has ended");

    // One that was killed in the middle: its container lives until somebody tidies up.
    let id = format!("gpu-test-{}", std::process::id());
    let (left, bundle) = (worker.paths.scratch.join("runc"), worker.paths.bundles.join(&id));
    let [rootfs, work] = ["rootfs", "work"].map(|name| worker.paths.scratch.join(name));
    let user = last_user(&fs::read_to_string("/proc/self/uid_map").unwrap());
    for dir in [&left, &bundle, &rootfs, &work] {
        fs::create_dir_all(dir).unwrap();
    }
    chown(&rootfs, Some(user), Some(user)).unwrap();
    let place = Place {
        id: &id,
        rootfs: &rootfs,
        work: &work,
        init: &worker.paths.init,
        image: &[],
        last_user: user,
        params: &[],
    };
    fs::write(bundle.join("config.json"), place.config().to_string()).unwrap();
    let pid = bundle.join("init.pid");
    for args in [
        vec!["create", "--bundle", bundle.to_str().unwrap(), "--pid-file", pid.to_str().unwrap()],
        vec!["start"],
    ] {
        // A file, not a pipe: the container keeps it.
        let said = fs::File::create(worker.dir.path().join("said")).unwrap();
        let mut call = Command::new("runc");
        call.arg("--root").arg(&left).args(&args).arg(&id).stdout(Stdio::null()).stderr(said);
        let done = call.status().unwrap();
        assert!(done.success(), "{args:?}: {}", fs::read_to_string(worker.dir.path().join("said")).unwrap());
    }
    let pid = fs::read_to_string(pid).unwrap();
    clean(&worker.paths).unwrap();
    assert!(!bundle.exists() && !worker.paths.scratch.exists());
    // One that nobody reaps has ended, too, and has no program.
    assert!(fs::read_link(format!("/proc/{pid}/exe")).is_err(), "its process lives");
}
