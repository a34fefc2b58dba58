//! `concourse-gpu`: see [`concourse_ci_machine::gpu`]. Hooks and the workers' units start it.

use anyhow::{Context, Result, bail};
use concourse_ci_machine::cdi::tree::Trees;
use concourse_ci_machine::gpu::ask::Asker;
use concourse_ci_machine::gpu::refresh::{Paths, refresh, restore};
use concourse_ci_machine::gpu::scan::Look;
use concourse_ci_machine::gpu::settle::settle;
use concourse_ci_machine::gpu::{ladder, nvml, wanted};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str =
    "usage: concourse-gpu refresh [--policy FILE] [--out DIR] [--trees DIR] [--hook PROGRAM] [--root DIR]
       concourse-gpu diagnose [the same]
       concourse-gpu restore [the same]
       concourse-gpu nvml [--library FILE] [--node DEVICE]… [--persist on] [--release GPU]…";

/// Of everything; who waits for us has other things to do. What is written last stays.
const SECONDS: u32 = 20;

/// Of making a driver tree where `/usr` is on another file system. Once for each driver; a link takes no time.
const COPYING: u32 = 75;

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
    // A file system that hangs, a lock that nobody gives back: the default of this signal ends the program.
    nix::unistd::alarm::set(SECONDS);
    let root = option("--root", "/");
    let hook = option("--hook", "/usr/local/bin/runc-gpu-wrapper");
    let trees = Trees::new(option("--trees", "/opt/concourse/gpu-drivers"), hook);
    let paths = Paths {
        wanted: option("--policy", wanted::PATH),
        out: option("--out", "/run/concourse-gpu"),
        trees: (root == Path::new("/")).then_some(trees),
        before_tree: || _ = nix::unistd::alarm::set(COPYING),
    };
    settle(&root.join("dev"));
    let program = std::env::current_exe().context("this program's path is not known")?;
    let asker =
        Asker { program, args: vec!["nvml".into()], deadline: ANSWER, stuck: paths.out.join("stuck") };
    if command == "restore" {
        return restore(&Look::at(root), &asker, &paths).map(|()| String::new());
    }
    let report = refresh(&Look::at(root), &asker, &paths)?;
    Ok(match command.as_str() {
        "refresh" => serde_json::to_string(&report)?,
        _ => ladder::text(&report.ladders),
    })
}
