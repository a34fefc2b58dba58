//! From what was seen to what is told and given (PURE).

use super::facts::Facts;
use super::generate::{Origin, Prepared, prepare};
use super::inventory::{Inventory, State, inventory};
use super::lacks::{Lacks, lacks};
use super::ladder::{self, Ladder, Seen, ladders};
use super::said::Answer;
use super::select::select;
use super::wanted::Wanted;
use super::{summary, tags};
use crate::oci::devices::{Devices, FORMAT, Vendor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is told of one refresh.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The options that it answers.
    pub wanted: Option<Wanted>,
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
    /// What packages would mend.
    pub lacks: Lacks,
}

impl Report {
    /// Advertises the units that tasks can have.
    pub fn tell(&mut self, devices: &Devices, wanted: &Wanted) {
        self.summary = summary::summary(devices);
        self.tags = tags::tags(devices, &self.inventory, wanted.access);
        self.units = devices.units.iter().map(|u| u.id.clone()).collect();
    }

    /// All of it that shows in Juju and at the web node, as one line of text.
    pub fn telling(&self) -> String {
        let telling = serde_json::json!({"status": self.summary, "blocked": self.blocked, "tags": self.tags});
        format!("{telling}\n")
    }
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
    prepared.problems.extend(unpersisted(answer));
    let lacks = lacks(facts, &prepared, &ladders);
    let mut report = Report { ladders, lacks, notes: prepared.problems.clone(), ..Report::default() };
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
    let mut decision = finish(report, prepared, inventory, wanted, Before { kept: false, last });
    let report = &mut decision.report;
    if report.blocked.is_none() {
        let gaps = report.ladders.iter().filter_map(Ladder::missing);
        // What a container was not given it was not meant to have.
        let gaps = gaps.filter(|(rung, _)| !(facts.in_container() && ladder::is_passed_on(rung)));
        report.notes.extend(gaps.map(|(_, missing)| missing.message.clone()));
    }
    decision
}

/// In a container it is the host's affair, and nowhere does a task fail for it.
fn unpersisted(answer: &Answer) -> Option<String> {
    let Answer::Said(said) = answer else { return None };
    let (id, why) = said.refused.iter().next()?;
    Some(format!(
        "Persistence mode of {id} can't be switched on here ({why}): run sudo nvidia-smi -pm 1, in a container on its host"
    ))
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
    devices.vendors = all.vendors.clone();
    devices.vendors.retain(|vendor, _| devices.units.iter().any(|u| u.vendor == *vendor));
    let sick = inventory.gpus.iter().filter(|g| wanted.has(g.vendor)).filter_map(|gpu| match &gpu.state {
        State::Sick(why) | State::Ailing(why) => Some(format!("GPU {}: {why}", gpu.id)),
        _ => None,
    });
    report.notes.extend(sick);
    report.inventory = inventory;
    report.tell(&devices, wanted);
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
