//! Leases under fire: containers by the real runc, and some by the real containerd and its shim, through the real wrapper,
//! with kill -9 of anything at any time. A process inside takes a lock for each unit that it was given, so two that have the
//! same one can't stay unseen (`chaos/check.c`).
//!
//! `CHAOS_ROUNDS` and `CHAOS_SECONDS` bound a run; `CHAOS_SEED` repeats its choices. Needs root, runc, a C compiler, and
//! containerd in the PATH or in `CHAOS_CONTAINERD`.

#![allow(missing_docs)]

#[path = "chaos/containerd.rs"]
mod containerd;
#[path = "chaos/figures.rs"]
mod figures;
#[path = "chaos/reaper.rs"]
mod reaper;
#[path = "chaos/runc.rs"]
mod runc;
#[path = "chaos/stage.rs"]
mod stage;

use containerd::Containerd;
use figures::{Dice, count};
use serde_json::Value;
use stage::{Life, Stage, UNITS};
use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Containers at once.
const LANES: u64 = 12;
/// Every so many rounds one is containerd's.
const CONTAINERD: u64 = 40;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// The table as the operator sees it.
fn shown(stage: &Stage) -> Value {
    let path = stage.path("shown.json");
    let mut leases = Command::new(env!("CARGO_BIN_EXE_runc-gpu-wrapper"));
    leases.args(["leases", "--json"]).env("CONCOURSE_RUNTIME_POLICY", stage.path("policy.json"));
    assert!(stage.reaper.run(leases.stdout(fs::File::create(&path).unwrap())));
    serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap()
}

#[test]
#[ignore = "needs root and runc"]
fn chaos() {
    match std::env::var_os("CHAOS_DIR") {
        Some(dir) => fire(Path::new(&dir)),
        None => inside(&[]),
    }
}

/// The same where cgroups are of version 2 alone.
#[test]
#[ignore = "needs root and runc"]
fn chaos_where_cgroups_are_of_version_2() {
    let seconds = std::env::var("CHAOS_SECONDS").unwrap_or("10".to_owned());
    inside(&[("CHAOS_CGROUP", "2"), ("CHAOS_SECONDS", &seconds)]);
}

/// Starts the fire in a mount namespace of its own.
fn inside(env: &[(&str, &str)]) {
    let dir = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chaos/inside.sh");
    let mut own = Command::new("unshare");
    own.args(["--mount", "sh"]).arg(script).arg(dir.path()).arg(std::env::current_exe().unwrap());
    own.args(["--exact", "chaos", "--ignored", "--nocapture"])
        .env("CHAOS_DIR", dir.path())
        .envs(env.to_vec());
    let reaper = reaper::Reaper::get();
    assert!(reaper.wait_for(reaper.spawn(&mut own), Duration::from_secs(7 * 86_400)), "see above");
}

