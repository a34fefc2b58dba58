//! What the actions about GPUs tell.

use super::Answer;
use crate::gpu::export::{Format, export};
use crate::gpu::ladder::Ladder;
use crate::gpu::trial::{Outcome, Verdict, fingerprint};
use crate::gpu::{ladder, summary};
use crate::oci::devices::{Devices, FORMAT};
use crate::step::Step;
use crate::view::gpu::{report, wanted};
use crate::world::{Concern, World};
use std::collections::BTreeMap;

/// What is told is what is there now.
///
/// # Errors
/// GPUs are not wanted on this unit.
pub fn steps(world: &World) -> Result<Vec<Step>, String> {
    let app = world.unit.application();
    let off = || {
        format!(
            "GPUs are not used on this unit: juju config {app} enable-gpu=true compute-runtime=auto, on a worker"
        )
    };
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
    let test = world.machine.gpu_test.as_ref();
    let now = world.machine.devices.as_ref().map(fingerprint);
    // One of other devices, or of another driver, says nothing of these.
    let fits = test.filter(|test| now.as_ref() == Some(&test.of));
    let told = |ladder: &Ladder| match fits.and_then(|test| test.told(ladder.vendor)) {
        Some(result) => ladder.clone().told(result),
        None => ladder.clone(),
    };
    let ladders: Vec<Ladder> = report.ladders.iter().map(told).collect();
    let mut answer = Answer::says(&[("ladder", ladder::text(&ladders).trim_end())]);
    if let Some(test) = test {
        answer.results.insert("last-test".to_owned(), last(test, fits.is_some()));
    }
    let notes: Vec<String> = report.notes.iter().cloned().chain(packages(world)).collect();
    if !notes.is_empty() {
        answer.results.insert("notes".to_owned(), notes.join("\n"));
    }
    answer
}

/// Why packages are not there, if they were tried for.
fn packages(world: &World) -> Option<String> {
    if let Some(why) = world.troubles.get(&Concern::Packages) {
        return Some(why.clone());
    }
    let note =
        world.machine.no_toolkit.as_ref().filter(|_| report(world).is_some_and(|r| r.lacks.generator))?;
    Some(format!("The charm makes the CDI data itself, since {}", note.why))
}

fn last(test: &Outcome, fits: bool) -> String {
    let mut text = format!("{} {}", test.at, test.verdict.word());
    if !test.asked.is_empty() {
        text += &format!(", {}", test.asked);
    }
    if !test.reasons.is_empty() {
        text += &format!(": {}", test.reasons.join("; "));
    }
    // One that was cut off is not of any devices.
    if !fits && !test.of.is_empty() && test.verdict != Verdict::NotTried {
        text += " (the GPUs or their driver have changed since: run gpu-test again)";
    }
    text
}

/// `gpu-test`
pub fn tested(world: &World) -> Answer {
    let Some(test) = &world.machine.gpu_test else { return unknown() };
    let mut answer = Answer::says(&[("verdict", test.verdict.word())]);
    let mut add = |key: &str, text: String| {
        if !text.is_empty() {
            answer.results.insert(key.to_owned(), text);
        }
    };
    add("asked", test.asked.clone());
    add("gpus", test.units.join("\n"));
    add("devices", test.nodes.join("\n"));
    add("cuda", test.cuda.clone().unwrap_or_default());
    add("notes", test.notes.join("\n"));
    let why = test.reasons.join("; ");
    answer.failure = match test.verdict {
        Verdict::Passed => None,
        Verdict::Failed => Some(format!("The container did not see what it should: {why}")),
        Verdict::NotTried => Some(format!("Not tested: {why}")),
    };
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
