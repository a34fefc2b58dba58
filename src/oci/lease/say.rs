//! What people read: refusals in a build's log, and the table for the operator (PURE).

use super::Demand;
use super::model::{Lease, Proc, Table};
use super::place::nodes;
use crate::oci::Refusal;
use crate::oci::devices::Unit;
use std::collections::BTreeMap;

/// What there is to tell.
#[derive(Debug)]
pub struct Story<'a> {
    /// Who has what.
    pub table: &'a Table,
    /// Units that tasks may have.
    pub units: &'a [&'a Unit],
    /// Units that are out of order, and why.
    pub sick: BTreeMap<String, String>,
    /// Who is told.
    pub me: Proc,
    /// Milliseconds after boot.
    pub now: u64,
}

impl Story<'_> {
    /// `0 (GPU-…)`
    pub fn name(&self, id: &str) -> String {
        let name = self.units.iter().find(|unit| unit.id == id).and_then(|unit| unit.names.first());
        name.map_or_else(|| id.to_owned(), |name| format!("{name} ({id})"))
    }

    fn names<'s>(&self, ids: impl IntoIterator<Item = &'s String>) -> String {
        ids.into_iter().map(|id| self.name(id)).collect::<Vec<_>>().join(", ")
    }

    fn lease(&self, lease: &Lease) -> String {
        let (units, time) = (self.names(&lease.units), span(self.now.saturating_sub(lease.since)));
        match lease.suspect {
            true => format!(
                "{units} is kept for container {} since the lease table was lost {time} ago",
                lease.id
            ),
            false => format!("container {} has {units} for {time}", lease.id),
        }
    }

    /// Whether a lease keeps the unit from others.
    fn is_on(&self, lease: &Lease, id: &str) -> bool {
        let unit = self.units.iter().find(|unit| unit.id == id);
        lease.is_on(id, &unit.map(|unit| nodes(unit)).unwrap_or_default())
    }

    /// Who has one of these units.
    fn holders(&self, ids: &[String]) -> String {
        let has = |lease: &&Lease| ids.iter().any(|id| self.is_on(lease, id));
        self.table.leases.iter().filter(has).map(|lease| self.lease(lease)).collect::<Vec<_>>().join("; ")
    }

    /// `: out of order are …`
    fn sick(&self, ids: &[String]) -> String {
        let sick = self.sick.iter().filter(|(id, _)| ids.contains(id));
        let sick: Vec<String> = sick.map(|(id, why)| format!("{} ({why})", self.name(id))).collect();
        if sick.is_empty() { String::new() } else { format!("; out of order: {}", sick.join(", ")) }
    }

    /// How many it waits for.
    fn needed(&self, demand: &Demand) -> usize {
        let sound = demand.ask.units.iter().filter(|id| !self.sick.contains_key(*id)).count();
        if demand.ask.or_fewer { demand.ask.count.min(sound) } else { demand.ask.count }
    }

    fn free(&self) -> Vec<&String> {
        let held = |id: &String| self.table.leases.iter().any(|lease| self.is_on(lease, id));
        let ids = self.units.iter().map(|unit| &unit.id);
        ids.filter(|id| !held(id) && !self.sick.contains_key(*id)).collect()
    }
}

/// More than the worker could ever give.
pub fn impossible(demand: &Demand, sound: usize, story: &Story<'_>) -> Refusal {
    let fit = match sound {
        0 => "no GPU that would do is in order".to_owned(),
        1 => "only 1 GPU that would do is in order".to_owned(),
        n => format!("only {n} GPUs that would do are in order"),
    };
    Refusal::new(format!(
        "the task asks for {}, and {fit} on this worker{}: ask for less in the task's params, or tell the worker's operator",
        demand.asked,
        story.sick(&demand.ask.units)
    ))
}

