//! The program `concourse-gpu`, with NVML from `gpu/nvml.c`: `cc` makes a library of it.

#![allow(missing_docs)]

#[path = "gpu/machine.rs"]
mod machine;
#[path = "gpu/real.rs"]
mod real;

use concourse_ci_machine::cdi::tree::Trees;
use concourse_ci_machine::gpu::ask::Asker;
use concourse_ci_machine::gpu::decide::{Report, decide};
use concourse_ci_machine::gpu::refresh::{Paths, refresh, restore};
use concourse_ci_machine::gpu::said::{Answer, Reason};
use concourse_ci_machine::gpu::scan::Look;
use concourse_ci_machine::oci::devices::Devices;
use machine::Machine;
use real::real;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_concourse-gpu");

fn library() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libnvidia-ml-{}.so", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu/nvml.c");
        let made = Command::new("cc").args(["-shared", "-fPIC", "-w", "-o"]).arg(&path).arg(source).status();
        assert!(made.expect("cc").success());
        path
    })
}

/// Asks as `refresh` does, with a library that answers in one way.
fn ask(script: &str) -> Answer {
    let out = Command::new(PROGRAM)
        .args(["nvml", "--library"])
        .arg(library())
        .env("NVML", script)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

fn asker(dir: &Path, script: &str, millis: u64) -> Asker {
    Asker {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        deadline: Duration::from_millis(millis),
        stuck: dir.join("stuck"),
    }
}

#[test]
fn what_nvml_says() {
    let Answer::Said(said) = ask("ok") else { panic!() };
    assert_eq!((said.driver.as_deref(), said.cuda.as_deref()), (Some("580.65.06"), Some("13.0")));
    let gpu = &said.gpus[1];
    assert_eq!((gpu.index, gpu.minor, gpu.numa, gpu.persistence), (1, Some(1), Some(1), Some(true)));
    assert_eq!((gpu.uuid.as_str(), gpu.address.as_deref()), ("GPU-00000001", Some("0000:5c:00.0")));
    assert_eq!((gpu.memory_mib, gpu.capability.as_deref()), (Some(143771), Some("9.0")));
    assert_eq!((gpu.model.as_deref(), gpu.mig, gpu.parts.len()), (Some("NVIDIA H200"), false, 0));

    let Answer::Said(said) = ask("mig") else { panic!() };
    let parts: Vec<_> =
        said.gpus[0].parts.iter().map(|p| (p.uuid.as_str(), p.profile.as_deref(), p.gi, p.ci)).collect();
    assert_eq!(
        parts,
        [
            ("MIG-00000000", Some("1g.18gb"), Some(7), Some(0)),
            ("MIG-00000001", Some("1g.18gb"), Some(8), Some(0))
        ],
        "empty slots are none"
    );

    let Answer::Said(said) = ask("ecc") else { panic!() };
    assert_eq!((said.gpus[0].uncorrected, said.gpus[0].remap_failed), (Some(3), false));
    assert!(said.gpus[1].remap_failed);

    let Answer::Said(said) = ask("left") else { panic!() };
    let name = fs::read_to_string("/proc/self/comm").unwrap();
    let process = &said.gpus[0].processes[0];
    assert_eq!((said.gpus[0].used_mib, process.pid), (Some(9000), std::process::id()));
    assert_eq!((process.name.as_deref(), process.gi), (Some(name.trim()), None));
    assert_eq!((said.gpus[1].used_mib, said.gpus[1].processes.len()), (Some(0), 0));

    let Answer::Said(said) = ask("desktop") else { panic!() };
    assert_eq!((said.gpus[0].graphics[0].pid, said.gpus[0].processes.len()), (std::process::id(), 0));
    assert_eq!(said.gpus[1].graphics, []);

    let Answer::Said(said) = ask("linked") else { panic!() };
    assert_eq!(said.gpus[0].links, ["0000:5c:00.0".to_owned()].into());
    assert_eq!(said.gpus[1].links, ["0000:1b:00.0".to_owned()].into());

    let Answer::Said(said) = ask("lost") else { panic!() };
    assert_eq!((said.gpus.len(), said.silent.len()), (1, 1), "one is lost, the other stays");
}

#[test]
fn why_nvml_refuses() {
    for (script, reason) in [
        ("mismatch", Reason::Mismatch),
        ("no-driver", Reason::NoDriver),
        ("no-permission", Reason::NoPermission),
    ] {
        assert!(matches!(ask(script), Answer::Failed { reason: told, .. } if told == reason), "{script}");
    }
    let out = Command::new(PROGRAM).args(["nvml", "--library", "/nowhere.so"]).output().unwrap();
    let answer: Answer = serde_json::from_slice(&out.stdout).unwrap();
    assert!(matches!(answer, Answer::Failed { reason: Reason::NoLibrary, .. }), "{answer:?}");
}

#[test]
fn nodes_that_do_not_open_are_told() {
    let out = Command::new(PROGRAM)
        .args(["nvml", "--node", "/dev/null", "--node", "/nowhere", "--library"])
        .arg(library())
        .output()
        .unwrap();
    let Answer::Said(said) = serde_json::from_slice(&out.stdout).unwrap() else { panic!() };
    assert_eq!(
        said.closed.into_iter().collect::<Vec<_>>(),
        [("/nowhere".into(), "No such file or directory".into())]
    );
}

#[test]
fn a_child_that_hangs_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("NVML=hang exec {PROGRAM} nvml --library {}", library().display());
    let before = Instant::now();
    assert_eq!(asker(dir.path(), &script, 200).ask(&[]), Answer::Hung);
    assert!(before.elapsed() < Duration::from_secs(5));
    assert!(!dir.path().join("stuck").exists(), "it could be killed");
}

