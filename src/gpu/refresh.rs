//! What `concourse-gpu refresh` does: looks, asks, decides, and writes what the wrapper and the charm read.
//!
//! | file | for |
//! |---|---|
//! | `OUT/devices.json` | the wrapper: units that `gpu-device-ids` lets tasks have, and what a container gets of each |
//! | `OUT/inventory.json` | the charm: [`Report`](super::decide::Report) |
//! | `OUT/persistence.json` | what is to be undone about the GPUs themselves: [`super::persistence`] |
//! | `OUT/unclean.json` | the wrapper: units on which something was left, see [`super::left`] |
//! | `OUT/lock`, `OUT/stuck` | a refresh runs; a child of NVML waits in the kernel |

use super::ask::Asker;
use super::decide::{Decision, Report, decide};
use super::facts::{Facts, Machine};
use super::generate::Origin;
use super::left::{self, Moment};
use super::persistence::Note;
use super::said::Answer;
use super::scan::{Look, scan};
use super::wanted::Wanted;
use crate::cdi::tree::Trees;
use crate::host::fs::{read, write_atomic};
use crate::oci::devices::{Devices, Unit, Vendor};
use crate::oci::policy::Access;
use anyhow::{Context, Result};
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Paths {
    /// See [`super::wanted::PATH`].
    pub wanted: PathBuf,
    /// `/run/concourse-gpu`
    pub out: PathBuf,
    /// Driver trees; `None`: none are made, as for a root that is not this machine's.
    pub trees: Option<Trees>,
    /// Called when it is our turn: the time that another look took is none of ours.
    pub locked: fn(),
    /// Called before a tree is made: where `/usr` is on another file system, some hundred MiB are copied.
    pub before_tree: fn(),
}

/// A driver that answers so soon may be asked twice: everything is done within [the program's](crate::gpu) time.
const QUICK: Duration = Duration::from_secs(3);

/// Does everything, one at a time.
///
/// # Errors
/// The options can't be read, or nothing can be written; what was written last stays.
pub fn refresh(look: &Look, asker: &Asker, paths: &Paths) -> Result<Report> {
    let _lock = lock(paths)?;
    let wanted: Wanted = match read(&paths.wanted)? {
        Some(text) => serde_json::from_str(&text)
            .with_context(|| format!("{} can't be read", paths.wanted.display()))?,
        None => Wanted::nothing(),
    };
    let (report_path, devices_path) = (paths.out.join("inventory.json"), paths.out.join("devices.json"));
    // What can't be read any more is of another version of this program, and nothing to keep.
    let last: Option<Report> = read(&report_path).ok().flatten().and_then(|t| serde_json::from_str(&t).ok());
    let before: Option<Devices> =
        read(&devices_path).ok().flatten().and_then(|t| serde_json::from_str(&t).ok());
    let mut note = Note::read(&paths.out);
    if paths.trees.is_some() {
        note.start_daemon(&wanted)?;
    }
    let facts = scan(look);
    let todo = note.questions(&wanted);
    let ask = (wanted.has(Vendor::Nvidia) || !todo.is_empty()) && is_worth_asking(&facts);
    let leased = wanted.access == Access::Exclusive;
    let (before_asking, begun) = (Moment::now(&paths.out).filter(|_| leased && ask), Instant::now());
    let questions = if ask { questions(&facts) } else { vec![] };
    let answer = if ask { asker.ask(&[questions.clone(), todo].concat()) } else { Answer::NotAsked };
    note.keep(&wanted, &answer)?;
    let again = (begun.elapsed() < QUICK).then_some((asker, questions.as_slice()));
    let mut decision = decide(&facts, &answer, &wanted, last.as_ref().zip(before.as_ref()));
    if let Some(trees) = paths.trees.as_ref().filter(|_| !decision.kept) {
        (paths.before_tree)();
        equip(trees, &mut decision, &wanted, before.as_ref());
    }
    let Decision { mut report, devices, .. } = decision;
    match leased {
        true => {
            let left = left::look(&paths.out, &report.units, before_asking.as_ref(), &answer, again)?;
            report.notes.extend(left);
        }
        false => left::forget(&paths.out)?,
    }
    report.wanted = Some(wanted);
    let write = |path, text: String| write_atomic(path, text.as_bytes(), 0o644, None);
    if before.as_ref() != Some(&devices) {
        write(&devices_path, serde_json::to_string(&devices)?)?;
    }
    if last.as_ref() != Some(&report) {
        write(&report_path, serde_json::to_string(&report)?)?;
    }
    if let Some(trees) = &paths.trees {
        let keep: Vec<&Devices> = before.iter().chain([&devices]).collect();
        // Rubbish costs space only; the next refresh tries again.
        let _rubbish = trees.clean(&keep);
    }
    Ok(report)
}