/// It waited for as long as it may.
pub fn too_late(demand: &Demand, waited_s: u64, story: &Story<'_>) -> Refusal {
    let ids = &demand.ask.units;
    let others = story.table.waiters.iter().filter(|waiter| waiter.caller.me != story.me).count();
    let line = match others {
        0 => String::new(),
        1 => "; 1 other task waits".to_owned(),
        n => format!("; {n} other tasks wait"),
    };
    let (would_do, rest): (Vec<_>, Vec<_>) = story.free().into_iter().partition(|id| ids.contains(id));
    let free = match (would_do.len(), rest.is_empty()) {
        (0, true) => String::new(),
        (0, false) => format!("; free, but not what the task asks for: {}", story.names(rest)),
        (n, _) => {
            format!("; free, but {n} of {} is not enough: {}", story.needed(demand), story.names(would_do))
        }
    };
    let holders = match story.holders(ids) {
        none if none.is_empty() => "they are kept for tasks that came first".to_owned(),
        some => some,
    };
    Refusal::new(format!(
        "the task asks for {}, and waited {} for it in vain: {holders}{line}{free}{}. Run the build again later, give the \
         step `attempts`, or ask for less",
        demand.asked,
        span(waited_s.saturating_mul(1000)),
        story.sick(ids)
    ))
}

/// A process wants into a container whose units are somebody else's now.
pub fn lapsed(lacking: &[String], story: &Story<'_>) -> Refusal {
    let (given, withdrawn): (Vec<String>, Vec<String>) =
        lacking.iter().cloned().partition(|id| story.units.iter().any(|unit| unit.id == *id));
    let why = match (story.holders(lacking), given.is_empty()) {
        (none, false) if none.is_empty() => {
            "tasks in line wait for them, or they are out of order".to_owned()
        }
        (some, _) => some,
    };
    let gone = match (withdrawn.is_empty(), story.units.is_empty()) {
        (true, _) => String::new(),
        (false, true) => "this worker has no list of GPUs at the moment".to_owned(),
        (false, false) => format!("this worker no longer gives {} to tasks", story.names(&withdrawn)),
    };
    let why: Vec<String> = [why, gone].into_iter().filter(|part| !part.is_empty()).collect();
    Refusal::new(format!(
        "the container's lease of GPU {} has ended, and it can't have it again: {}{}. Run the build again, or try later",
        story.names(lacking),
        why.join("; "),
        story.sick(lacking)
    ))
}

/// `3m10s`
pub fn span(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s}s"),
        (0, 0, m, s) => format!("{m}m{s}s"),
        (0, h, m, _) => format!("{h}h{m}m"),
        (d, h, ..) => format!("{d}d{h}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci::devices::Vendor;
    use std::path::PathBuf;

    #[test]
    fn a_lease_that_has_ended() {
        let unit = |id: &str, name: &str| Unit::new(Vendor::Nvidia, id, &[name]);
        let units = [unit("GPU-a", "0"), unit("GPU-b", "1")];
        let me = Proc { pid: 0, start: 0, namespace: 0 };
        let mut table = Table::new("");
        table.leases.push(Lease {
            id: "c".into(),
            bundle: PathBuf::new(),
            units: vec!["GPU-b".into()],
            nodes: BTreeMap::new(),
            since: 0,
            movers: vec![],
            inside: None,
            suspect: false,
        });
        let said = |units: &[&Unit], lacking: &[&str]| {
            let story = Story { table: &table, units, sick: BTreeMap::new(), me, now: 5000 };
            lapsed(&lacking.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>(), &story).to_string()
        };
        let all: Vec<&Unit> = units.iter().collect();
        for (units, lacking, why) in [
            (
                &all[..],
                vec!["GPU-a"],
                "GPU 0 (GPU-a) has ended, and it can't have it again: tasks in line wait for",
            ),
            (&all[..], vec!["GPU-b"], "can't have it again: container c has 1 (GPU-b) for 5s. Run"),
            (&all[..], vec!["GPU-x"], "can't have it again: this worker no longer gives GPU-x to tasks. Run"),
            (
                &all[..],
                vec!["GPU-b", "GPU-x"],
                "1 (GPU-b) for 5s; this worker no longer gives GPU-x to tasks. Run",
            ),
            (&[], vec!["GPU-a"], "this worker has no list of GPUs at the moment. Run"),
        ] {
            let said = said(units, &lacking);
            assert!(said.starts_with("the container's lease of GPU ") && said.contains(why), "{said}");
        }
    }
}
