//! A container's life by the real containerd and its shim, which find the wrapper as the `runc` in their PATH; with kill -9
//! of these two as well.

use crate::figures::{Dice, count};
use crate::reaper::program;
use crate::stage::{Life, Stage, end, found};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub const PROGRAMS: [&str; 3] = ["containerd", "containerd-shim-runc-v2", "ctr"];

/// What Concourse gives a request is longer. A shim of a containerd that was killed may wait for ever for a reader of its log.
const DEADLINE: &str = "30s";

pub struct Containerd {
    /// Where its programs are.
    bin: PathBuf,
    dir: PathBuf,
    pid: i32,
}

/// Directory of the three programs: `CHAOS_CONTAINERD`, else what the PATH has.
pub fn programs() -> Option<PathBuf> {
    let dir = match std::env::var_os("CHAOS_CONTAINERD") {
        Some(dir) => dir.into(),
        None => found("containerd")?.parent()?.to_owned(),
    };
    PROGRAMS.iter().all(|name| dir.join(name).is_file()).then_some(dir)
}

impl Containerd {
    pub fn start(stage: &Stage, bin: &Path) -> Self {
        let dir = stage.path("containerd");
        fs::create_dir(&dir).unwrap();
        let plugins = ["cri.v1.runtime", "cri.v1.images", "grpc.v1.cri", "nri.v1.nri", "internal.v1.opt"];
        let plugins = plugins.map(|name| format!("\"io.containerd.{name}\"")).join(", ");
        let config = format!(
            "version = 2\nroot = \"{0}/root\"\nstate = \"{0}/state\"\ndisabled_plugins = [{plugins}]\n\
             [grpc]\naddress = \"{0}/sock\"\n",
            dir.display()
        );
        fs::write(dir.join("config.toml"), config).unwrap();
        let mut containerd = Containerd { bin: bin.to_owned(), dir, pid: 0 };
        containerd.run(stage);
        containerd
    }

    fn run(&mut self, stage: &Stage) {
        let path = format!(
            "{}:{}:{}",
            stage.path("bin").display(),
            self.bin.display(),
            std::env::var("PATH").unwrap()
        );
        let mut command = stage.quiet(self.bin.join("containerd"));
        command.arg("--config").arg(self.dir.join("config.toml")).env("PATH", path);
        command.stderr(File::options().append(true).create(true).open(self.dir.join("log")).unwrap());
        self.pid = stage.reaper.spawn(&mut command);
        let start = Instant::now();
        while !stage.reaper.run(&mut self.ctr(stage, &["version"])) {
            let log = || fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            assert!(start.elapsed() < Duration::from_secs(60), "containerd does not answer: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn ctr(&self, stage: &Stage, args: &[&str]) -> Command {
        let mut command = stage.quiet(self.bin.join("ctr"));
        command.args(["--timeout", DEADLINE, "--address"]).arg(self.dir.join("sock")).args(args);
        command
    }

    fn bundle(&self, id: &str) -> PathBuf {
        self.dir.join("state/io.containerd.runtime.v2.task/default").join(id)
    }

    /// The shim of a container: who makes its runc, or has its init.
    fn shim(&self, stage: &Stage, id: &str) -> Option<i32> {
        let needle = format!("-id\0{id}\0");
        let sock = self.dir.join("sock").to_str().unwrap().to_owned();
        let _ = stage;
        fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let line = String::from_utf8_lossy(&fs::read(entry.path().join("cmdline")).ok()?).into_owned();
            let own = line.contains(&needle) && line.contains(&sock) && program(pid)? == PROGRAMS[1];
            own.then_some(pid)
        })
    }

    fn kill(&mut self, stage: &Stage) {
        if let Some(program) = stage.reaper.kill(self.pid) {
            stage.figures.kill(&program);
        }
        self.run(stage);
    }

    fn kill_shim(&self, stage: &Stage, id: &str) {
        if self.shim(stage, id).is_some_and(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok()) {
            stage.figures.kill(PROGRAMS[1]);
        }
    }

    /// One container.
    pub fn round(&mut self, stage: &Stage, number: u64, dice: &mut Dice) {
        let (id, units) = (format!("c{number}"), 1 + dice.below(2));
        let life = Life { id: id.clone(), number, count: units, bundle: self.bundle(&id) };
        count(&stage.figures.by_containerd);
        let config = self.dir.join("config.json");
        fs::write(&config, stage.config(&id, units).to_string()).unwrap();
        let config = config.to_str().unwrap();
        assert!(stage.reaper.run(&mut self.ctr(stage, &["containers", "create", "--config", config, &id])));
        let start = ["tasks", "start", "--detach", "--null-io", &id];
        let started = stage.reaper.spawn(&mut self.ctr(stage, &start));
        match dice.below(6) {
            0 => {
                std::thread::sleep(Duration::from_millis(dice.below(250)));
                self.kill_shim(stage, &id);
            }
            1 => {
                std::thread::sleep(Duration::from_millis(dice.below(250)));
                self.kill(stage);
            }
            _ => {}
        }
        let mut well = stage.reaper.wait(started);
        // What Concourse does when it did not hear how it went.
        if !well && dice.one_in(2) {
            well = stage.reaper.run(&mut self.ctr(stage, &start));
        }
        if well {
            count(&stage.figures.created);
            self.life(stage, &life, dice);
        }
        self.remove(stage, &id);
    }

    fn exec(&self, stage: &Stage, life: &Life, name: &str, ms: u64) -> i32 {
        let args =
            ["tasks", "exec", "--detach", "--log-uri", "file:///dev/null", "--exec-id", name, &life.id]
                .map(str::to_owned);
        let args: Vec<String> = args.into_iter().chain(stage.checker(life, ms, 0)).collect();
        stage.reaper.spawn(&mut self.ctr(stage, &args.iter().map(String::as_str).collect::<Vec<_>>()))
    }

    fn life(&mut self, stage: &Stage, life: &Life, dice: &mut Dice) {
        let entered = self.exec(stage, life, "task", 50 + dice.below(150));
        let what = dice.below(8);
        if what < 2 {
            std::thread::sleep(Duration::from_millis(dice.below(60)));
        } else if stage.reaper.wait(entered) {
            count(&stage.figures.entered);
        }
        match what {
            0 | 2 => self.kill_shim(stage, &life.id),
            1 | 3 => self.kill(stage),
            4 => stage.kill_file("task", &life.bundle.join("task.pid")),
            5 => stage.kill_file("init", &life.bundle.join("init.pid")),
            _ => {}
        }
        if what < 2 {
            stage.reaper.wait(entered);
        }
        // One more, whatever became of it.
        let hijack = self.exec(stage, life, "hijack", dice.below(40));
        if stage.reaper.wait(hijack) {
            count(&stage.figures.entered);
        }
    }

    fn remove(&mut self, stage: &Stage, id: &str) {
        for args in [["tasks", "delete", "--force", id], ["containers", "delete", "", id]] {
            let args: Vec<&str> = args.into_iter().filter(|arg| !arg.is_empty()).collect();
            stage.reaper.run(&mut self.ctr(stage, &args));
        }
        // What was killed in its way to somewhere has nobody who takes it away.
        if let Some(shim) = self.shim(stage, id) {
            end(shim);
        }
        stage.clear(id);
    }

    /// Everything of it.
    pub fn stop(&self, stage: &Stage) {
        end(self.pid);
        stage.reaper.wait(self.pid);
    }
}