fn lock(paths: &Paths) -> Result<File> {
    crate::host::fs::make_dir(&paths.out)?;
    let lock = File::create(paths.out.join("lock")).context("failed to make the lock")?;
    lock.lock().context("failed to lock")?;
    (paths.locked)();
    Ok(lock)
}

/// Leaves the GPUs themselves as they were found.
///
/// # Errors
/// Nothing can be written.
pub fn restore(look: &Look, asker: &Asker, paths: &Paths) -> Result<()> {
    let _lock = lock(paths)?;
    let nothing = Wanted::nothing();
    let note = Note::read(&paths.out);
    let todo = note.questions(&nothing);
    let facts = scan(look);
    let ask = !todo.is_empty() && is_worth_asking(&facts);
    let answer = if ask { asker.ask(&[questions(&facts), todo].concat()) } else { Answer::NotAsked };
    note.keep(&nothing, &answer)
}

/// Without a driver NVML has nothing to say, and without its library nobody to say it.
fn is_worth_asking(facts: &Facts) -> bool {
    let driver = facts.node("/dev/nvidiactl").is_some() || facts.node("/dev/dxg").is_some();
    driver && !facts.files.nvml.is_empty() && facts.machine != Machine::Jetson
}

/// The child's arguments: the library that containers would get, and nodes that it tries to open.
fn questions(facts: &Facts) -> Vec<String> {
    let fits = |version: &&String| Some(*version) == facts.nvidia.version.as_ref();
    let library = facts.files.nvml.iter().find(|(_, version)| fits(version)).map(|(path, _)| path);
    let mut args: Vec<String> =
        library.into_iter().flat_map(|path| ["--library".into(), path.display().to_string()]).collect();
    for node in facts.nodes.keys() {
        let name = node.file_name().unwrap_or_default().to_string_lossy();
        let gpu = name.strip_prefix("nvidia").is_some_and(|n| n.parse::<u32>().is_ok());
        if gpu || ["nvidiactl", "nvidia-uvm"].contains(&&*name) {
            args.extend(["--node".into(), node.display().to_string()]);
        }
    }
    args
}

/// Puts the driver's files into a tree. Without one a spec works as it stands, and what was found here doesn't: the
/// names of its libraries are made in the container by the tree's hook. Then those of before stay.
fn equip(trees: &Trees, decision: &mut Decision, wanted: &Wanted, before: Option<&Devices>) {
    let why = match trees.equip(&decision.devices) {
        Ok(devices) => return decision.devices = devices,
        Err(why) => format!("NVIDIA's driver can't be made ready for containers: {why}"),
    };
    let Decision { report, devices, origin, .. } = decision;
    report.notes.push(why.clone());
    if *origin != Some(Origin::Own) {
        return;
    }
    let (own, others): (Vec<Unit>, Vec<Unit>) =
        devices.units.drain(..).partition(|u| u.vendor == Vendor::Nvidia);
    let driver = devices.vendors.remove(&Vendor::Nvidia).and_then(|d| d.version);
    let same = before.filter(|b| b.vendors.get(&Vendor::Nvidia).is_some_and(|d| d.version == driver));
    for unit in same.into_iter().flat_map(|b| &b.units).filter(|u| own.iter().any(|o| o.id == u.id)) {
        devices.units.push(unit.clone());
    }
    if !devices.units.is_empty() {
        let vendors = same.map(|b| b.vendors.clone()).unwrap_or_default();
        devices.vendors.extend(vendors.into_iter().filter(|(v, _)| *v == Vendor::Nvidia));
    }
    devices.units.extend(others);
    if devices.units.is_empty() && report.blocked.is_none() {
        report.blocked = Some(why);
    }
    report.tell(devices, wanted);
}
