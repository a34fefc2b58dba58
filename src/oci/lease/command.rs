//! `runc-gpu-wrapper leases`: the table for the operator, and a way to break a lease that is safe.

use super::health;
use super::live::{Kernel, now};
use super::model::{Ask, Lease, Proc, Table, Waiter, World};
use super::say::{Story, span};
use super::table::{Locked, Stored, load};
use crate::oci::bundle::read_json;
use crate::oci::devices::{Devices, Unit};
use crate::oci::next;
use crate::oci::policy::{Access, Gpus};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
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
        let kernel = Kernel::here().map_err(|e| format!("/proc: {e}"))?;
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
            Stored::Lost(why) => Err(why),
        }
    }
}

/// How a lease stands.
fn state(lease: &Lease, kernel: &Kernel) -> String {
    let inside = lease.inside.as_ref().map(|inside| kernel.inhabitants(inside)).unwrap_or_default();
    let pids = |found: Vec<i32>| found.iter().map(i32::to_string).collect::<Vec<_>>().join(" ");
    let movers: Vec<i32> = lease.movers.iter().filter(|p| kernel.lives(p)).map(|p| p.pid).collect();
    match (inside.is_empty(), movers.is_empty()) {
        (false, _) => format!("in use by {}", pids(inside.iter().flatten().map(|p| p.pid).collect())),
        (_, false) => format!("entered or made by {}", pids(movers)),
        _ if lease.suspect => "kept, since the table was lost".to_owned(),
        _ => "waits for its first process".to_owned(),
    }
}

fn show(as_json: bool) -> Result<String, String> {
    let here = Here::new()?;
    let dir = &here.gpus.leases.dir;
    let table = match load(dir, &here.boot) {
        // The first task makes it.
        Stored::Lost(_) if !dir.join(super::table::TABLE).exists() => Table::new(&here.boot),
        stored => here.sound(stored)?,
    };
    let sick = health::sick(dir);
    if as_json {
        return Ok(format!("{:#}\n", as_value(&here, &table)));
    }
    let units: Vec<&Unit> = here.units.iter().collect();
    let me = Proc { pid: 0, start: 0, namespace: 0 };
    let story = Story { table: &table, units: &units, sick: sick.clone(), me, now: now() };
    let mut text = String::new();
    for unit in &units {
        let has = |lease: &&Lease| lease.units.contains(&unit.id);
        let _ = write!(text, "{}  {}", story.name(&unit.id), unit.model.as_deref().unwrap_or(""));
        let holders: Vec<&Lease> = table.leases.iter().filter(has).collect();
        let _ = match (sick.get(&unit.id), holders.is_empty()) {
            (Some(why), _) => writeln!(text, "  out of order: {why}"),
            (None, true) => writeln!(text, "  free"),
            (None, false) => writeln!(text),
        };
        for lease in holders {
            let time = span(story.now.saturating_sub(lease.since));
            let _ = writeln!(text, "  container {} for {time}: {}", lease.id, state(lease, &here.kernel));
        }
    }
    for (at, waiter) in table.waiters.iter().enumerate() {
        let (time, Ask { count, units }) = (span(story.now.saturating_sub(waiter.caller.since)), &waiter.ask);
        let (id, of) = (&waiter.caller.id, units.len());
        let _ = writeln!(text, "waits, {}. in line: container {id} for {time}, for {count} of {of}", at + 1);
    }
    Ok(text)
}

fn as_value(here: &Here, table: &Table) -> Value {
    let (now, sick) = (now(), health::sick(&here.gpus.leases.dir));
    let seconds = |since: u64| now.saturating_sub(since) / 1000;
    let lease = |lease: &Lease| {
        json!({"container": lease.id, "seconds": seconds(lease.since), "state": state(lease, &here.kernel),
            "in-use": lease.in_use(&here.kernel)})
    };
    let unit = |unit: &Unit| {
        let has = table.leases.iter().filter(|l| l.units.contains(&unit.id));
        json!({"id": unit.id, "names": unit.names, "model": unit.model, "replicas": here.gpus.leases.replicas.max(1),
            "sick": sick.get(&unit.id), "leases": has.map(lease).collect::<Vec<_>>()})
    };
    let waiter = |waiter: &Waiter| {
        json!({"container": waiter.caller.id, "seconds": seconds(waiter.caller.since), "count": waiter.ask.count,
            "units": waiter.ask.units})
    };
    json!({"units": here.units.iter().map(unit).collect::<Vec<_>>(),
        "waiters": table.waiters.iter().map(waiter).collect::<Vec<_>>()})
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
    let mut table = here.sound(locked.load(&here.boot)).map_err(|why| {
        format!("nothing to break: the next task puts the table together from the containers ({why})")
    })?;
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
