//! What the actions about GPUs tell.

use super::Answer;
use crate::gpu::export::{Format, export};
use crate::gpu::{ladder, summary};
use crate::oci::devices::{Devices, FORMAT};
use crate::step::Step;
use crate::view::gpu::{report, wanted};
use crate::world::World;
use std::collections::BTreeMap;

/// What is told is what is there now.
///
/// # Errors
/// GPUs are not wanted on this unit.
pub fn steps(world: &World) -> Result<Vec<Step>, String> {
    let app = world.unit.application();
    let off = || format!("GPUs are not used on this unit: juju config {app} enable-gpu=true, on a worker");
    wanted(world).map(|_| vec![Step::LookAtGpus]).ok_or_else(off)
}

/// `gpu-info`
pub fn info(world: &World) -> Answer {
    let Some(report) = report(world) else { return unknown() };
    let none = Devices { format: FORMAT, vendors: BTreeMap::new(), units: vec![] };
    let devices = world.machine.devices.as_ref().unwrap_or(&none);
    let mut answer = Answer::says(&[("gpus", summary::text(devices, &report.inventory).trim_end())]);
    if !report.tags.is_empty() {
        answer.results.insert("tags".to_owned(), report.tags.join("\n"));
    }
    if let Some(leases) = &world.machine.leases {
        let text = match leases {
            Ok(shown) => shown.text().trim_end().to_owned(),
            Err(why) => format!("the lease table can't be read: {why}"),
        };
        answer.results.insert("leases".to_owned(), text);
    }
    if !report.notes.is_empty() {
        answer.results.insert("notes".to_owned(), report.notes.join("\n"));
    }
    answer
}

/// `gpu-diagnose`
pub fn diagnose(world: &World) -> Answer {
    let Some(report) = report(world) else { return unknown() };
    let mut answer = Answer::says(&[("ladder", ladder::text(&report.ladders).trim_end())]);
    if !report.notes.is_empty() {
        answer.results.insert("notes".to_owned(), report.notes.join("\n"));
    }
    answer
}

/// `export-gpu-config`
pub fn exported(world: &World, format: Format) -> Answer {
    match (report(world), &world.machine.devices) {
        (Some(report), Some(devices)) if !devices.units.is_empty() => {
            let text = export(format, &world.machine.hostname, devices, &report.inventory);
            Answer::says(&[("config", text.trim_end())])
        }
        (Some(_), _) => {
            Answer::failed("This unit has no GPU that tasks can have: see gpu-diagnose".to_owned())
        }
        (None, _) => unknown(),
    }
}

fn unknown() -> Answer {
    Answer::failed("The GPUs of this unit are not known: see its status".to_owned())
}