#[test]
fn a_child_that_cannot_be_killed_is_not_joined_by_another() {
    let dir = tempfile::tempdir().unwrap();
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let start = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().to_owned();
    // This process stands for the child of before.
    let told = r#"echo '{"answer":"not-asked"}'"#;
    fs::write(dir.path().join("stuck"), format!("{} {start}", std::process::id())).unwrap();
    assert_eq!(asker(dir.path(), told, 10_000).ask(&[]), Answer::Hung);
    // Another one with its number is another one.
    fs::write(dir.path().join("stuck"), format!("{} 1", std::process::id())).unwrap();
    assert_eq!(asker(dir.path(), told, 10_000).ask(&[]), Answer::NotAsked);
    assert!(!dir.path().join("stuck").exists());
}

#[test]
fn a_child_that_crashes_is_told() {
    let dir = tempfile::tempdir().unwrap();
    for script in ["kill -SEGV $$", "exit 3", "echo nonsense"] {
        let answer = asker(dir.path(), script, 10_000).ask(&[]);
        assert!(matches!(answer, Answer::Failed { reason: Reason::Other, .. }), "{script}: {answer:?}");
    }
    let absent = Asker { program: "/nowhere".into(), ..asker(dir.path(), "", 10_000) };
    assert!(matches!(absent.ask(&[]), Answer::Failed { .. }));
}

fn paths(out: &Path, trees: Option<Trees>) -> Paths {
    Paths { wanted: out.join("gpu.json"), out: out.into(), trees, locked: || {}, before_tree: || {} }
}

/// A machine's GPUs written by `refresh`, then again with other answers.
struct Run {
    machine: Machine,
    out: tempfile::TempDir,
}

impl Run {
    fn new(name: &str) -> Self {
        let run = Self { machine: Machine::load(name), out: tempfile::tempdir().unwrap() };
        let text = serde_json::to_string(&run.machine.wanted).unwrap();
        fs::write(run.out.path().join("gpu.json"), text).unwrap();
        run
    }

    fn refresh(&self, script: &str) -> Report {
        self.refresh_with(script, None)
    }

    fn refresh_with(&self, script: &str, trees: Option<Trees>) -> Report {
        let out = self.out.path();
        let paths = paths(out, trees);
        let lstat = |path: &Path| self.machine.lstat(path);
        refresh(&Look::with(self.machine.dir.path(), &lstat), &asker(out, script, 300), &paths).unwrap()
    }

