//! Every state that a few containers can get into, with a crash at each step.

use super::*;
use std::hash::Hash;

/// What a wrapper, or the runc that it became, is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    Waits,
    /// Has units, which the bundle does not say yet.
    Took,
    Noted,
    /// Was let in.
    Enters,
    /// Its process is inside, itself not yet gone.
    Entered,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Container {
    /// Processes outside of it, each with its number.
    runcs: Vec<(u64, Phase)>,
    started: u64,
    init: bool,
    users: u8,
    noted: Vec<String>,
    /// Too late for its first process.
    late: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sim {
    table: Table,
    containers: Vec<Container>,
    losses: u8,
}

struct Case {
    /// In smaller steps. Those left out are as good as others: to give up is to be killed while nobody has come since, and
    /// what is between two steps matters only when the table is lost there.
    fine: bool,
    asks: Vec<Ask>,
    /// How many processes may be started for each container, in all.
    starts: Vec<u64>,
    places: Vec<Place>,
}

impl World for Vec<Container> {
    fn now(&self) -> u64 {
        0
    }
    fn lives(&self, process: &Proc) -> bool {
        self[usize::try_from(process.pid).unwrap()].runcs.iter().any(|(start, _)| *start == process.start)
    }
    fn inhabited(&self, inside: &Inside) -> bool {
        self[usize::try_from(inside.init.pid).unwrap()].users > 0
    }
    fn fresh(&self, lease: &Lease) -> bool {
        let of = &self[lease.id.parse::<usize>().unwrap()];
        !of.late && (of.init || lease.suspect)
    }
}

fn process(at: usize, start: u64) -> Proc {
    Proc { pid: i32::try_from(at).unwrap(), start, namespace: 0 }
}

fn caller(at: usize, start: u64) -> Caller {
    Caller { id: at.to_string(), bundle: PathBuf::new(), me: process(at, start), since: 0 }
}

fn inside(at: usize) -> Inside {
    Inside { init: process(at, 0), cgroup: PathBuf::new() }
}

impl Sim {
    fn new(case: &Case) -> Self {
        let containers = vec![Container::default(); case.asks.len()];
        Sim { table: Table::new(""), containers, losses: 0 }
    }

    /// Everything that can happen next, with a name.
    fn next(&self, case: &Case) -> Vec<(String, Sim)> {
        let mut found = vec![];
        let mut also = |name: String, change: &dyn Fn(&mut Sim)| {
            let mut next = self.clone();
            change(&mut next);
            found.push((name, next));
        };
        for (at, of) in self.containers.iter().enumerate() {
            if of.started < case.starts[at] {
                if !of.init && of.runcs.is_empty() {
                    also(format!("create {at}"), &|next| next.create(at, case));
                }
                if of.init {
                    also(format!("exec {at}"), &|next| next.exec(at, case));
                }
            }
            for (number, (start, phase)) in of.runcs.iter().enumerate() {
                also(format!("kill {at}.{start} that {phase:?}"), &|next| {
                    next.containers[at].runcs.remove(number);
                });
                also(format!("{at}.{start} that {phase:?} goes on"), &|next| next.go_on(at, number, case));
                if *phase == Phase::Waits && case.fine {
                    also(format!("{at}.{start} has waited enough"), &|next| {
                        next.table.leave(
                            &at.to_string(),
                            &process(at, *start),
                            &next.containers,
                            &case.places,
                        );
                        next.containers[at].runcs.remove(number);
                    });
                }
            }
            if of.users > 0 {
                also(format!("a process in {at} ends"), &|next| next.containers[at].users -= 1);
            }
            if of.init {
                also(format!("init of {at} ends"), &|next| {
                    (next.containers[at].init, next.containers[at].users) = (false, 0);
                });
            }
            // Whoever is on its way when the table is lost gets there in time: it has two minutes.
            let on_its_way = case.fine && of.runcs.iter().any(|(_, phase)| *phase != Phase::Waits);
            if !of.late && !of.noted.is_empty() && !on_its_way {
                also(format!("{at} is late"), &|next| next.containers[at].late = true);
            }
        }
        if self.losses > 0 {
            also("the table is lost".to_owned(), &Sim::lose);
        }
        found
    }

    fn create(&mut self, at: usize, case: &Case) {
        let of = &mut self.containers[at];
        of.started += 1;
        of.late = false;
        of.runcs.push((of.started, Phase::Waits));
        let number = of.runcs.len() - 1;
        self.ask(at, number, case);
    }

    fn ask(&mut self, at: usize, number: usize, case: &Case) {
        let of = &self.containers[at];
        let ask = match of.noted.is_empty() {
            true => case.asks[at].clone(),
            false => Ask { units: of.noted.clone(), count: of.noted.len(), or_fewer: false },
        };
        let caller = caller(at, of.runcs[number].0);
        let answer = self.table.ask(&caller, &ask, &self.containers, &case.places);
        self.heard(at, number, answer, case);
    }

    fn heard(&mut self, at: usize, number: usize, answer: Answer, case: &Case) {
        match answer {
            Answer::Held(_) if case.fine => self.containers[at].runcs[number].1 = Phase::Took,
            Answer::Held(units) => {
                self.containers[at].noted = units;
                self.containers[at].runcs[number].1 = Phase::Noted;
            }
            Answer::Waiting => {}
            other => panic!("{other:?}"),
        }
    }

    fn exec(&mut self, at: usize, case: &Case) {
        let of = &mut self.containers[at];
        of.started += 1;
        of.runcs.push((of.started, Phase::Enters));
        let (caller, units) = (caller(at, of.started), of.noted.clone());
        if self.table.enter(&caller, &units, inside(at), &self.containers, &case.places).is_err() {
            self.containers[at].runcs.pop();
        }
    }

    fn go_on(&mut self, at: usize, number: usize, case: &Case) {
        let (start, phase) = self.containers[at].runcs[number];
        let id = at.to_string();
        match phase {
            Phase::Waits => match self.table.look(&id, &process(at, start), &self.containers, &case.places) {
                Answer::Unknown => self.ask(at, number, case),
                answer => self.heard(at, number, answer, case),
            },
            Phase::Took => {
                // As the wrapper does: what it was told, noted in the bundle.
                let answer =
                    self.table.clone().look(&id, &process(at, start), &self.containers, &case.places);
                let held = match answer {
                    Answer::Held(units) => units,
                    // The table was lost since; the wrapper does not know.
                    _ => case.asks[at].units[..case.asks[at].count].to_vec(),
                };
                let of = &mut self.containers[at];
                of.noted = if of.noted.is_empty() { held } else { of.noted.clone() };
                of.runcs[number].1 = Phase::Noted;
            }
            Phase::Noted => {
                self.containers[at].init = true;
                self.containers[at].runcs.remove(number);
            }
            // Without an init there is nothing to enter.
            Phase::Enters if !self.containers[at].init => drop(self.containers[at].runcs.remove(number)),
            Phase::Enters if !case.fine => {
                self.containers[at].users += 1;
                self.containers[at].runcs.remove(number);
            }
            Phase::Enters => {
                self.containers[at].users += 1;
                self.containers[at].runcs[number].1 = Phase::Entered;
            }
            Phase::Entered => drop(self.containers[at].runcs.remove(number)),
        }
    }

    /// As `rebuild` does it.
    fn lose(&mut self) {
        self.losses -= 1;
        self.table = Table::new("");
        for (at, of) in self.containers.iter_mut().enumerate().filter(|(_, of)| !of.noted.is_empty()) {
            of.late = false;
            let lease = Lease {
                id: at.to_string(),
                bundle: PathBuf::new(),
                units: of.noted.clone(),
                nodes: BTreeMap::new(),
                since: 0,
                movers: vec![],
                inside: of.init.then(|| inside(at)),
                suspect: true,
            };
            self.table.leases.push(lease);
        }
    }

    /// Containers with a process that can use a unit, or that is on its way in.
    fn users(&self, unit: &str) -> Vec<usize> {
        let uses = |of: &&Container| {
            let on_its_way = |(_, phase): &(u64, Phase)| *phase == Phase::Enters;
            of.noted.iter().any(|id| id == unit) && (of.users > 0 || of.runcs.iter().any(on_its_way))
        };
        let all = self.containers.iter().enumerate();
        all.filter(|(_, of)| uses(of)).map(|(at, _)| at).collect()
    }

    fn check(&self, case: &Case) {
        for place in &case.places {
            let users = self.users(&place.id);
            let most = usize::try_from(place.replicas).unwrap();
            assert!(users.len() <= most, "{} is used by {users:?}", place.id);
        }
        // Everybody who has units is done: the first in line is served.
        let mut done = self.clone();
        for (at, of) in done.containers.iter_mut().enumerate() {
            (of.users, of.late) = (0, true);
            of.runcs
                .retain(|(start, _)| self.table.waiters.iter().any(|w| w.caller.me == process(at, *start)));
        }
        let line = done.table.waiters.iter().find(|w| done.containers.lives(&w.caller.me)).cloned();
        if let Some(first) = line {
            let Caller { id, me, .. } = &first.caller;
            let answer = done.table.look(id, me, &done.containers, &case.places);
            assert!(matches!(answer, Answer::Held(_)), "the first in line hears {answer:?}");
        }
        // Nobody waits either: nothing is left.
        for of in &mut done.containers {
            of.runcs.clear();
        }
        done.table.drop_ended(&done.containers);
        assert!(done.table.leases.is_empty() && done.table.waiters.is_empty(), "a leak");
    }

    /// Whoever was served did not take what one that came before it waits for.
    fn check_line(&self, before: &Sim, case: &Case) {
        let new = |lease: &&Lease| !before.table.leases.iter().any(|old| old.id == lease.id);
        for lease in self.table.leases.iter().filter(new).filter(|lease| !lease.suspect) {
            let place = before.table.waiters.iter().position(|w| w.caller.id == lease.id);
            let earlier = &before.table.waiters[..place.unwrap_or(before.table.waiters.len())];
            for unit in &lease.units {
                let waits = |w: &&Waiter| self.table.waiters.contains(w) && w.ask.units.contains(unit);
                let wait = earlier.iter().filter(waits).count() as u64;
                let place = case.places.iter().find(|place| place.id == *unit).unwrap();
                assert!(self.table.spare(place) >= wait, "{} took {unit}, for which others wait", lease.id);
            }
        }
    }

    /// Each step begins by dropping what has ended, so states that differ in that only are one.
    fn normal(mut self) -> Self {
        self.table.drop_ended(&self.containers);
        self.table.leases.sort();
        (self.table.last, self.table.given) = (BTreeMap::new(), 0);
        self
    }
}

#[path = "model_cases.rs"]
mod cases;
