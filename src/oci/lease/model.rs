//! The rules of leases, as a state machine over the table (PURE).
//!
//! Whether a lease is valid is never stored: [`World`] says what lives, and each operation begins by dropping what does
//! not. So a crash between any two operations leaves nothing to repair. Each operation is one step under the lock.
//!
//! ```text
//!          ask ──────────────> held: its creator lives
//!   none <──┘ └─> waiting ──────┘ │ creator has ended         enter: a process is on its way in, or is inside
//!     ↑                           └─> fresh ────────────────> held ──> lapsed: nobody is inside ──> held, or refused
//!     └── the creator died, or nobody entered in time ──┘
//! ```

use super::choice::{Place, choose};
use super::place::overlap;
use crate::oci::devices::Unit;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The format that this program writes, and the only one that it reads.
pub const FORMAT: u32 = 1;

/// A process, for ever: a number alone is given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Proc {
    /// Its number.
    pub pid: i32,
    /// When it was started: clock ticks after boot, field 22 of `/proc/<pid>/stat`.
    pub start: u64,
    /// The pid namespace in which it has that number: inode of `/proc/<pid>/ns/pid`.
    pub namespace: u64,
}

/// Where the processes of a container are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Inside {
    /// Its init, which uses nothing.
    pub init: Proc,
    /// Directory of its cgroup.
    pub cgroup: PathBuf,
}

/// Units that a container has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// The container.
    pub id: String,
    /// Its bundle.
    pub bundle: PathBuf,
    /// Ids of the units.
    pub units: Vec<String>,
    /// Of each of them that has some, the nodes by which it is told from others. A GPU may have been split since, or been put
    /// together again: then other ids are of the same one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, Vec<String>>,
    /// Since when: milliseconds after boot.
    pub since: u64,
    /// Those that make the container, or enter it: `runc`, until it has ended.
    pub movers: Vec<Proc>,
    /// Known since a process first entered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<Inside>,
    /// Found after the table was lost. It keeps others away, for one may be on its way in that nobody knows of; a right to
    /// enter it gives while it is in use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspect: bool,
}

/// So many of these units.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ask {
    /// Ids of the units that would do.
    pub units: Vec<String>,
    /// How many of them, all at once.
    pub count: usize,
    /// Where not so many are in order, all that are will do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub or_fewer: bool,
}

/// A task that waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Waiter {
    /// Who waits.
    pub caller: Caller,
    /// For what.
    pub ask: Ask,
}

/// Who asks: a process that makes a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Caller {
    /// The container.
    pub id: String,
    /// Its bundle.
    pub bundle: PathBuf,
    /// The process.
    pub me: Proc,
    /// When it asked: milliseconds after boot.
    pub since: u64,
}

/// Who has what, and who waits, first come first.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Table {
    /// See [`FORMAT`].
    pub format: u32,
    /// The boot that it is of: `/proc/sys/kernel/random/boot_id`.
    pub boot: String,
    /// Valid, or ended and not yet dropped.
    pub leases: Vec<Lease>,
    /// In the order in which they came.
    pub waiters: Vec<Waiter>,
    /// By unit, how many leases were given before its last one: the one that rested longest is next.
    pub last: BTreeMap<String, u64>,
    /// How many leases were given.
    pub given: u64,
}

/// What the rules have to know of the world.
pub trait World {
    /// Milliseconds after boot.
    fn now(&self) -> u64;
    /// It has not ended.
    fn lives(&self, process: &Proc) -> bool;
    /// A process other than init is in the container.
    fn inhabited(&self, inside: &Inside) -> bool;
    /// Nobody has entered the container yet, its init lives, and it is not too late.
    fn fresh(&self, lease: &Lease) -> bool;
}

/// What an asker gets to hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Ids of its units.
    Held(Vec<String>),
    /// It waits.
    Waiting,
    /// It would wait for ever: only so many of those that would do are in order.
    Impossible(usize),
    /// It neither has nor waits: the table was lost, or someone broke the lease.
    Unknown,
}

