//! What is left on a GPU that no task has: the next one is to start on a clean one.
//!
//! A refresh looks, so every five minutes, when something about the GPUs changes, and at each start of a worker; nobody is
//! told when a task ends. What still is in use after a moment marks the unit, which no task gets until a later look finds it
//! clean. AMD and Intel have no library that tells it.

use super::ask::Asker;
use super::said::{Answer, Said, SaidGpu, SaidProcess};
use crate::host::fs::{remove, write_atomic};
use crate::oci::lease::health::{self, FORMAT, Sick};
use crate::oci::lease::live::Kernel;
use crate::oci::lease::model::Table;
use crate::oci::lease::rebuild::rebuild;
use crate::oci::lease::table::{self, Stored};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// More than a driver keeps in use on a GPU that nobody uses: MiB.
const MOST: u64 = 256;

/// How long a driver may take to tidy up after a process that ended.
const SETTLES: Duration = Duration::from_secs(2);

/// What is left on a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Left {
    used_mib: u64,
    processes: Vec<String>,
    /// Some of them draw: a desktop was there before all tasks, and stays.
    desktop: bool,
}

impl Left {
    fn marks(&self) -> bool {
        self.used_mib > MOST && !self.desktop
    }

    /// Why nobody gets the unit.
    fn why(&self) -> String {
        let by = if self.processes.is_empty() { "no process".into() } else { self.processes.join(", ") };
        format!(
            "{} MiB of its memory stay in use though no task has it, by {by} that can be seen: end that, or reset the GPU",
            self.used_mib
        )
    }
}

/// Units of which something is left, of those that are `idle` (PURE).
fn left(said: &Said, idle: &BTreeSet<String>) -> BTreeMap<String, Left> {
    let mut found = BTreeMap::new();
    let name = |process: &SaidProcess| match &process.name {
        Some(name) => format!("{name} ({})", process.pid),
        None => process.pid.to_string(),
    };
    let mut see = |id: &String, used: Option<u64>, gpu: &SaidGpu, on: &dyn Fn(&SaidProcess) -> bool| {
        let draws: Vec<&SaidProcess> = gpu.graphics.iter().filter(|p| on(p)).collect();
        let only_computes = |p: &&SaidProcess| on(p) && draws.iter().all(|other| other.pid != p.pid);
        let all = gpu.processes.iter().filter(only_computes).chain(draws.iter().copied());
        let left = Left {
            used_mib: used.unwrap_or(0),
            processes: all.map(name).collect(),
            desktop: !draws.is_empty(),
        };
        if idle.contains(id) && (left.marks() || !left.processes.is_empty()) {
            found.insert(id.clone(), left);
        }
    };
    for gpu in &said.gpus {
        for part in &gpu.parts {
            see(&part.uuid, part.used_mib, gpu, &|p| p.gi.is_some() && p.gi == part.gi);
        }
        if !gpu.mig {
            see(&gpu.uuid, gpu.used_mib, gpu, &|_| true);
        }
    }
    found
}

/// Who has what, at one moment.
#[derive(Clone, Debug)]
pub struct Moment(Table);

impl Moment {
    /// Now; `None`: nobody can say.
    pub fn now(dir: &Path) -> Option<Self> {
        Self::of(dir, &Kernel::here().ok()?)
    }

    fn of(dir: &Path, kernel: &Kernel) -> Option<Self> {
        let boot = kernel.boot().ok()?;
        match table::load(dir, &boot) {
            Stored::Table(mut table) => {
                table.drop_ended(kernel);
                Some(Moment(table))
            }
            // The first task makes it. Those from before, when GPUs were not leased, have theirs all the same.
            Stored::Lost(_) if !dir.join(table::TABLE).exists() => {
                rebuild(None, kernel, &boot).ok().map(Moment)
            }
            Stored::Lost(_) | Stored::Unreadable(_) => None,
        }
    }

    /// Whether nobody has had the unit from then until `later`.
    fn idle(&self, later: &Moment, unit: &String) -> bool {
        let has = |table: &Table| table.leases.iter().any(|lease| lease.units.contains(unit));
        !has(&self.0) && !has(&later.0) && self.0.last.get(unit) == later.0.last.get(unit)
    }
}

/// Looks for what is left on `units`, those that tasks may have, and writes down which of them nobody is to get. `first`:
/// what NVML answered since the moment `before`; `again`: whether there is time to ask it once more. Returns what to tell.
///
/// # Errors
/// The list can't be written.
pub fn look(
    dir: &Path,
    units: &[String],
    before: Option<&Moment>,
    first: &Answer,
    again: Option<(&Asker, &[String])>,
) -> Result<Vec<String>> {
    let (Some(before), Answer::Said(said)) = (before, first) else { return Ok(vec![]) };
    let seen = |said: &Said| {
        let now = Moment::now(dir)?;
        Some(left(said, &units.iter().filter(|id| before.idle(&now, id)).cloned().collect()))
    };
    let Some(mut found) = seen(said) else { return Ok(vec![]) };
    let known = health::read(&dir.join(health::UNCLEAN));
    let is_new = |id: &String, left: &Left| left.marks() && !known.contains_key(id);
    if found.iter().any(|(id, left)| is_new(id, left)) {
        let second = again.map(|(asker, questions)| {
            std::thread::sleep(SETTLES);
            asker.ask(questions)
        });
        match second {
            Some(Answer::Said(said)) => found = seen(&said).unwrap_or_default(),
            // The next look will tell.
            _ => found.retain(|id, left| !is_new(id, left)),
        }
    }
    let marked = |(id, left): (&String, &Left)| left.marks().then(|| (id.clone(), left.why()));
    let marks: BTreeMap<String, String> = found.iter().filter_map(marked).collect();
    if marks.keys().ne(known.keys()) {
        store(dir, marks)?;
    }
    Ok(found.iter().map(|(id, left)| told(id, left)).collect())
}

