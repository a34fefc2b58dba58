//! Exclusive GPUs: a container has units of its own for as long as a process of it can use them.
//!
//! There is no daemon and nobody who gives units back. A lease is a line in a table ([`table`]) in memory that counts only
//! while somebody lives who uses it: the runc that makes the container or enters it, or a process inside besides init
//! ([`live`]). The rules are a state machine without side effects ([`model`], [`choice`]); each call of the wrapper takes one
//! step of it under a lock. What makes it safe is the door: a process gets into a container by `runc exec` alone, and
//! that asks here first.
//!
//! ```text
//! create ─ take ─┬─ free: noted in the table ──────────────────> devices of these units ─> runc
//!                └─ not free: in line ─ wait ─┬─ served ───────┘
//!                                             └─ too late, or never: refused, with who has what since when
//! exec ── enter ─┬─ its lease counts, or its units are free: noted ─> runc
//!                └─ others have them: refused
//! ```

pub mod choice;
pub mod command;
pub mod health;
pub mod live;
pub mod model;
pub mod place;
pub mod rebuild;
pub mod say;
pub mod shown;
pub mod table;
pub mod wait;

use super::devices::Unit;
use super::policy::Leases;
use super::{Refusal, next, report, said};
use choice::Place;
use live::Kernel;
use model::{Answer, Ask, Caller, Table};
use say::Story;
use std::path::Path;
use table::{Locked, Stored};
use wait::Watch;

/// What a task asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// As its author wrote it: `GPU_COUNT=1`.
    pub asked: String,
    /// So many of these.
    pub ask: Ask,
    /// It said nothing: where no unit is in order it runs without.
    pub or_none: bool,
}

/// A lease table, as one call of the wrapper uses it.
#[derive(Debug)]
struct Desk<'a> {
    rules: &'a Leases,
    /// As the policy has it now: it may have changed while we waited, and who looks serves others too.
    replicas: u32,
    units: &'a [&'a Unit],
    kernel: Kernel,
    boot: String,
    caller: Caller,
}

/// Takes units for a container that is made, and waits for them. Returns their ids, none where it may run without and
/// none is in order.
///
/// # Errors
/// It can't have them; the sentence is for the author of the pipeline.
pub fn take(rules: &Leases, units: &[&Unit], bundle: &Path, demand: &Demand) -> Result<Vec<String>, Refusal> {
    let mut desk = Desk::new(rules, units, bundle).map_err(|why| unusable(&why))?;
    let wait = rules.wait_s.min(Leases::MAX_WAIT);
    let (start, mut watch, mut again) = (desk.kernel.now, None, 0);
    let deadline = start.saturating_add(wait.saturating_mul(1000));
    let (mut answer, mut table) = desk.ask(&demand.ask)?;
    loop {
        match answer {
            Answer::Held(units) => return Ok(units),
            Answer::Impossible(sound) => {
                desk.leave()?;
                if demand.or_none {
                    report::journal("a task that says nothing about GPUs runs without: none is in order");
                    return Ok(vec![]);
                }
                return Err(say::impossible(demand, sound, &desk.story(&table)));
            }
            Answer::Unknown if again < 8 => {
                again += 1;
                (answer, table) = desk.ask(&demand.ask)?;
                continue;
            }
            Answer::Unknown => return Err(unusable("it is lost again and again")),
            Answer::Waiting => {}
        }
        if live::now() >= deadline {
            desk.leave()?;
            return Err(say::too_late(demand, wait, &desk.story(&table)));
        }
        // The first sleep is none: what happened before the watch began is looked at once more.
        if let Some(watch) = &mut watch {
            let slept = Watch::sleep(watch, &table, &desk.kernel, deadline);
            if slept.is_err() {
                desk.leave()?;
                return Err(Refusal::new("the program that waited for the container has ended"));
            }
        } else {
            watch = Some(Watch::new(&rules.dir, desk.caller.me, &desk.boot));
        }
        // Whoever served us stored it: no lock is needed to believe it.
        if let Stored::Table(now) = table::load(&rules.dir, &desk.boot)
            && let Some(units) = now.held(&desk.caller.id, &desk.caller.me)
        {
            return Ok(units);
        }
        (answer, table) = desk.look()?;
    }
}