    fn said(&self) -> String {
        format!("echo '{}'", serde_json::to_string(&self.machine.answer).unwrap())
    }

    fn devices(&self) -> String {
        fs::read_to_string(self.out.path().join("devices.json")).unwrap()
    }
}

#[test]
fn a_hung_driver_changes_nothing_that_was_known() {
    let run = Run::new("two-vendors");
    let before = run.refresh(&run.said());
    let devices = run.devices();
    let hung = run.refresh("exec sleep 600");
    assert_eq!(run.devices(), devices);
    assert_eq!((&hung.tags, &hung.summary, &hung.blocked), (&before.tags, &before.summary, &None));
    assert_eq!(hung.notes, ["NVIDIA's driver does not answer; its GPUs stay as they were: see gpu-diagnose"]);
    // A node that is gone is no matter of patience.
    fs::remove_file(run.machine.dir.path().join("dev/nvidia0")).unwrap();
    let gone = Run { machine: Machine { nodes: Default::default(), ..run.machine }, ..run };
    assert_eq!(gone.refresh("exec sleep 600").tags, Vec::<String>::new());
    assert!(serde_json::from_str::<Devices>(&gone.devices()).unwrap().units.is_empty());
}

#[test]
fn lost_and_found() {
    let mut run = Run::new("lxd-simulated");
    assert_eq!(run.refresh("").summary.as_deref(), Some("GPU: 2x NVIDIA"));
    let taken = run.machine.nodes.remove(Path::new("/dev/nvidia1")).unwrap();
    let lost = run.refresh("");
    assert_eq!(lost.summary.as_deref(), Some("GPU: 1x NVIDIA"));
    assert!(lost.tags.contains(&"gpu-count=1".into()) && lost.notes.len() == 1, "{:?}", lost.notes);
    run.machine.nodes.insert("/dev/nvidia1".into(), taken);
    assert_eq!(run.refresh("").summary.as_deref(), Some("GPU: 2x NVIDIA"));
}

#[test]
fn bad_ids_change_nothing() {
    let mut run = Run::new("lxd-simulated");
    run.machine.wanted.units = Some(vec!["1".into()]);
    let choose = |run: &Run| {
        fs::write(run.out.path().join("gpu.json"), serde_json::to_string(&run.machine.wanted).unwrap())
            .unwrap();
        run.refresh("")
    };
    assert_eq!(choose(&run).units, ["nvidia-1"]);
    run.machine.wanted.units = Some(vec!["7".into()]);
    let bad = choose(&run);
    assert_eq!(bad.units, ["nvidia-1"], "as before");
    let why = "gpu-device-ids names \"7\", and this machine has 0, 1: write ids of gpu-info, or all";
    assert_eq!(bad.blocked.as_deref(), Some(why));
}

#[test]
fn nothing_is_written_twice() {
    let run = Run::new("lxd-simulated");
    run.refresh("");
    let number = |name: &str| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(run.out.path().join(name)).unwrap().ino()
    };
    let before = [number("devices.json"), number("inventory.json")];
    run.refresh("");
    assert_eq!([number("devices.json"), number("inventory.json")], before);
}

