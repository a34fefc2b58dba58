//! `runc-gpu-wrapper leases`: the table for the operator, and a way to break a lease that is safe.

use super::live::Kernel;
use super::model::Table;
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

/// Which unit is meant, by its id or another of its names.
fn named(name: &str, units: &[Unit], table: &Table) -> Result<String, String> {
    let withdrawn = table.withdrawn(units);
    if withdrawn.contains(name) || units.iter().any(|unit| unit.id == name) {
        return Ok(name.to_owned());
    }
    let told = |unit: &Unit| match unit.names.first() {
        Some(first) => format!("{first} ({})", unit.id),
        None => unit.id.clone(),
    };
    let found: Vec<&Unit> = units.iter().filter(|unit| unit.names.iter().any(|own| own == name)).collect();
    match found.as_slice() {
        [unit] => Ok(unit.id.clone()),
        [] => {
            let all: Vec<String> = units.iter().map(told).chain(withdrawn).collect();
            Err(format!("tasks have no unit {name} on this worker; they have: {}", all.join(", ")))
        }
        several => {
            let ids: Vec<&str> = several.iter().map(|unit| unit.id.as_str()).collect();
            Err(format!("{name} is a name of {}: name the one that you mean by its id", ids.join(" and of ")))
        }
    }
}

fn break_unit(name: &str) -> Result<String, String> {
    let here = Here::new()?;
    let locked = Locked::open(&here.gpus.leases.dir)?;
    let mut table = here.sound(locked.load(&here.boot))?;
    let unit = named(name, &here.units, &table)?;
    let before = table.clone();
    match table.take_back(&unit, &here.kernel) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci::devices::Vendor;
    use crate::oci::lease::model::Lease;
    use std::collections::BTreeMap;

    #[test]
    fn a_name_is_of_one_unit() {
        let unit = |id: &str, vendor| Unit::new(vendor, id, &["0", &format!("{id}-too")]);
        let units = [unit("GPU-a", Vendor::Nvidia), unit("0000:03:00.0", Vendor::Amd)];
        let mut table = Table::new("");
        table.leases.push(Lease {
            id: "c".into(),
            bundle: "/c".into(),
            units: vec!["GPU-a".into(), "MIG-old".into()],
            nodes: BTreeMap::new(),
            since: 0,
            movers: vec![],
            inside: None,
            suspect: false,
        });
        let said = |name: &str| named(name, &units, &table).unwrap_or_else(|why| why);
        for id in ["GPU-a", "0000:03:00.0", "MIG-old"] {
            assert_eq!(said(id), id);
        }
        assert_eq!(said("GPU-a-too"), "GPU-a");
        assert_eq!(
            said("0"),
            "0 is a name of GPU-a and of 0000:03:00.0: name the one that you mean by its id"
        );
        assert_eq!(
            said("7"),
            "tasks have no unit 7 on this worker; they have: 0 (GPU-a), 0 (0000:03:00.0), MIG-old"
        );
    }
}
