//! `runc-gpu-wrapper leases`: the table for the operator, and a way to break a lease that is safe.

use super::health;
use super::live::Kernel;
use super::model::{Proc, Table};
use super::say::Story;
use super::shown::{Shown, state};
use super::table::{Locked, Stored};
use crate::oci::bundle::read_json;
use crate::oci::devices::{Devices, Unit};
use crate::oci::next;
use crate::oci::policy::{Access, Gpus};
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::Path;

const USAGE: &str = "usage: runc-gpu-wrapper leases [--json]\n       runc-gpu-wrapper leases break UNIT\n";

/// The exit code, if it was called by its own name for this; `None`: it stands in for runc.
pub fn called(name: &OsStr, args: &[OsString]) -> Option<i32> {
    let own = Path::new(name).file_name() == Some(OsStr::new("runc-gpu-wrapper"));
    if !own || args.first().is_none_or(|word| word != "leases") {
        return None;
    }
    let words: Vec<&str> = args.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let done = match words.as_slice() {
        _ if words.len() + 1 != args.len() => Err(USAGE.to_owned()),
        [] => show(false),
        ["--json"] => show(true),
        ["break", unit] => break_unit(unit),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(text) => std::io::stdout().write_all(text.as_bytes()).err().map_or(Some(0), |_| Some(1)),
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "{}", why.trim_end());
            Some(1)
        }
    }
}

struct Here {
    gpus: Gpus,
    units: Vec<Unit>,
    kernel: Kernel,
    boot: String,
}

impl Here {
    fn new() -> Result<Self, String> {
        let policy = next::policy(&next::policy_path())?;
        let gpus = policy.gpus.filter(|gpus| gpus.access == Access::Exclusive);
        let gpus = gpus.ok_or("this worker leases no GPUs: gpu-access is not exclusive")?;
        let devices: Devices = read_json(&gpus.devices)?;
        let may = |unit: &Unit| gpus.units.as_ref().is_none_or(|units| units.contains(&unit.id));
        let units = devices.units.into_iter().filter(may).collect();
        let here = Kernel::here().map_err(|e| format!("/proc: {e}"))?;
        let kernel = Kernel { bundles: gpus.leases.bundles.clone(), ..here };
        let boot = kernel.boot().map_err(|e| format!("/proc: {e}"))?;
        Ok(Here { gpus, units, kernel, boot })
    }

    /// Without what has ended.
    fn sound(&self, stored: Stored) -> Result<Table, String> {
        match stored {
            Stored::Table(mut table) => {
                table.drop_ended(&self.kernel);
                Ok(table)
            }
            Stored::Lost(why) => Err(format!(
                "nothing to break: the next task puts the table together from the containers ({why})"
            )),
            Stored::Unreadable(why) => Err(why),
        }
    }
}

fn show(as_json: bool) -> Result<String, String> {
    let here = Here::new()?;
    let shown = Shown::now(&here.gpus, &here.units, &here.kernel, &here.boot)?;
    match as_json {
        true => serde_json::to_string_pretty(&shown).map(|text| text + "\n").map_err(|e| e.to_string()),
        false => Ok(shown.text()),
    }
}

/// By id or another of its names.
fn break_unit(name: &str) -> Result<String, String> {
    let here = Here::new()?;
    let Some(unit) = here.units.iter().find(|u| u.id == name || u.names.iter().any(|n| n == name)) else {
        let units: Vec<&Unit> = here.units.iter().collect();
        let me = Proc { pid: 0, start: 0, namespace: 0 };
        let table = Table::new("");
        let story =
            Story { table: &table, units: &units, sick: health::sick(&here.gpus.leases.dir), me, now: 0 };
        let all: Vec<String> = units.iter().map(|unit| story.name(&unit.id)).collect();
        return Err(format!("tasks have no unit {name} on this worker; they have: {}", all.join(", ")));
    };
    let locked = Locked::open(&here.gpus.leases.dir)?;
    let mut table = here.sound(locked.load(&here.boot))?;
    let before = table.clone();
    match table.take_back(&unit.id, &here.kernel) {
        Err(using) => {
            let using: Vec<String> =
                using.iter().map(|l| format!("container {}: {}", l.id, state(l, &here.kernel))).collect();
            Err(format!(
                "{name} is in use, and its processes would go on using it beside the next task's: end them first \
                 (`kill`, or abort the build). {}",
                using.join("; ")
            ))
        }
        Ok(broken) if broken.is_empty() => Ok(format!("{name} is free\n")),
        Ok(broken) => {
            locked.store(&table)?;
            super::wait::ring(&here.gpus.leases.dir, &before, &table, &here.kernel);
            let ids: Vec<&str> = broken.iter().map(|lease| lease.id.as_str()).collect();
            Ok(format!("{name} is free again; it was kept for container {}\n", ids.join(", ")))
        }
    }
}
