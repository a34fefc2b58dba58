//! What `concourse-gpu refresh` does: looks, asks, decides, and writes what the wrapper and the charm read.
//!
//! | file | for |
//! |---|---|
//! | `OUT/devices.json` | the wrapper: units that `gpu-device-ids` lets tasks have, and what a container gets of each |
//! | `OUT/inventory.json` | the charm: [`Report`] |
//! | `OUT/lock`, `OUT/stuck` | a refresh runs; a child of NVML waits in the kernel |

use super::ask::Asker;
use super::facts::{Facts, Machine};
use super::generate::{Origin, Prepared, prepare};
use super::inventory::{Inventory, inventory};
use super::ladder::{self, Ladder, Seen, ladders};
use super::said::Answer;
use super::scan::{Look, scan};
use super::select::select;
use super::wanted::Wanted;
use super::{summary, tags};
use crate::cdi::tree::Trees;
use crate::host::fs::{read, write_atomic};
use crate::oci::devices::{Devices, FORMAT, Vendor};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

/// What is told of one refresh.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// `GPU: 2x NVIDIA`; `None`: there is none that can be used.
    pub summary: Option<String>,
    /// Tags of the worker's registration.
    pub tags: Vec<String>,
    /// The sentence of a `blocked` status: no GPU can be used though some should, or the options name what isn't there.
    pub blocked: Option<String>,
    /// Sentences on what doesn't stop all: one GPU of several is sick, a CDI file is broken.
    pub notes: Vec<String>,
    /// Ids of the units in `devices.json`.
    pub units: Vec<String>,
    /// All GPUs.
    pub inventory: Inventory,
    /// What `gpu-diagnose` prints.
    pub ladders: Vec<Ladder>,
}

/// Report and devices belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// For the charm.
    pub report: Report,
    /// For the wrapper, not yet in a driver tree.
    pub devices: Devices,
    /// Where NVIDIA's are from.
    pub origin: Option<Origin>,
    /// NVIDIA's did not answer, and those of before stay.
    pub kept: bool,
}

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Paths {
    /// See [`super::wanted::PATH`].
    pub wanted: PathBuf,
    /// `/run/concourse-gpu`
    pub out: PathBuf,
    /// Driver trees; `None`: none are made, as for a root that is not this machine's.
    pub trees: Option<Trees>,
}

/// Decides from what was seen (PURE). `last`: what was written last.
pub fn decide(
    facts: &Facts,
    answer: &Answer,
    wanted: &Wanted,
    last: Option<(&Report, &Devices)>,
) -> Decision {
    let inventory = inventory(facts, answer);
    let mut prepared = prepare(facts, &inventory, wanted);
    let seen = Seen { facts, answer, inventory: &inventory, prepared: &prepared };
    let ladders = ladders(&seen, wanted);
    let kept = last.filter(|_| *answer == Answer::Hung).and_then(|last| keep(facts, wanted, last));
    drop_broken(&mut prepared, &ladders);
    let mut report = Report { ladders, notes: prepared.problems.clone(), ..Report::default() };
    if let Some((inventory, devices)) = kept {
        report
            .notes
            .push("NVIDIA's driver does not answer; its GPUs stay as they were: see gpu-diagnose".into());
        let others = prepared.devices.units.iter().filter(|u| u.vendor != Vendor::Nvidia).cloned();
        let mut units = devices.units;
        units.extend(others);
        prepared.devices.units = units;
        prepared.devices.vendors.extend(devices.vendors);
        return finish(report, prepared, inventory, wanted, Before { kept: true, last });
    }
    finish(report, prepared, inventory, wanted, Before { kept: false, last })
}

/// What was, and whether it stays.
struct Before<'a> {
    kept: bool,
    last: Option<(&'a Report, &'a Devices)>,
}

fn finish(
    mut report: Report,
    prepared: Prepared,
    inventory: Inventory,
    wanted: &Wanted,
    before: Before,
) -> Decision {
    let all = &prepared.devices;
    let mut devices = Devices { format: FORMAT, vendors: BTreeMap::new(), units: vec![] };
    report.blocked = ladder::blocked(&report.ladders, &prepared);
    match select(wanted.units.as_deref(), all, &inventory) {
        Ok(chosen) => {
            devices.units = all.units.iter().filter(|u| chosen.units.contains(&u.id)).cloned().collect();
            if devices.units.is_empty() && report.blocked.is_none() {
                report.blocked = chosen.missing.first().cloned();
            }
            report.notes.extend(chosen.missing);
        }
        Err(why) => {
            // A bad option changes nothing: what was chosen before stays chosen.
            let chosen = before.last.map(|(last, _)| last.units.clone()).unwrap_or_default();
            devices.units = all.units.iter().filter(|u| chosen.contains(&u.id)).cloned().collect();
            match report.blocked {
                None => report.blocked = Some(why),
                // Where nothing works the ladder says more than a list of nothing.
                Some(_) => report.notes.push(why),
            }
        }
    }
    if report.blocked.is_none() {
        let gaps = report.ladders.iter().filter(|_| !before.kept).filter_map(Ladder::missing);
        report.notes.extend(gaps.map(|(_, missing)| missing.message.clone()));
    }
    devices.vendors = all.vendors.clone();
    devices.vendors.retain(|vendor, _| devices.units.iter().any(|u| u.vendor == *vendor));
    let sick = inventory.gpus.iter().filter(|g| wanted.has(g.vendor)).filter_map(|gpu| match &gpu.state {
        super::inventory::State::Sick(why) | super::inventory::State::Ailing(why) => {
            Some(format!("GPU {}: {why}", gpu.id))
        }
        _ => None,
    });
    report.notes.extend(sick);
    report.summary = summary::summary(&devices);
    report.tags = tags::tags(&devices, &inventory, wanted.access);
    report.units = devices.units.iter().map(|u| u.id.clone()).collect();
    report.inventory = inventory;
    Decision { report, devices, origin: prepared.origin.get(&Vendor::Nvidia).copied(), kept: before.kept }
}