/// See [`Table::picture`].
pub type Picture = (bool, Option<Proc>, Vec<(String, u64, Vec<Proc>)>);

impl Lease {
    /// Whether it is on this unit, or on one of the same hardware.
    pub fn is_on(&self, unit: &str, nodes: &[String]) -> bool {
        let same = |id: &String| id == unit || self.nodes.get(id).is_some_and(|own| overlap(own, nodes));
        self.units.iter().any(same)
    }

    /// Whether it counts.
    pub fn valid(&self, world: &impl World) -> bool {
        self.in_use(world) || (self.suspect || self.inside.is_none()) && world.fresh(self)
    }

    /// Whether its container may be entered just so.
    fn entitles(&self, world: &impl World) -> bool {
        !self.suspect || self.in_use(world)
    }

    /// Whether a process makes the container, enters it, or is in it.
    pub fn in_use(&self, world: &impl World) -> bool {
        self.movers.iter().any(|process| world.lives(process))
            || self.inside.as_ref().is_some_and(|inside| world.inhabited(inside))
    }
}

impl Table {
    /// An empty one.
    pub fn new(boot: &str) -> Self {
        Table { format: FORMAT, boot: boot.to_owned(), ..Table::default() }
    }

    /// Asks for units for a container that is made; who has to wait stands in line from now on.
    pub fn ask(&mut self, caller: &Caller, ask: &Ask, world: &impl World, places: &[Place]) -> Answer {
        // A container that is made anew has the right of a known one only if that was given by the rules.
        self.leases.retain(|lease| lease.id != caller.id || lease.entitles(world));
        if let Err(sound) = needed(ask, places) {
            self.settle(world, places);
            return Answer::Impossible(sound);
        }
        // After the table was lost they come back in any order: each has the place of its first asking.
        let later = self.waiters.iter().position(|waiter| waiter.caller.since > caller.since);
        let waiter = Waiter { caller: caller.clone(), ask: ask.clone() };
        self.waiters.insert(later.unwrap_or(self.waiters.len()), waiter);
        self.look(&caller.id, &caller.me, world, places)
    }

    /// Serves whoever can be served, and tells one of the askers how it stands.
    pub fn look(&mut self, id: &str, me: &Proc, world: &impl World, places: &[Place]) -> Answer {
        self.settle(world, places);
        if let Some(units) = self.held(id, me) {
            return Answer::Held(units);
        }
        self.close_up(me, world);
        match self.waiters.iter().find(|waiter| waiter.caller.me == *me) {
            None => Answer::Unknown,
            Some(waiter) => needed(&waiter.ask, places).map_or_else(Answer::Impossible, |_| Answer::Waiting),
        }
    }

    /// No longer waits, and has nothing.
    pub fn leave(&mut self, id: &str, me: &Proc, world: &impl World, places: &[Place]) {
        self.waiters.retain(|waiter| waiter.caller.me != *me);
        for lease in self.leases.iter_mut().filter(|lease| lease.id == id) {
            lease.movers.retain(|process| process != me);
        }
        self.settle(world, places);
    }