#[test]
fn many_at_once_write_whole_files() {
    let run = Run::new("lxd-simulated");
    let at = |name: &str| run.out.path().join(name);
    let start = || {
        let mut command = Command::new(PROGRAM);
        command.args(["refresh", "--root"]).arg(run.machine.dir.path());
        command.arg("--policy").arg(at("gpu.json")).arg("--out").arg(run.out.path());
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (0..8).map(|_| start()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let report: Report = serde_json::from_slice(&fs::read(at("inventory.json")).unwrap()).unwrap();
    // The tree's nodes are plain files to the program, so there is no GPU for it.
    assert!(report.blocked.is_some());
    let left: Vec<_> = fs::read_dir(run.out.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 4, "gpu.json, the two and the lock: {left:?}");
}

/// Its time begins when the others have had theirs.
#[test]
fn the_time_of_a_look_begins_with_its_turn() {
    static LOCK: OnceLock<PathBuf> = OnceLock::new();
    static TURNS: Mutex<Vec<bool>> = Mutex::new(vec![]);
    let run = Run::new("lxd-simulated");
    LOCK.set(run.out.path().join("lock")).unwrap();
    let locked = || {
        let others = fs::File::open(LOCK.get().unwrap()).unwrap().try_lock();
        TURNS.lock().unwrap().push(matches!(others, Err(fs::TryLockError::WouldBlock)));
    };
    let paths = Paths { locked, ..paths(run.out.path(), None) };
    let (look, asker) = (Look::at(run.machine.dir.path()), asker(run.out.path(), "exit 1", 300));
    refresh(&look, &asker, &paths).unwrap();
    restore(&look, &asker, &paths).unwrap();
    assert_eq!(*TURNS.lock().unwrap(), [true, true], "once for each, and when nobody else has the lock");
}

#[test]
fn options_that_cannot_be_read_are_told_and_change_nothing() {
    let run = Run::new("lxd-simulated");
    run.refresh("");
    let before = run.devices();
    fs::write(run.out.path().join("gpu.json"), "{").unwrap();
    let out = Command::new(PROGRAM)
        .args(["refresh", "--root"])
        .arg(run.machine.dir.path())
        .arg("--policy")
        .arg(run.out.path().join("gpu.json"))
        .arg("--out")
        .arg(run.out.path())
        .output()
        .unwrap();
    assert!(!out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("gpu.json can't be read"));
    assert_eq!(run.devices(), before);
}

/// What stays in use on a GPU that nobody has keeps it from the next task, until it is clean.
#[test]
fn what_a_task_left_keeps_its_gpu_from_the_next() {
    let mut run = Run::new("nvidia-1");
    let out = run.out.path().to_owned();
    run.machine.wanted.access = concourse_ci_machine::oci::policy::Access::Exclusive;
    fs::write(out.join("gpu.json"), serde_json::to_string(&run.machine.wanted).unwrap()).unwrap();
    let clean = run.said();
    let Answer::Said(said) = &mut run.machine.answer else { panic!() };
    let gpu = said.gpus[0].uuid.clone();
    said.gpus[0].used_mib = Some(9000);
    let used = run.said();
    let marked = || fs::read_to_string(out.join("unclean.json")).unwrap_or_default();

    // As a driver that has yet to tidy up: once more, and it is clean.
    let once = format!("if [ -e {0} ]; then {clean}; else : > {0}; {used}; fi", out.join("asked").display());
    assert!(!run.refresh(&once).notes.iter().any(|note| note.contains("9000")));
    assert_eq!(marked(), "");

    // A container has it.
    let kernel = concourse_ci_machine::oci::lease::live::Kernel::here().unwrap();
    let me = kernel.process(i32::try_from(std::process::id()).unwrap()).unwrap();
    let table = serde_json::json!({"format": 1, "boot": kernel.boot().unwrap(), "waiters": [], "last": {}, "given": 1,
        "leases": [{"id": "c1", "bundle": "/", "units": [gpu], "since": 0, "movers": [me]}]});
    fs::write(out.join("leases.json"), table.to_string()).unwrap();
    assert!(!run.refresh(&used).notes.iter().any(|note| note.contains("9000")));
    assert_eq!(marked(), "");

    // The same, and nobody has it.
    fs::remove_file(out.join("leases.json")).unwrap();
    let told =
        format!("GPU {gpu} is not given to tasks: 9000 MiB of its memory stay in use though no task has it");
    assert!(run.refresh(&used).notes.iter().any(|note| note.starts_with(&told)));
    let units = concourse_ci_machine::oci::lease::health::sick(&out);
    assert!(units[&gpu].starts_with("9000 MiB"), "{units:?}");
    // It is known: nobody waits to be sure. A driver that hangs says nothing new.
    let before = Instant::now();
    run.refresh(&used);
    assert!(before.elapsed() < Duration::from_secs(2));
    run.refresh("exec sleep 600");
    assert!(marked().contains(&gpu));
    run.refresh(&clean);
    assert_eq!(marked(), "");

    // Nobody has one of its own: nothing is kept from anybody.
    run.refresh(&used);
    assert!(marked().contains(&gpu));
    run.machine.wanted.access = concourse_ci_machine::oci::policy::Access::Shared;
    fs::write(out.join("gpu.json"), serde_json::to_string(&run.machine.wanted).unwrap()).unwrap();
    run.refresh(&used);
    assert_eq!(marked(), "");
}

/// Directly, and by way of a switch.
#[test]
fn what_reaches_each_other_over_nvlink_is_told() {
    let mut machine = Machine::load("nvidia-8");
    let Answer::Said(said) = &mut machine.answer else { panic!() };
    let addresses: Vec<String> = said.gpus.iter().map(|gpu| gpu.address.clone().unwrap()).collect();
    said.gpus[0].links = [addresses[3].clone()].into();
    said.gpus[3].links = [addresses[0].clone()].into();
    for at in [1, 2, 5] {
        said.gpus[at].links = ["0000:86:00.0".to_owned()].into();
    }
    let decision = decide(&machine.facts(), &machine.answer, &machine.wanted, None);
    let links: Vec<Option<u32>> = decision.devices.units.iter().map(|unit| unit.nvlink).collect();
    assert_eq!(links, [Some(0), Some(1), Some(1), Some(0), None, Some(1), None, None]);
}

/// Files of the tree's driver are none of this machine's, so no driver tree can be made of them.
#[test]
fn a_driver_tree_that_cannot_be_made_is_told() {
    let run = Run::new("two-vendors");
    let before = run.refresh(&run.said());
    let known = run.devices();
    let trees = || Some(Trees::new(run.out.path().join("trees"), "/opt/gpu/runc"));
    let failed = run.refresh_with(&run.said(), trees());
    assert_eq!((&failed.tags, &failed.units), (&before.tags, &before.units), "what was good stays");
    assert_eq!(run.devices(), known);
    let why = "NVIDIA's driver can't be made ready for containers: ";
    assert!(failed.notes[0].starts_with(why) && failed.blocked.is_none(), "{:?}", failed.notes);

    fs::remove_file(run.out.path().join("devices.json")).unwrap();
    let failed = run.refresh_with(&run.said(), trees());
    assert_eq!((failed.summary.as_deref(), failed.blocked), (Some("GPU: 1x AMD"), None));
    assert!(!failed.tags.contains(&"cuda".into()));

    let alone = Run::new("nvidia-1");
    let failed = alone.refresh_with(&alone.said(), trees());
    assert!(failed.blocked.is_some_and(|b| b.starts_with(why)) && failed.tags.is_empty());
}

#[test]
fn nothing_wanted_is_nothing_told() {
    let run = Run::new("lxd-simulated-one-gone");
    run.refresh("");
    fs::remove_file(run.out.path().join("gpu.json")).unwrap();
    let report = run.refresh("");
    let told = (report.summary, report.tags.len(), report.blocked, report.notes.len(), report.ladders.len());
    assert_eq!(told, (None, 0, None, 0, 0));
    assert!(serde_json::from_str::<Devices>(&run.devices()).unwrap().units.is_empty());
}

/// What has nothing to do with GPUs costs nothing: a machine without any.
#[test]
fn this_machine_is_looked_at_quickly() {
    let dir = tempfile::tempdir().unwrap();
    let wanted = dir.path().join("gpu.json");
    fs::write(&wanted, r#"{"vendors":["nvidia","amd","intel"],"access":"shared"}"#).unwrap();
    let before = Instant::now();
    let out = Command::new(PROGRAM)
        .args(["refresh", "--trees"])
        .arg(dir.path().join("trees"))
        .arg("--policy")
        .arg(&wanted)
        .arg("--out")
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let report: Report = serde_json::from_slice(&out.stdout).unwrap();
    eprintln!("{:?}: {:?} {:?}", before.elapsed(), report.summary, report.blocked);
    assert!(before.elapsed() < Duration::from_secs(12), "a driver that hangs costs ten seconds");
    let again = Command::new(PROGRAM)
        .args(["diagnose", "--policy"])
        .arg(&wanted)
        .arg("--out")
        .arg(dir.path())
        .output();
    assert!(String::from_utf8_lossy(&again.unwrap().stdout).contains("GPU in the machine"));
}

/// What NVML says and what is on the bus become one GPU.
#[test]
fn nvml_and_the_bus_agree() {
    let machine = Machine::load("nvidia-1");
    let decision = decide(&machine.facts(), &ask("ecc"), &machine.wanted, None);
    let gpu =
        decision.report.inventory.gpus.iter().find(|g| g.address.as_deref() == Some("0000:1b:00.0")).unwrap();
    assert_eq!((gpu.id.as_str(), gpu.index), ("GPU-00000000", Some(0)));
    assert_eq!(
        decision.report.notes[0],
        "GPU GPU-00000000: its memory had 3 errors that could not be corrected"
    );
}

/// On a machine with a GPU of NVIDIA: NVML, the bus and the files that were found are of one mind.
#[test]
fn a_real_gpu() {
    let Some((said, decision)) = real("a_real_gpu", PROGRAM) else { return };
    assert_eq!(decision.devices.units.len(), said.gpus.iter().filter(|g| !g.mig).count());
    let driver = decision.devices.vendors.values().next().unwrap();
    assert_eq!(driver.version, said.driver);
    assert!(driver.edits.mounts.iter().any(|m| m.path.to_string_lossy().contains("libcuda.so.")));
    assert!(
        decision.devices.units.iter().all(|u| u.id.starts_with("GPU-") && u.compute_capability.is_some())
    );
}

/// Only what was off is switched on, and only that is switched off again.
#[test]
fn the_persistence_mode_is_left_as_it_was_found() {
    let mut run = Run::new("nvidia-1");
    let modes = tempfile::tempdir().unwrap();
    let on = || {
        let mut names: Vec<_> = fs::read_dir(modes.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names.concat()
    };
    let script = |variables: &str| {
        let library = library().display();
        format!("{variables} NVML=idle exec {PROGRAM} nvml \"$0\" \"$@\" --library {library}")
    };
    let changes = script(&format!("NVML_MODES={}", modes.path().display()));
    let note = run.out.path().join("persistence.json");
    let want = |run: &mut Run, persistence: bool| {
        run.machine.wanted.persistence = persistence;
        let text = serde_json::to_string(&run.machine.wanted).unwrap();
        fs::write(run.out.path().join("gpu.json"), text).unwrap();
    };
    fs::write(modes.path().join("1"), "by the operator").unwrap();
    want(&mut run, false);
    run.refresh(&changes);
    assert_eq!((on().as_str(), note.exists()), ("1", false), "left alone");
    want(&mut run, true);
    for _ in 0..2 {
        let report = run.refresh(&changes);
        assert_eq!(on(), "01");
        assert!(report.inventory.gpus.iter().all(|gpu| gpu.persistence == Some(true)));
    }
    assert_eq!(fs::read_to_string(&note).unwrap(), r#"{"gpus":["GPU-00000000"],"daemon":false}"#);
    want(&mut run, false);
    run.refresh(&changes);
    assert_eq!((on().as_str(), note.exists()), ("1", false));

    // With the charm gone, too.
    want(&mut run, true);
    run.refresh(&changes);
    assert_eq!((on().as_str(), note.exists()), ("01", true));
    let out = run.out.path();
    let paths = paths(out, None);
    let lstat = |path: &Path| run.machine.lstat(path);
    restore(&Look::with(run.machine.dir.path(), &lstat), &asker(out, &changes, 2000), &paths).unwrap();
    assert_eq!((on().as_str(), note.exists()), ("1", false));

    // As in a container, whose host alone may do so: noted, and nothing is worse for it.
    let report = run.refresh(&script(""));
    let why = "Persistence mode of GPU-00000000 can't be switched on here (";
    assert!(report.notes.iter().any(|n| n.starts_with(why)), "{:?}", report.notes);
    assert!(!note.exists() && !report.blocked.unwrap_or_default().contains("ersistence"));
    // A driver that hangs keeps nobody from switching it off.
    fs::write(&note, r#"{"gpus":["GPU-00000000"],"daemon":false}"#).unwrap();
    want(&mut run, false);
    run.refresh("exec sleep 600");
    assert!(!note.exists());
}