/// Units whose vendor's ladder has a gap would fail in the task.
fn drop_broken(prepared: &mut Prepared, ladders: &[Ladder]) {
    let whole =
        |vendor: Vendor| ladders.iter().find(|l| l.vendor == vendor).is_some_and(|l| l.missing().is_none());
    prepared.devices.units.retain(|u| whole(u.vendor));
    prepared.devices.vendors.retain(|vendor, _| whole(*vendor));
}

/// What was known of NVIDIA's GPUs, if it is still of this driver and all its nodes are there.
fn keep(
    facts: &Facts,
    wanted: &Wanted,
    (report, devices): (&Report, &Devices),
) -> Option<(Inventory, Devices)> {
    let driver = devices.vendors.get(&Vendor::Nvidia).filter(|_| wanted.has(Vendor::Nvidia))?;
    let mut devices = devices.clone();
    devices.units.retain(|u| u.vendor == Vendor::Nvidia);
    let nodes = devices.units.iter().flat_map(|u| &u.edits.nodes).chain(&driver.edits.nodes);
    let same = facts.nvidia.version.is_none() || driver.version == facts.nvidia.version;
    let whole = nodes.into_iter().all(|n| facts.node(&n.host).is_some());
    devices.vendors.retain(|vendor, _| *vendor == Vendor::Nvidia);
    (same && whole && !devices.units.is_empty()).then(|| (report.inventory.clone(), devices))
}

/// Does everything, one at a time.
///
/// # Errors
/// The options can't be read, or nothing can be written; what was written last stays.
pub fn refresh(look: &Look, asker: &Asker, paths: &Paths) -> Result<Report> {
    crate::host::fs::make_dir(&paths.out)?;
    let lock = File::create(paths.out.join("lock")).context("failed to make the lock")?;
    lock.lock().context("failed to lock")?;
    let text = read(&paths.wanted)?.with_context(|| format!("{} is not there", paths.wanted.display()))?;
    let wanted: Wanted =
        serde_json::from_str(&text).with_context(|| format!("{} can't be read", paths.wanted.display()))?;
    let (report_path, devices_path) = (paths.out.join("inventory.json"), paths.out.join("devices.json"));
    // What can't be read any more is of another version of this program, and nothing to keep.
    let last: Option<Report> = read(&report_path).ok().flatten().and_then(|t| serde_json::from_str(&t).ok());
    let before: Option<Devices> =
        read(&devices_path).ok().flatten().and_then(|t| serde_json::from_str(&t).ok());
    let facts = scan(look);
    let ask = wanted.has(Vendor::Nvidia) && is_worth_asking(&facts);
    let answer = if ask { asker.ask() } else { Answer::NotAsked };
    let mut decision = decide(&facts, &answer, &wanted, last.as_ref().zip(before.as_ref()));
    if let Some(trees) = paths.trees.as_ref().filter(|_| !decision.kept) {
        equip(trees, &mut decision, before.as_ref());
    }
    let Decision { report, devices, .. } = decision;
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

/// Without a driver NVML has nothing to say, and without its library nobody to say it.
fn is_worth_asking(facts: &Facts) -> bool {
    let driver = facts.node("/dev/nvidiactl").is_some() || facts.node("/dev/dxg").is_some();
    driver && !facts.files.nvml.is_empty() && facts.machine != Machine::Jetson
}

/// Puts the driver's files into a tree. Without one a spec works as it stands, and what was found here doesn't: the
/// names of its libraries are made in the container by the tree's hook.
fn equip(trees: &Trees, decision: &mut Decision, before: Option<&Devices>) {
    let why = match trees.equip(&decision.devices) {
        Ok(devices) => return decision.devices = devices,
        Err(why) => why,
    };
    decision.report.notes.push(format!("NVIDIA's driver could not be made ready for containers: {why}"));
    if decision.origin == Some(Origin::Own) {
        let devices = &mut decision.devices;
        devices.units.retain(|u| u.vendor != Vendor::Nvidia);
        devices.vendors.remove(&Vendor::Nvidia);
        if let Some(before) = before.filter(|b| b.vendors.contains_key(&Vendor::Nvidia)) {
            devices.units.splice(0..0, before.units.iter().filter(|u| u.vendor == Vendor::Nvidia).cloned());
            devices.vendors.extend(before.vendors.clone().into_iter().filter(|(v, _)| *v == Vendor::Nvidia));
        }
    }
}