    /// Lets a process into a container that was given `units` when it was made. Where they have lapsed it takes the same
    /// ones again.
    ///
    /// # Errors
    /// Units that it can't have: others have them, wait for them, or they are out of order.
    pub fn enter(
        &mut self,
        caller: &Caller,
        units: &[String],
        inside: Inside,
        world: &impl World,
        places: &[Place],
    ) -> Result<(), Vec<String>> {
        self.settle(world, places);
        let own = |lease: &Lease| lease.id == caller.id;
        let entitled = |lease: &&mut Lease| own(lease) && lease.entitles(world) && lease.units == units;
        if let Some(lease) = self.leases.iter_mut().find(entitled) {
            lease.movers.push(caller.me);
            lease.inside = Some(inside);
            return Ok(());
        }
        let suspect = self.leases.iter().any(|lease| own(lease) && lease.suspect);
        let mut others = self.clone();
        others.leases.retain(|lease| !own(lease));
        let reserved = others.reserved(places);
        let can = |id: &String| {
            let place = places.iter().find(|place| place.id == *id);
            place.is_some_and(|place| !place.sick && others.spare(place) > count(&reserved, id))
        };
        let lacking: Vec<String> = units.iter().filter(|id| !can(id)).cloned().collect();
        if !lacking.is_empty() {
            return Err(lacking);
        }
        self.leases = others.leases;
        self.give(caller, units.to_vec(), Some(inside), world.now(), places);
        // One that was on its way when the table was lost is still not known of.
        self.leases.iter_mut().filter(|lease| own(lease)).for_each(|lease| lease.suspect = suspect);
        Ok(())
    }

    /// Takes a unit from containers that don't use it.
    ///
    /// # Errors
    /// Those that do.
    pub fn take_back(&mut self, unit: &str, world: &impl World) -> Result<Vec<Lease>, Vec<Lease>> {
        self.drop_ended(world);
        let has = |lease: &Lease| lease.units.iter().any(|id| id == unit);
        let using: Vec<Lease> = self.leases.iter().filter(|l| has(l) && l.in_use(world)).cloned().collect();
        if !using.is_empty() {
            return Err(using);
        }
        let (broken, kept) = std::mem::take(&mut self.leases).into_iter().partition(has);
        self.leases = kept;
        Ok(broken)
    }

    /// Units that containers have, and that are none of these.
    pub fn withdrawn(&self, units: &[Unit]) -> BTreeSet<String> {
        let ids = self.leases.iter().flat_map(|lease| &lease.units);
        ids.filter(|id| units.iter().all(|unit| unit.id != **id)).cloned().collect()
    }

    /// Drops what has ended.
    pub fn drop_ended(&mut self, world: &impl World) {
        self.drop_ended_leases(world);
        self.waiters.retain(|waiter| world.lives(&waiter.caller.me));
    }

    fn drop_ended_leases(&mut self, world: &impl World) {
        self.leases.retain(|lease| lease.valid(world));
        for lease in &mut self.leases {
            lease.movers.retain(|process| world.lives(process));
        }
    }

    /// Drops what has ended, and serves whoever can be served, in order. One that can't keeps what it waits for from those
    /// that came later. Once nothing is left to give, nobody asks whether the rest of a long line lives.
    fn settle(&mut self, world: &impl World, places: &[Place]) {
        self.drop_ended_leases(world);
        // Found after the table was lost: what a container's note does not say, the list of units does.
        for lease in self.leases.iter_mut().filter(|lease| lease.nodes.is_empty()) {
            lease.nodes = nodes_of(&lease.units, places);
        }
        let mut reserved = BTreeMap::new();
        for waiter in std::mem::take(&mut self.waiters) {
            let same = |lease: &Lease| lease.id == waiter.caller.id && lease.entitles(world);
            let own = self.leases.iter().position(same);
            let left = |place: &&Place| !place.sick && self.spare(place) > count(&reserved, &place.id);
            let free: Vec<&Place> = places.iter().filter(left).collect();
            if own.is_none() && free.is_empty() {
                self.waiters.push(waiter);
                continue;
            }
            if !world.lives(&waiter.caller.me) {
                continue;
            }
            // A second `create` of the same container.
            if let Some(lease) = own.and_then(|at| self.leases.get_mut(at)) {
                lease.movers.push(waiter.caller.me);
                continue;
            }
            let would_do = free.into_iter().filter(|place| waiter.ask.units.contains(&place.id));
            let free: Vec<(&Place, u32, u64)> =
                would_do.map(|place| (place, self.holders(place), count(&self.last, &place.id))).collect();
            match needed(&waiter.ask, places).ok().and_then(|count| choose(&free, count)) {
                Some(units) => self.give(&waiter.caller, units, None, world.now(), places),
                None => {
                    reserve(&mut reserved, &waiter.ask, places);
                    self.waiters.push(waiter);
                }
            }
        }
    }