/// Lets a process into a container that was given `units` when it was made.
///
/// # Errors
/// They have lapsed, and it can't have them again; the sentence is for who starts the process.
pub fn enter(rules: &Leases, all: &[&Unit], bundle: &Path, units: &[String]) -> Result<(), Refusal> {
    let mut desk = Desk::new(rules, all, bundle).map_err(|why| unusable(&why))?;
    let inside = desk.kernel.inside(&desk.caller.bundle, &desk.caller.id);
    let inside =
        inside.map_err(|e| unusable(&format!("where the container's processes are: {}", said(&e))))?;
    let Some(inside) = inside else {
        return Err(Refusal::new(
            "the container's cgroup can't be found by the init.pid in its bundle, so its GPUs can't be kept for it: its \
             init may have ended; run the build again",
        ));
    };
    let (caller, places) = (desk.caller.clone(), desk.places());
    let (entered, table) = desk.step(|table, kernel| table.enter(&caller, units, inside, kernel, &places))?;
    entered.map_err(|lacking| say::lapsed(&lacking, &desk.story(&table)))
}

fn unusable(why: &str) -> Refusal {
    Refusal::new(format!("the worker's lease table can't be used ({why}): tell its operator"))
}

impl<'a> Desk<'a> {
    fn new(rules: &'a Leases, units: &'a [&'a Unit], bundle: &Path) -> Result<Self, String> {
        let broken = |what: &'static str| move |e: std::io::Error| format!("{what}: {}", said(&e));
        let here = Kernel::here().map_err(broken("/proc"))?;
        let kernel = Kernel { bundles: rules.bundles.clone(), ..here };
        let boot = kernel.boot().map_err(broken("/proc/sys/kernel/random/boot_id"))?;
        let bundle = bundle.canonicalize().map_err(broken("the bundle"))?;
        let id = bundle.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let pid = i32::try_from(std::process::id()).unwrap_or(0);
        let me = kernel.process(pid).map_err(broken("/proc"))?.ok_or("/proc does not show this process")?;
        let caller = Caller { id, bundle, me, since: kernel.now };
        Ok(Desk { rules, replicas: rules.replicas, units, kernel, boot, caller })
    }

    /// One step of the rules under the lock. What it answers counts only once it is stored.
    fn step<T>(&mut self, step: impl FnOnce(&mut Table, &Kernel) -> T) -> Result<(T, Table), Refusal> {
        let locked = Locked::open(&self.rules.dir).map_err(|why| unusable(&why))?;
        self.kernel.now = live::now();
        let before = locked.load(&self.boot);
        let mut table = match &before {
            Stored::Table(table) => table.clone(),
            Stored::Lost(why) => {
                let table = rebuild::rebuild(self.caller.bundle.parent(), &self.kernel, &self.boot);
                let table = table.map_err(|e| unusable(&format!("{why}; it can't be put together: {e}")))?;
                wait::sweep(&self.rules.dir, &self.kernel);
                // After a boot there is none, and nothing to say.
                if !table.leases.is_empty() || self.rules.dir.join(table::TABLE).exists() {
                    report::journal(&format!("the lease table was put together from the containers: {why}"));
                }
                table
            }
            Stored::Unreadable(why) => return Err(unusable(why)),
        };
        let answer = step(&mut table, &self.kernel);
        if before != Stored::Table(table.clone()) {
            locked.store(&table).map_err(|why| unusable(&why))?;
        }
        drop(locked);
        if let Stored::Table(before) = &before {
            wait::ring(&self.rules.dir, before, &table, &self.kernel);
        }
        Ok((answer, table))
    }

    fn ask(&mut self, ask: &Ask) -> Result<(Answer, Table), Refusal> {
        let (caller, places) = (self.caller.clone(), self.places());
        self.step(|table, kernel| table.ask(&caller, ask, kernel, &places))
    }

    fn look(&mut self) -> Result<(Answer, Table), Refusal> {
        self.ask_policy();
        let (caller, places) = (self.caller.clone(), self.places());
        self.step(|table, kernel| table.look(&caller.id, &caller.me, kernel, &places))
    }

    fn leave(&mut self) -> Result<(), Refusal> {
        self.ask_policy();
        let (caller, places) = (self.caller.clone(), self.places());
        self.step(|table, kernel| table.leave(&caller.id, &caller.me, kernel, &places)).map(drop)
    }

    fn ask_policy(&mut self) {
        let policy = next::policy(&next::policy_path()).ok();
        self.replicas = policy.and_then(|policy| policy.gpus).map_or(self.replicas, |g| g.leases.replicas);
    }

    fn places(&self) -> Vec<Place> {
        let sick = health::sick(&self.rules.dir);
        let place = |unit: &&Unit| Place {
            id: unit.id.clone(),
            memory_mib: unit.memory_mib.unwrap_or(0),
            groups: place::groups(unit),
            nodes: place::nodes(unit),
            replicas: self.replicas.max(1),
            sick: sick.contains_key(&unit.id),
        };
        self.units.iter().map(place).collect()
    }

    fn story<'s>(&'s self, table: &'s Table) -> Story<'s> {
        Story {
            table,
            units: self.units,
            sick: health::sick(&self.rules.dir),
            me: self.caller.me,
            now: live::now(),
        }
    }
}
