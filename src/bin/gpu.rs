//! `concourse-gpu`: see [`concourse_ci_machine::gpu`]. Hooks and the workers' units start it.

use anyhow::{Context, Result, bail};
use concourse_ci_machine::cdi::tree::Trees;
use concourse_ci_machine::gpu::ask::Asker;
use concourse_ci_machine::gpu::refresh::{Paths, refresh, restore};
use concourse_ci_machine::gpu::scan::Look;
use concourse_ci_machine::gpu::settle::{Stamp, settle};
use concourse_ci_machine::gpu::{ladder, nvml, tell, trial, wanted};
use concourse_ci_machine::host::fs::Root;
use concourse_ci_machine::oci::next;
use concourse_ci_machine::paths;
use nix::unistd::alarm;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str =
    "usage: concourse-gpu refresh [--policy FILE] [--out DIR] [--trees DIR] [--hook PROGRAM] [--root DIR]
       concourse-gpu diagnose [the same]
       concourse-gpu restore [the same]
       concourse-gpu test [--count N] [--devices IDS]
       concourse-gpu test-clean|probe
       concourse-gpu news|tell [--root DIR]
       concourse-gpu nvml [--library FILE] [--node DEVICE]… [--persist on] [--release GPU]…";

/// Of one look; who waits for us has other things to do. What is written last stays.
const SECONDS: u32 = 20;

/// Of waiting for another look. One that makes a driver tree may take longer, and tells what it found itself.
const TURN: u32 = 20;

/// Of making a driver tree where `/usr` is on another file system. Once for each driver; a link takes no time.
const COPYING: u32 = 55;

/// As long as things change while they are looked at, but not again after this time: with it, all of the above, and
/// what it takes for `/dev` to settle it stays below what hooks and the unit give it, 110 s.
const LOOKS: (u32, Duration) = (3, Duration::from_secs(30));

/// Of a hook that Juju runs at our request, and of those before it.
const PATIENCE: Duration = Duration::from_secs(600);

/// Of NVML's child.
const ANSWER: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<String> {
    let [command, rest @ ..] = args else { bail!("{USAGE}") };
    let mut options: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for pair in rest.chunks(2) {
        let [name, value] = pair else { bail!("{} has no value\n{USAGE}", pair[0]) };
        options.entry(name).or_default().push(value);
    }
    let known: &[&str] = match command.as_str() {
        "refresh" | "diagnose" | "restore" => &["--policy", "--out", "--trees", "--hook", "--root"],
        "nvml" => &["--library", "--node", "--persist", "--release"],
        "test" => &["--count", "--devices"],
        "test-clean" | "probe" => &[],
        "news" | "tell" => &["--root"],
        _ => bail!("{USAGE}"),
    };
    if let Some(unknown) = options.keys().find(|name| !known.contains(name)) {
        bail!("{unknown} is no option of {command}\n{USAGE}");
    }
    let option = |name: &str, default: &str| -> PathBuf {
        options.get(name).and_then(|v| v.last()).copied().unwrap_or(default).into()
    };
    if command == "nvml" {
        let nodes: Vec<PathBuf> = options.get("--node").into_iter().flatten().map(PathBuf::from).collect();
        let library = options.get("--library").and_then(|v| v.last()).map(OsStr::new);
        let release = options.get("--release").into_iter().flatten().map(|id| (*id).to_owned()).collect();
        let on = options.get("--persist").is_some_and(|word| word.last() == Some(&"on"));
        let persistence = nvml::Persistence { on, release };
        return Ok(serde_json::to_string(&nvml::ask(library, &nodes, &persistence))?);
    }
    if command == "tell" {
        return tell::tell(&Root::new(option("--root", "/")), PATIENCE);
    }
    let word = |name: &str| options.get(name).and_then(|v| v.last()).map(|v| (*v).to_owned());
    match command.as_str() {
        "probe" => return Ok(serde_json::to_string(&trial::probe::probe())?),
        "test-clean" => return trial::run::clean(&trial_paths()).map(|()| String::new()),
        "test" => {
            let asked = trial::Asked { count: word("--count"), devices: word("--devices") };
            return Ok(serde_json::to_string(&trial::run::run(&trial_paths(), &asked)?)?);
        }
        _ => {}
    }
    // A file system that hangs, a lock that nobody gives back: the default of this signal ends the program.
    alarm::set(SECONDS);
    let root = option("--root", "/");
    if command == "news" {
        return tell::news(&Root::new(root))?.context("the charm knows it");
    }
    let hook = option("--hook", "/usr/local/bin/runc-gpu-wrapper");
    let trees = Trees::new(option("--trees", "/opt/concourse/gpu-drivers"), hook);
    let files = Paths {
        wanted: option("--policy", wanted::PATH),
        out: option("--out", "/run/concourse-gpu"),
        trees: (root == Path::new("/")).then_some(trees),
        locked: || _ = alarm::set(SECONDS),
        before_tree: || _ = alarm::set(COPYING),
    };
    let program = std::env::current_exe().context("this program's path is not known")?;
    let asker =
        Asker { program, args: vec!["nvml".into()], deadline: ANSWER, stuck: files.out.join("stuck") };
    alarm::set(TURN);
    if command == "restore" {
        return restore(&Look::at(&root), &asker, &files).map(|()| String::new());
    }
    let (mut looks, began) = (0, Instant::now());
    let report = loop {
        settle(&root.join("dev"));
        alarm::set(TURN);
        let before = Stamp::of(&root);
        let report = refresh(&Look::at(&root), &asker, &files)?;
        looks += 1;
        if looks == LOOKS.0 || began.elapsed() > LOOKS.1 || Stamp::of(&root) == before {
            break report;
        }
    };
    Ok(match command.as_str() {
        "refresh" => serde_json::to_string(&report)?,
        _ => ladder::text(&report.ladders),
    })
}

/// Tests run as tasks do, on the machine itself.
fn trial_paths() -> trial::run::Paths {
    trial::run::Paths {
        policy: next::policy_path(),
        runc: paths::RUNC_LINK.into(),
        program: paths::GPU_PROGRAM.into(),
        init: paths::INIT.into(),
        scratch: paths::GPU_TEST_DIR.into(),
        bundles: paths::BUNDLES.into(),
        outcome: paths::GPU_TEST.into(),
    }
}