    /// Drops those who died right before one in line: it stands behind one that lives.
    fn close_up(&mut self, me: &Proc, world: &impl World) {
        while let Some(at) = self.waiters.iter().position(|waiter| waiter.caller.me == *me)
            && let Some(before) = at.checked_sub(1)
            && !world.lives(&self.waiters[before].caller.me)
        {
            self.waiters.remove(before);
        }
    }

    /// What of the table matters to one in line: whether it stands there; who stands before it; and for the first one, who
    /// has units, and who is on the way to them: their end is what it waits for.
    pub fn picture(&self, me: &Proc) -> Picture {
        let place = self.waiters.iter().position(|waiter| waiter.caller.me == *me);
        let before = place.and_then(|at| at.checked_sub(1)).map(|at| self.waiters[at].caller.me);
        let holders = match place {
            Some(0) => self.leases.iter().map(|l| (l.id.clone(), l.since, l.movers.clone())).collect(),
            _ => vec![],
        };
        (place.is_some(), before, holders)
    }

    /// Its units, if it has some.
    pub fn held(&self, id: &str, me: &Proc) -> Option<Vec<String>> {
        let lease = self.leases.iter().find(|lease| lease.id == id && lease.movers.contains(me));
        lease.map(|lease| lease.units.clone())
    }

    fn give(
        &mut self,
        caller: &Caller,
        units: Vec<String>,
        inside: Option<Inside>,
        since: u64,
        places: &[Place],
    ) {
        self.given += 1;
        for unit in &units {
            self.last.insert(unit.clone(), self.given);
        }
        let Caller { id, bundle, me, .. } = caller.clone();
        let nodes = nodes_of(&units, places);
        self.leases.push(Lease { id, bundle, units, nodes, since, movers: vec![me], inside, suspect: false });
    }

    fn holders(&self, place: &Place) -> u32 {
        let has = self.leases.iter().filter(|lease| lease.is_on(&place.id, &place.nodes)).count();
        u32::try_from(has).unwrap_or(u32::MAX)
    }

    /// How many more containers may have it.
    pub fn spare(&self, place: &Place) -> u64 {
        place.replicas.saturating_sub(self.holders(place)).into()
    }

    /// By unit, how many of those in line wait for it.
    fn reserved(&self, places: &[Place]) -> BTreeMap<String, u64> {
        let mut reserved = BTreeMap::new();
        self.waiters.iter().for_each(|waiter| reserve(&mut reserved, &waiter.ask, places));
        reserved
    }
}

fn reserve(reserved: &mut BTreeMap<String, u64>, ask: &Ask, places: &[Place]) {
    // Who will be refused keeps nobody waiting.
    if needed(ask, places).is_ok() {
        ask.units.iter().for_each(|unit| *reserved.entry(unit.clone()).or_default() += 1);
    }
}

fn nodes_of(units: &[String], places: &[Place]) -> BTreeMap<String, Vec<String>> {
    let known = places.iter().filter(|place| units.contains(&place.id) && !place.nodes.is_empty());
    known.map(|place| (place.id.clone(), place.nodes.clone())).collect()
}

fn count(counts: &BTreeMap<String, u64>, unit: &str) -> u64 {
    counts.get(unit).copied().unwrap_or(0)
}

/// How many it is to get; or how many of the units are in order, if that is too few even with nobody else on the worker.
fn needed(ask: &Ask, places: &[Place]) -> Result<usize, usize> {
    let sound = places.iter().filter(|place| !place.sick && ask.units.contains(&place.id)).count();
    match sound {
        _ if sound >= ask.count => Ok(ask.count),
        1.. if ask.or_fewer => Ok(sound),
        _ => Err(sound),
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
