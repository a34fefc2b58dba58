//! A worker's directories, and the calls that a shim makes.

use crate::figures::{Figures, count};
use crate::reaper::Reaper;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub const UNITS: u64 = 6;

pub struct Stage {
    pub dir: PathBuf,
    pub figures: Figures,
    pub reaper: &'static Reaper,
}

/// A container.
#[derive(Clone)]
pub struct Life {
    pub id: String,
    pub number: u64,
    /// How many units it asks for.
    pub count: u64,
    pub bundle: PathBuf,
}

/// Where a program is.
pub fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
}

impl Stage {
    pub fn new(dir: &Path) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "needs root");
        for name in ["bundles", "rootfs", "rootfs/proc", "rootfs/dev", "state", "check", "leases", "bin"] {
            fs::create_dir(dir.join(name)).unwrap();
        }
        let reaper = Reaper::get();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chaos/check.c");
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-static", "-Wall", "-Werror", "-o"]).arg(dir.join("rootfs/check")).arg(source);
        assert!(reaper.run(&mut cc), "cc");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_runc-gpu-wrapper"), dir.join("bin/runc")).unwrap();
        let units: Vec<Value> = (0..UNITS)
            .map(|at| json!({"id": format!("GPU-{at}"), "names": [at.to_string()], "vendor": "nvidia", "edits": {}}))
            .collect();
        let devices = json!({"format": 1, "vendors": {}, "units": units});
        fs::write(dir.join("devices.json"), devices.to_string()).unwrap();
        let policy = json!({"format": 1, "runc": found("runc").expect("runc is in the PATH"),
            "folders": {"steps": "none", "root": "/srv"}, "gpus": {
            "access": "exclusive", "devices": dir.join("devices.json"),
            "leases": {"dir": dir.join("leases"), "default_count": "none", "wait_s": 60}}});
        fs::write(dir.join("policy.json"), policy.to_string()).unwrap();
        Stage { dir: dir.to_owned(), figures: Figures::default(), reaper }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Reads what it is told from here, and says nothing.
    pub fn quiet(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("CONCOURSE_RUNTIME_POLICY", self.path("policy.json"));
        command.env("CONCOURSE_RUNTIME_JOURNAL", "/dev/null");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.quiet(self.path("bin/runc"));
        command.arg("--root").arg(self.path("state")).args(args);
        command
    }

    /// What a container is made of.
    pub fn config(&self, id: &str, units: u64) -> Value {
        json!({"ociVersion": "1.0.2", "root": {"path": self.path("rootfs")},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/tmp/build/0123abcd", "type": "bind", "source": self.path("check"),
                    "options": ["bind", "rw"]}],
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["/check"], "cwd": "/tmp/build/0123abcd",
                "env": ["PATH=/", "ATC_EXTERNAL_URL=http://ci", format!("GPU_COUNT={units}")]},
            "linux": {"cgroupsPath": format!("/ccm-chaos/{id}"),
                "namespaces": [{"type": "pid"}, {"type": "mount"}]}})
    }

    pub fn life(&self, number: u64, units: u64) -> Life {
        let id = format!("c{number}");
        let bundle = self.path("bundles").join(&id);
        fs::create_dir(&bundle).unwrap();
        fs::write(bundle.join("config.json"), self.config(&id, units).to_string()).unwrap();
        Life { id, number, count: units, bundle }
    }

    /// What runs inside, and a child of it that it leaves behind, in milliseconds.
    pub fn checker(&self, life: &Life, ms: u64, child_ms: u64) -> Vec<String> {
        let Life { id, number, count, .. } = life;
        ["/check", id]
            .map(str::to_owned)
            .into_iter()
            .chain([*number, *count, ms, child_ms].map(|n| n.to_string()))
            .collect()
    }

    fn logged(&self, life: &Life, args: &[&str]) -> i32 {
        let log = life.bundle.join("log.json");
        let _ = fs::remove_file(&log);
        let globals = ["--log", log.to_str().unwrap(), "--log-format", "json"];
        let args: Vec<&str> =
            globals.into_iter().chain(args.iter().copied()).chain([life.id.as_str()]).collect();
        self.reaper.spawn(self.command(&args).current_dir(&life.bundle))
    }

    pub fn create(&self, life: &Life) -> i32 {
        let (bundle, pid) = (life.bundle.to_str().unwrap(), life.bundle.join("init.pid"));
        self.logged(
            life,
            &["create", "--bundle", bundle, "--pid-file", pid.to_str().unwrap(), "--no-new-keyring"],
        )
    }

    pub fn exec(&self, life: &Life, name: &str, ms: u64, child_ms: u64) -> i32 {
        let process = json!({"user": {"uid": 0, "gid": 0}, "cwd": "/tmp/build/0123abcd", "env": ["PATH=/"],
            "args": self.checker(life, ms, child_ms)});
        let (path, pid) = (life.bundle.join(format!("{name}.json")), life.bundle.join(format!("{name}.pid")));
        fs::write(&path, process.to_string()).unwrap();
        let _ = fs::remove_file(&pid);
        let [path, pid] = [&path, &pid].map(|path| path.to_str().unwrap());
        self.logged(life, &["exec", "--process", path, "--detach", "--pid-file", pid])
    }

    pub fn start(&self, life: &Life) -> bool {
        self.reaper.run(&mut self.command(&["start", &life.id]))
    }

    /// Whether it went well; else counts why not.
    pub fn done(&self, life: &Life, pid: i32) -> bool {
        self.reaper.wait(pid) || {
            self.refused(&life.id, &fs::read_to_string(life.bundle.join("log.json")).unwrap_or_default());
            false
        }
    }

    pub fn refused(&self, id: &str, said: &str) {
        match () {
            () if said.contains("can't have it again") => count(&self.figures.lapsed),
            () if said.contains("in vain") => {
                eprintln!("{said}");
                count(&self.figures.in_vain)
            }
            () => {
                if std::env::var_os("CHAOS_SHOW").is_some() {
                    eprintln!("{id}: {said}");
                }
                count(&self.figures.other)
            }
        };
    }

    /// Whoever may still be in a container, and its cgroup.
    pub fn clear(&self, id: &str) {
        for root in ["/sys/fs/cgroup/devices/ccm-chaos", "/sys/fs/cgroup/ccm-chaos"] {
            let dir = Path::new(root).join(id);
            while let Ok(pids) = fs::read_to_string(dir.join("cgroup.procs")) {
                pids.lines().filter_map(|pid| pid.parse().ok()).for_each(end);
                if fs::remove_dir(&dir).is_ok() {
                    break;
                }
            }
        }
    }

    pub fn delete(&self, life: &Life) {
        if let Some(init) = read_pid(&life.bundle.join("init.pid")) {
            end(init);
        }
        // As the shim does it, and as containerd does it where the shim is gone.
        if !self.reaper.run(&mut self.command(&["delete", &life.id])) {
            self.reaper.run(&mut self.command(&["delete", "--force", &life.id]));
        }
        self.clear(&life.id);
        fs::remove_dir_all(&life.bundle).unwrap();
    }
}

pub fn read_pid(path: &Path) -> Option<i32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Kills a process, and waits until it has ended.
pub fn end(pid: i32) {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    let Some(Ok(fd)) = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return };
    if pidfd_send_signal(&fd, Signal::KILL).is_ok() {
        let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], None);
    }
}
