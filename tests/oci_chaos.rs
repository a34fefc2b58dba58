//! Leases under fire: containers by the real runc through the real wrapper, with kill -9 of anything at any time. A process
//! inside takes a lock for each unit that it was given, so two that have the same one can't stay unseen.
//!
//! `CHAOS_ROUNDS` and `CHAOS_SECONDS` bound a run; `CHAOS_SEED` repeats its choices. Needs root and runc.

#![allow(missing_docs)]

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const UNITS: u64 = 3;
const LANES: u64 = 6;

/// Locks a file of its own for each of its units, as long as any of its processes lives, and looks whether another
/// container has locked its own for the same unit. Who only looks holds a lock too, for a moment: so it looks thrice.
const CHECK: &str = r#"cd /tmp/build/0123abcd
[ -n "$NVIDIA_VISIBLE_DEVICES" ] || echo "$1 has no units" >> wrong
n=3
for unit in $(echo "$NVIDIA_VISIBLE_DEVICES" | tr , ' '); do
  n=$((n + 1))
  eval "exec $n>>$unit.$1"
  flock -s $n
  for other in "$unit".*; do
    [ "$other" != "$unit.$1" ] || continue
    flock -n "$other" true || { sleep 0.02; flock -n "$other" true; } || { sleep 0.02; flock -n "$other" true; } ||
      echo "$1 beside $other" >> wrong
  done
done
echo "$1" >> ran
sleep "$2"
"#;

#[derive(Default)]
struct Figures {
    rounds: AtomicU64,
    created: AtomicU64,
    entered: AtomicU64,
    lapsed: AtomicU64,
    kills: AtomicU64,
    in_vain: AtomicU64,
    other: AtomicU64,
}

struct Stage {
    dir: TempDir,
    figures: Figures,
    next: AtomicU64,
}

/// Enough to choose by.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