fn told(id: &str, left: &Left) -> String {
    match left.marks() {
        true => format!("GPU {id} is not given to tasks: {}", left.why()),
        false => format!("GPU {id}: processes use it though no task has it: {}", left.processes.join(", ")),
    }
}

fn store(dir: &Path, units: BTreeMap<String, String>) -> Result<()> {
    if units.is_empty() {
        return forget(dir);
    }
    let text = serde_json::to_string(&Sick { format: FORMAT, units })?;
    write_atomic(&dir.join(health::UNCLEAN), text.as_bytes(), 0o644, None)
}

/// Nothing is leased: nothing is kept from anybody.
///
/// # Errors
/// The list can't be removed.
pub fn forget(dir: &Path) -> Result<()> {
    remove(&dir.join(health::UNCLEAN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::said::SaidPart;

    fn gpu(uuid: &str, used: u64, processes: &[(u32, Option<&str>, Option<u32>)]) -> SaidGpu {
        let process = |(pid, name, gi): &(u32, Option<&str>, Option<u32>)| SaidProcess {
            pid: *pid,
            name: name.map(str::to_owned),
            gi: *gi,
        };
        let processes = processes.iter().map(process).collect();
        SaidGpu { uuid: uuid.into(), used_mib: Some(used), processes, ..SaidGpu::default() }
    }

    #[test]
    fn tasks_from_before_leases_have_their_gpus() {
        let dir = tempfile::tempdir().unwrap();
        let (run, bundles) = (dir.path().join("run"), dir.path().join("bundles"));
        let here = Kernel::here().unwrap();
        let kernel = Kernel { bundles: vec![bundles.clone()], ..here };
        let idle = || {
            let now = Moment::of(&run, &kernel)?;
            Some(["GPU-a", "GPU-b"].map(|id| now.idle(&now, &id.to_owned())))
        };
        assert_eq!(idle(), Some([true, true]));
        let noted = r#"{"annotations":{"org.concourse-ci.machine.gpus":"{\"units\":[\"GPU-a\"]}"}}"#;
        std::fs::create_dir_all(bundles.join("b1f0")).unwrap();
        std::fs::write(bundles.join("b1f0/config.json"), noted).unwrap();
        assert_eq!(idle(), Some([false, true]));
        std::fs::create_dir_all(bundles.join("c/config.json")).unwrap();
        assert_eq!(idle(), None, "nobody can say");
    }

    #[test]
    fn only_what_nobody_has_and_more_than_a_driver_keeps() {
        let part = |uuid: &str, gi, used| SaidPart {
            uuid: uuid.into(),
            gi: Some(gi),
            used_mib: Some(used),
            ..SaidPart::default()
        };
        let mig = SaidGpu {
            mig: true,
            parts: vec![part("MIG-a", 1, 9000), part("MIG-b", 2, 4)],
            ..gpu("GPU-mig", 9100, &[(7, Some("python3"), Some(1)), (8, None, Some(2))])
        };
        let draws = |pid, name: &str| SaidProcess { pid, name: Some(name.to_owned()), gi: None };
        let desktop = SaidGpu {
            graphics: vec![draws(9, "Xorg"), draws(10, "gnome-shell")],
            ..gpu("GPU-d", 900, &[(10, Some("gnome-shell"), None), (11, Some("python3"), None)])
        };
        let gpus =
            vec![gpu("GPU-a", 256, &[]), gpu("GPU-b", 257, &[]), gpu("GPU-c", 9000, &[]), desktop, mig];
        let said = Said { gpus, ..Said::default() };
        let idle = ["GPU-a", "GPU-b", "GPU-d", "GPU-mig", "MIG-a", "MIG-b"].map(str::to_owned).into();
        let told: Vec<String> = left(&said, &idle).iter().map(|(id, left)| told(id, left)).collect();
        assert_eq!(
            told,
            [
                "GPU GPU-b is not given to tasks: 257 MiB of its memory stay in use though no task has it, by no process \
                 that can be seen: end that, or reset the GPU",
                "GPU GPU-d: processes use it though no task has it: python3 (11), Xorg (9), gnome-shell (10)",
                "GPU MIG-a is not given to tasks: 9000 MiB of its memory stay in use though no task has it, by python3 \
                 (7) that can be seen: end that, or reset the GPU",
                "GPU MIG-b: processes use it though no task has it: 8",
            ]
        );
    }
}