fn fire(dir: &Path) {
    let version_2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    assert!(version_2 || std::env::var_os("CHAOS_CGROUP").is_none(), "version 2 is not there");
    let stage = Stage::new(dir);
    let containerd = containerd::programs().map(|bin| Mutex::new(Containerd::start(&stage, &bin)));
    if containerd.is_none() {
        eprintln!("SKIPPED: rounds by containerd, for it is neither in the PATH nor in CHAOS_CONTAINERD");
    }
    let rounds = setting("CHAOS_ROUNDS").unwrap_or(u64::MAX);
    let most = setting("CHAOS_SECONDS").unwrap_or(if rounds == u64::MAX { 30 } else { 86_400 });
    let seed = setting("CHAOS_SEED").unwrap_or(1);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for lane in 0..LANES {
            let (stage, containerd) = (&stage, &containerd);
            scope.spawn(move || {
                let (mut dice, mut kept) = (Dice(seed * 1000 + lane), VecDeque::new());
                while start.elapsed() < Duration::from_secs(most) {
                    let number = count(&stage.figures.rounds) + 1;
                    if number > rounds {
                        stage.figures.rounds.fetch_sub(1, SeqCst);
                        break;
                    }
                    match containerd {
                        Some(own) if number.is_multiple_of(CONTAINERD) => {
                            own.lock().unwrap().round(stage, number, &mut dice)
                        }
                        _ => stage.round(number, &mut dice, &mut kept),
                    }
                }
                kept.iter().for_each(|life| stage.delete(life));
            });
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    // Nothing is lost: one that wants all has them at once.
    let last = stage.life(u64::from(u32::MAX), UNITS);
    assert!(stage.done(&last, stage.create(&last)) && stage.start(&last), "not all units are free");
    assert!(stage.done(&last, stage.exec(&last, "task", 0, 0)));
    stage.delete(&last);
    if let Some(containerd) = &containerd {
        containerd.lock().unwrap().stop(&stage);
    }
    let wrong = fs::read_to_string(stage.path("check/wrong")).unwrap_or_default();
    let ran = fs::read_to_string(stage.path("check/ran")).unwrap_or_default().lines().count();
    let shown = shown(&stage);
    let units = shown["units"].as_array().unwrap().iter();
    let leaks = units.map(|unit| unit["leases"].as_array().unwrap().len()).sum::<usize>()
        + shown["waiters"].as_array().unwrap().len();
    let f = &stage.figures;
    println!(
        "chaos seed={seed} cgroup={} seconds={seconds:.0} ran={ran} double={} leaks={leaks} {}",
        if version_2 { 2 } else { 1 },
        wrong.lines().count(),
        f.line()
    );
    assert_eq!(wrong, "");
    assert_eq!((leaks, f.in_vain.load(SeqCst)), (0, 0), "{shown:#}");
    let rounds = f.rounds.load(SeqCst);
    assert!(ran > 0 && f.created.load(SeqCst) > 0 && (rounds < 100 || f.kills() > 0), "nothing happened");
}

/// A worker's directories without the fire.
fn quiet() -> (tempfile::TempDir, Stage) {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::new(dir.path());
    (dir, stage)
}

/// The container is kept, and one stood in line before its task began: it is the task's end that it waits for.
#[test]
#[ignore = "needs root and runc"]
fn the_next_one_starts_when_the_task_ends() {
    let (_dir, stage) = quiet();
    let [first, second] = [1, 2].map(|number| stage.life(number, UNITS));
    assert!(stage.done(&first, stage.create(&first)) && stage.start(&first));
    let waits = stage.create(&second);
    while shown(&stage)["waiters"].as_array().unwrap().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(stage.done(&first, stage.exec(&first, "task", 500, 0)));
    let start = Instant::now();
    assert!(stage.done(&second, waits));
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    [first, second].iter().for_each(|life| stage.delete(life));
}

/// A real disk that is full.
#[test]
#[ignore = "needs root and runc"]
fn a_full_disk_refuses_and_loses_nothing() {
    let (_dir, stage) = quiet();
    let leases = stage.path("leases");
    let mount = |args: &[&str]| {
        assert!(stage.reaper.run(Command::new(args[0]).args(&args[1..]).arg(&leases)));
    };
    mount(&["mount", "-t", "tmpfs", "-o", "size=16k,mode=0755", "tmpfs"]);
    let first = stage.life(1, 1);
    assert!(stage.done(&first, stage.create(&first)));
    fs::write(leases.join("filling"), vec![0; 16_384]).unwrap_err();
    let table = fs::read_to_string(leases.join("leases.json")).unwrap();
    let second = stage.life(2, 1);
    assert!(!stage.reaper.wait(stage.create(&second)));
    let said = fs::read_to_string(second.bundle.join("log.json")).unwrap();
    assert!(said.contains("leases.json can't be written: No space left on device"), "{said}");
    assert_eq!(fs::read_to_string(leases.join("leases.json")).unwrap(), table);
    fs::remove_file(leases.join("filling")).unwrap();
    assert!(stage.done(&first, stage.exec(&first, "task", 0, 0)), "its lease was lost");
    [first, second].iter().for_each(|life| stage.delete(life));
    mount(&["umount"]);
}

/// The table is lost while containers live: whoever uses a unit keeps it, and nobody else gets it.
#[test]
#[ignore = "needs root and runc"]
fn a_lost_table_is_put_together_from_live_containers() {
    let (_dir, stage) = quiet();
    let live = |number| {
        let life = stage.life(number, 1);
        assert!(stage.done(&life, stage.create(&life)) && stage.start(&life));
        assert!(stage.done(&life, stage.exec(&life, "task", 600_000, 0)));
        life
    };
    let lives: Vec<Life> = (1..3).map(live).collect();
    for (number, lost) in [(3, ""), (4, "{\"format\":0}")] {
        fs::write(stage.path("leases/leases.json"), lost).unwrap();
        let life = stage.life(number, 1);
        assert!(stage.done(&life, stage.create(&life)));
        let config = fs::read_to_string(life.bundle.join("config.json")).unwrap();
        assert!(config.contains("NVIDIA_VISIBLE_DEVICES=GPU-2\""), "{config}");
        // Those that use theirs are entered as before.
        assert!(stage.done(&lives[0], stage.exec(&lives[0], "hijack", 0, 0)));
        stage.delete(&life);
    }
    assert_eq!(fs::read_to_string(stage.path("check/wrong")).unwrap_or_default(), "");
    lives.iter().for_each(|life| stage.delete(life));
}