impl Stage {
    fn new() -> Self {
        assert!(nix::unistd::geteuid().is_root(), "needs root");
        let dir = tempfile::tempdir().unwrap();
        let tmp = dir.path();
        for name in ["bundles", "rootfs", "state", "check", "leases"] {
            fs::create_dir(tmp.join(name)).unwrap();
        }
        fs::write(tmp.join("check/check.sh"), CHECK).unwrap();
        let units: Vec<Value> = (0..UNITS)
            .map(|at| json!({"id": format!("GPU-{at}"), "names": [at.to_string()], "vendor": "nvidia", "edits": {}}))
            .collect();
        let devices = json!({"format": 1, "vendors": {}, "units": units});
        fs::write(tmp.join("devices.json"), devices.to_string()).unwrap();
        let found = Command::new("sh").args(["-c", "command -v runc"]).output().unwrap();
        let runc = String::from_utf8(found.stdout).unwrap();
        let policy = json!({"format": 1, "runc": runc.trim(), "folders": {"steps": "none", "root": "/srv"}, "gpus": {
            "access": "exclusive", "devices": tmp.join("devices.json"),
            "leases": {"dir": tmp.join("leases"), "default_count": "none", "wait_s": 60}}});
        fs::write(tmp.join("policy.json"), policy.to_string()).unwrap();
        Stage { dir, figures: Figures::default(), next: AtomicU64::new(0) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runc-gpu-wrapper"));
        command.arg("--root").arg(self.path("state")).args(args);
        command.env("CONCOURSE_RUNTIME_POLICY", self.path("policy.json"));
        command.env("CONCOURSE_RUNTIME_JOURNAL", "/dev/null");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn bundle(&self, id: &str, count: u64) -> PathBuf {
        let bundle = self.path("bundles").join(id);
        fs::create_dir(&bundle).unwrap();
        let mut mounts = vec![
            json!({"destination": "/proc", "type": "proc", "source": "proc"}),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}),
            json!({"destination": "/tmp/build/0123abcd", "type": "bind", "source": self.path("check"), "options": ["bind", "rw"]}),
        ];
        for dir in ["/usr", "/bin", "/lib", "/lib64"].iter().filter(|dir| Path::new(dir).exists()) {
            let source = fs::canonicalize(dir).unwrap();
            mounts.push(
                json!({"destination": dir, "type": "bind", "source": source, "options": ["rbind", "ro"]}),
            );
        }
        let config = json!({"ociVersion": "1.0.2", "root": {"path": self.path("rootfs")}, "mounts": mounts,
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["sleep", "3600"], "cwd": "/",
                "env": ["PATH=/usr/bin:/bin", "ATC_EXTERNAL_URL=http://ci", format!("GPU_COUNT={count}")]},
            "linux": {"cgroupsPath": format!("/ccm-chaos/{id}"),
                "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}]}});
        fs::write(bundle.join("config.json"), config.to_string()).unwrap();
        bundle
    }

    fn create(&self, id: &str, bundle: &Path) -> Child {
        let (log, pid) = (bundle.join("log.json"), bundle.join("init.pid"));
        let _ = fs::remove_file(&log);
        let globals = ["--log", log.to_str().unwrap(), "--log-format", "json"];
        let create =
            ["create", "--bundle", bundle.to_str().unwrap(), "--pid-file", pid.to_str().unwrap(), id];
        self.command(&[&globals[..], &create[..]].concat()).current_dir(bundle).spawn().unwrap()
    }

    fn exec(&self, id: &str, bundle: &Path, name: &str, seconds: &str) -> Child {
        let process = json!({"user": {"uid": 0, "gid": 0}, "cwd": "/", "env": ["PATH=/usr/bin:/bin"],
            "args": ["sh", "/tmp/build/0123abcd/check.sh", id, seconds]});
        let (path, log) = (bundle.join(format!("{name}.json")), bundle.join("log.json"));
        fs::write(&path, process.to_string()).unwrap();
        let pid = bundle.join(format!("{name}.pid"));
        let _ = (fs::remove_file(&pid), fs::remove_file(&log));
        let args = [
            "--log",
            log.to_str().unwrap(),
            "--log-format",
            "json",
            "exec",
            "--process",
            path.to_str().unwrap(),
            "--detach",
            "--pid-file",
            pid.to_str().unwrap(),
            id,
        ];
        self.command(&args).current_dir(bundle).spawn().unwrap()
    }

    /// Whether it went well; else counts why not.
    fn done(&self, mut child: Child, bundle: &Path) -> bool {
        if child.wait().unwrap().success() {
            return true;
        }
        let said = fs::read_to_string(bundle.join("log.json")).unwrap_or_default();
        match () {
            () if said.contains("can't have it again") => count(&self.figures.lapsed),
            () if said.contains("in vain") => {
                eprintln!("{said}");
                count(&self.figures.in_vain);
            }
            () => {
                if std::env::var_os("CHAOS_SHOW").is_some() {
                    eprintln!("{}: {said}", bundle.display());
                }
                count(&self.figures.other);
            }
        }
        false
    }

    fn kill_after(&self, mut child: Child, microseconds: u64) {
        std::thread::sleep(Duration::from_micros(microseconds));
        let _ = child.kill();
        child.wait().unwrap();
        count(&self.figures.kills);
    }

    fn kill_file(&self, pid: &Path) {
        let pid = fs::read_to_string(pid).ok().and_then(|text| text.trim().parse().ok());
        if let Some(pid) = pid.map(nix::unistd::Pid::from_raw) {
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
            count(&self.figures.kills);
        }
    }

    fn delete(&self, id: &str, bundle: &Path) {
        self.command(&["delete", "--force", id]).status().unwrap();
        fs::remove_dir_all(bundle).unwrap();
        for unit in 0..UNITS {
            let _ = fs::remove_file(self.path("check").join(format!("GPU-{unit}.{id}")));
        }
    }

    fn round(&self, dice: &mut Dice, kept: &mut Vec<(String, PathBuf)>) {
        count(&self.figures.rounds);
        let id = format!("c{}", self.next.fetch_add(1, SeqCst));
        let bundle = self.bundle(&id, 1 + u64::from(dice.below(4) == 0));
        let created = self.create(&id, &bundle);
        let mut entered = false;
        if dice.below(8) == 0 {
            self.kill_after(created, dice.below(120_000));
        } else if self.done(created, &bundle) {
            count(&self.figures.created);
            // As containerd does after its restart. runc refuses.
            if dice.below(10) == 0 {
                self.create(&id, &bundle).wait().unwrap();
            }
            self.command(&["start", &id]).status().unwrap();
            entered = self.life(&id, &bundle, dice);
        }
        // One that still waits for its first process would keep its units for two minutes.
        if !entered {
            return self.delete(&id, &bundle);
        }
        kept.push((id, bundle));
        // A hijack into a container that was kept.
        if dice.below(3) == 0 {
            let (id, bundle) = &kept[usize::try_from(dice.below(kept.len() as u64)).unwrap()];
            let entered = self.exec(id, bundle, "hijack", "0.15");
            match dice.below(5) {
                0 => self.kill_after(entered, dice.below(90_000)),
                _ => drop(self.done(entered, bundle)),
            }
        }
        while kept.len() as u64 > dice.below(4) {
            let (id, bundle) = kept.remove(0);
            self.delete(&id, &bundle);
        }
    }

    /// Whether its first process got in.
    fn life(&self, id: &str, bundle: &Path, dice: &mut Dice) -> bool {
        let entered =
            self.exec(id, bundle, "task", ["0.1", "0.2", "0.3"][usize::try_from(dice.below(3)).unwrap()]);
        if dice.below(8) == 0 {
            self.kill_after(entered, dice.below(90_000));
            return false;
        }
        if !self.done(entered, bundle) {
            return false;
        }
        count(&self.figures.entered);
        match dice.below(8) {
            0 => self.kill_file(&bundle.join("task.pid")),
            1 => self.kill_file(&bundle.join("init.pid")),
            2 => drop(self.done(self.exec(id, bundle, "second", "0.1"), bundle)),
            _ => {}
        }
        true
    }
}

fn count(of: &AtomicU64) {
    of.fetch_add(1, SeqCst);
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

#[test]
#[ignore = "needs root and runc"]
fn chaos() {
    let stage = Stage::new();
    let rounds = setting("CHAOS_ROUNDS").unwrap_or(u64::MAX);
    let most = match std::env::var_os("CHAOS_ROUNDS") {
        None => Duration::from_secs(setting("CHAOS_SECONDS").unwrap_or(30)),
        Some(_) => Duration::from_secs(setting("CHAOS_SECONDS").unwrap_or(86_400)),
    };
    let seed = setting("CHAOS_SEED").unwrap_or(1);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for lane in 0..LANES {
            let stage = &stage;
            scope.spawn(move || {
                let (mut dice, mut kept) = (Dice(seed * 1000 + lane), vec![]);
                while stage.figures.rounds.load(SeqCst) < rounds && start.elapsed() < most {
                    stage.round(&mut dice, &mut kept);
                }
                kept.iter().for_each(|(id, bundle)| stage.delete(id, bundle));
            });
        }
    });
    let wrong = fs::read_to_string(stage.path("check/wrong")).unwrap_or_default();
    let ran = fs::read_to_string(stage.path("check/ran")).unwrap_or_default().lines().count();
    let shown = Command::new(env!("CARGO_BIN_EXE_runc-gpu-wrapper"))
        .args(["leases", "--json"])
        .env("CONCOURSE_RUNTIME_POLICY", stage.path("policy.json"))
        .output()
        .unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let leases: usize =
        shown["units"].as_array().unwrap().iter().map(|u| u["leases"].as_array().unwrap().len()).sum();
    let waiters = shown["waiters"].as_array().unwrap().len();
    let f = &stage.figures;
    let [rounds, created, entered, lapsed, kills, in_vain, other] =
        [&f.rounds, &f.created, &f.entered, &f.lapsed, &f.kills, &f.in_vain, &f.other]
            .map(|n| n.load(SeqCst));
    println!(
        "{rounds} rounds in {:.0} s: {created} containers made, {entered} tasks entered, {ran} checkers had their units, \
         {kills} kills, {lapsed} entries refused after a lapse, {other} failed otherwise (killed, deleted); double \
         holders: {}, leaks: {}, waited in vain: {in_vain}",
        start.elapsed().as_secs_f64(),
        wrong.lines().count(),
        leases + waiters,
    );
    assert_eq!(wrong, "");
    assert_eq!((leases, waiters, in_vain), (0, 0, 0), "{shown:#}");
    assert!(ran > 0 && created > 0 && (rounds < 100 || kills > 0), "nothing happened");
}

/// A real disk that is full.
#[test]
#[ignore = "needs root and runc"]
fn a_full_disk_refuses_and_loses_nothing() {
    let stage = Stage::new();
    let leases = stage.path("leases");
    let mount = |args: &[&str]| {
        assert!(Command::new(args[0]).args(&args[1..]).arg(&leases).status().unwrap().success())
    };
    mount(&["mount", "-t", "tmpfs", "-o", "size=16k,mode=0755", "tmpfs"]);
    let first = stage.bundle("first", 1);
    assert!(stage.done(stage.create("first", &first), &first));
    fs::write(leases.join("filling"), vec![0; 16_384]).unwrap_err();
    let table = fs::read_to_string(leases.join("leases.json")).unwrap();
    let second = stage.bundle("second", 1);
    assert!(!stage.create("second", &second).wait().unwrap().success());
    let said = fs::read_to_string(second.join("log.json")).unwrap();
    assert!(said.contains("leases.json can't be written: No space left on device"), "{said}");
    assert_eq!(fs::read_to_string(leases.join("leases.json")).unwrap(), table);
    fs::remove_file(leases.join("filling")).unwrap();
    assert!(stage.done(stage.exec("first", &first, "task", "0"), &first), "its lease was lost");
    for (id, bundle) in [("first", first), ("second", second)] {
        stage.delete(id, &bundle);
    }
    mount(&["umount"]);
}

/// The table is lost while containers live: whoever uses a unit keeps it, and nobody else gets it.
#[test]
#[ignore = "needs root and runc"]
fn a_lost_table_is_put_together_from_live_containers() {
    let stage = Stage::new();
    let bundles: Vec<(String, PathBuf)> = (0..2)
        .map(|at| {
            let id = format!("c{at}");
            let bundle = stage.bundle(&id, 1);
            assert!(stage.done(stage.create(&id, &bundle), &bundle));
            stage.command(&["start", &id]).status().unwrap();
            assert!(stage.done(stage.exec(&id, &bundle, "task", "600"), &bundle));
            (id, bundle)
        })
        .collect();
    for lost in ["", "{\"format\":0}"] {
        fs::write(stage.path("leases/leases.json"), lost).unwrap();
        let id = format!("third{}", lost.len());
        let bundle = stage.bundle(&id, 1);
        assert!(stage.done(stage.create(&id, &bundle), &bundle));
        let config = fs::read_to_string(bundle.join("config.json")).unwrap();
        assert!(config.contains("NVIDIA_VISIBLE_DEVICES=GPU-2"), "{config}");
        // Those that use theirs are entered as before.
        let (first, own) = &bundles[0];
        let env = stage.exec(first, own, "hijack", "0");
        assert!(stage.done(env, own));
        stage.delete(&id, &bundle);
    }
    assert_eq!(fs::read_to_string(stage.path("check/wrong")).unwrap_or_default(), "");
    bundles.iter().for_each(|(id, bundle)| stage.delete(id, bundle));
}
