//! The states of a few containers, one after the other until there is no new one.

use super::*;
use proptest::prelude::*;
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashSet, VecDeque};
use std::hash::{Hash, Hasher};

fn explore(case: &Case, losses: u8) -> usize {
    let key = |sim: &Sim| {
        let hash = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, sim).hash(&mut hasher);
            hasher.finish()
        };
        (hash(0), hash(1))
    };
    let start = Sim { losses, ..Sim::new(case) };
    let mut seen = HashSet::from([key(&start)]);
    let mut todo = VecDeque::from([start]);
    while let Some(sim) = todo.pop_front() {
        for (name, next) in sim.next(case) {
            if losses == 0 {
                next.check_line(&sim, case);
            }
            let next = next.normal();
            if seen.insert(key(&next)) {
                let tried = std::panic::catch_unwind(|| next.check(case));
                assert!(tried.is_ok(), "{name}: from {sim:#?} to {next:#?}");
                todo.push_back(next);
            }
        }
    }
    println!("{} states", seen.len());
    seen.len()
}

fn places(count: usize, replicas: u32) -> Vec<Place> {
    let place = |at: usize| Place {
        id: at.to_string(),
        memory_mib: 0,
        groups: [None, Some(0)],
        nodes: vec![],
        replicas,
        sick: false,
    };
    (0..count).map(place).collect()
}

fn ask(count: usize, units: &[&str]) -> Ask {
    Ask { units: units.iter().map(|id| (*id).to_owned()).collect(), count, or_fewer: false }
}

#[test]
fn four_containers_on_three_units() {
    let all = ["0", "1", "2"];
    let asks = vec![ask(1, &all), ask(2, &all), ask(1, &["0"]), ask(3, &all)];
    let case = Case { fine: false, asks, starts: vec![2, 2, 1, 1], places: places(3, 1) };
    let states = explore(&case, 0);
    assert!(states > 10_000, "{states}");
}

#[test]
fn containers_that_are_entered_and_made_again() {
    let asks = vec![ask(1, &["0", "1"]), ask(1, &["0", "1"]), ask(2, &["0", "1"])];
    let case = Case { fine: false, asks, starts: vec![3, 3, 2], places: places(2, 1) };
    let states = explore(&case, 0);
    assert!(states > 10_000, "{states}");
}

#[test]
fn a_table_that_is_lost_gives_no_unit_twice() {
    let asks = vec![ask(1, &["0", "1"]), ask(1, &["0", "1"]), ask(2, &["0", "1"])];
    let case = Case { fine: true, asks, starts: vec![2, 2, 1], places: places(2, 1) };
    let states = explore(&case, 1);
    assert!(states > 10_000, "{states}");
}

#[test]
fn replicas_are_shared_by_so_many() {
    let asks = vec![ask(1, &["0", "1"]), ask(1, &["0"]), ask(2, &["0", "1"]), ask(1, &["0", "1"])];
    let case = Case { fine: false, asks, starts: vec![2, 2, 1, 1], places: places(2, 2) };
    let states = explore(&case, 0);
    assert!(states > 10_000, "{states}");
}

#[test]
fn all_are_those_in_order() {
    let all = |count| Ask { or_fewer: true, ..ask(count, &["0", "1", "2"]) };
    let asks = [all(3), ask(1, &["0", "1", "2"]), all(2), ask(2, &["0", "1"])];
    let mut places = places(3, 1);
    places[1].sick = true;
    let mut table = Table::new("");
    let world = vec![Container { runcs: vec![(0, Phase::Waits)], ..Container::default() }; 4];
    let two = Answer::Held(vec!["0".to_owned(), "2".to_owned()]);
    assert_eq!(table.ask(&caller(0, 0), &asks[0], &world, &places), two);
    assert_eq!(table.ask(&caller(1, 0), &asks[3], &world, &places), Answer::Impossible(1));
    // It got well, or the others fell ill, while one waits: that changes what it waits for.
    assert_eq!(table.ask(&caller(2, 0), &asks[0], &world, &places), Answer::Waiting);
    places.iter_mut().for_each(|place| place.sick = true);
    assert_eq!(table.look("2", &process(2, 0), &world, &places), Answer::Impossible(0));
    places[1].sick = false;
    assert_eq!(table.look("2", &process(2, 0), &world, &places), Answer::Held(vec!["1".to_owned()]));
    places[2].sick = false;
    let case = Case { fine: false, asks: asks[..3].to_vec(), starts: vec![2, 2, 1], places };
    let states = explore(&case, 0);
    assert!(states > 1_000, "{states}");
}

#[test]
fn a_gpu_that_was_split_is_not_given_in_parts_while_someone_has_the_whole() {
    let place = |id: &str, nodes: &[&str]| Place {
        id: id.into(),
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        ..places(1, 1).remove(0)
    };
    let whole = [place("GPU-a", &["nvidia0"]), place("GPU-b", &["nvidia1"])];
    let parts = [
        place("MIG-a1", &["nvidia-cap12", "nvidia0"]),
        place("MIG-a2", &["nvidia-cap21", "nvidia0"]),
        place("GPU-b", &["nvidia1"]),
    ];
    let mut world = vec![Container { runcs: vec![(0, Phase::Waits)], ..Container::default() }; 4];
    let held = |id: &str| Answer::Held(vec![id.to_owned()]);
    let mut table = Table::new("");
    assert_eq!(table.ask(&caller(0, 0), &ask(1, &["GPU-a"]), &world, &whole), held("GPU-a"));
    // As after the table was lost.
    table.leases[0].nodes.clear();
    table.leave("none", &process(3, 9), &world, &whole);
    let any = ask(1, &["MIG-a1", "MIG-a2", "GPU-b"]);
    assert_eq!(table.ask(&caller(1, 0), &any, &world, &parts), held("GPU-b"));
    assert_eq!(table.ask(&caller(2, 0), &any, &world, &parts), Answer::Waiting);
    world[0].runcs.clear();
    assert_eq!(table.look("2", &process(2, 0), &world, &parts), held("MIG-a1"));
    assert_eq!(table.ask(&caller(3, 0), &any, &world, &parts), held("MIG-a2"));
    // And whoever comes back to the whole one finds it taken.
    world[0].runcs.push((1, Phase::Enters));
    let entered = |table: &mut Table, world: &Vec<Container>| {
        table.enter(&caller(0, 1), &["GPU-a".to_owned()], inside(0), world, &whole)
    };
    assert_eq!(entered(&mut table, &world), Err(vec!["GPU-a".to_owned()]));
    (world[2].runcs, world[3].runcs) = (vec![], vec![]);
    assert_eq!(entered(&mut table, &world), Ok(()));
}

#[test]
fn a_line_that_was_lost_forms_again_as_it_was() {
    let world = vec![Container { runcs: vec![(0, Phase::Waits)], ..Container::default() }; 4];
    let (places, mut table) = (places(1, 1), Table::new(""));
    for at in [0, 3, 1, 2] {
        let caller = Caller { since: at as u64, ..caller(at, 0) };
        let _ = table.ask(&caller, &ask(1, &["0"]), &world, &places);
    }
    let line: Vec<u64> = table.waiters.iter().map(|waiter| waiter.caller.since).collect();
    assert_eq!(line, [1, 2, 3]);
}

#[test]
fn who_comes_on_the_way_to_units_is_news_to_the_first_in_line() {
    let mut world = vec![Container::default(); 3];
    let (places, mut table) = (places(1, 1), Table::new(""));
    (0..3).for_each(|at| world[at].runcs.push((0, Phase::Waits)));
    let asked = [0, 1, 2].map(|at| table.ask(&caller(at, 0), &ask(1, &["0"]), &world, &places));
    assert_eq!(asked, [Answer::Held(vec!["0".into()]), Answer::Waiting, Answer::Waiting]);
    // Made: now its init is what there is to watch.
    world[0].runcs.clear();
    world[0].init = true;
    let _ = table.look("1", &process(1, 0), &world, &places);
    let before = [1, 2].map(|at| table.picture(&process(at, 0)));
    // Entered: from now on it is the one who enters, and then who is inside.
    world[0].runcs.push((1, Phase::Enters));
    table.enter(&caller(0, 1), &["0".to_owned()], inside(0), &world, &places).unwrap();
    let after = [1, 2].map(|at| table.picture(&process(at, 0)));
    assert_ne!(before[0], after[0]);
    assert_eq!(before[1], after[1]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// More of everything than can be explored: a long way through it, at random.
    #[test]
    fn random_histories(
        units in 1..6usize,
        replicas in 1..4u32,
        wants in prop::collection::vec((any::<u8>(), 1..4usize), 1..9),
        steps in prop::collection::vec(any::<prop::sample::Index>(), 1..120),
        losses in 0..2u8,
    ) {
        let ask = |(mask, count): &(u8, usize)| {
            let all: Vec<String> = (0..units).map(|at| at.to_string()).collect();
            let some: Vec<String> = (0..units).filter(|at| mask & (1 << at) != 0).map(|at| at.to_string()).collect();
            let units = if some.is_empty() { all } else { some };
            Ask { count: units.len().min(*count), units, or_fewer: false }
        };
        let asks: Vec<Ask> = wants.iter().map(ask).collect();
        let starts = vec![9; asks.len()];
        let case = Case { fine: true, asks, starts, places: places(units, replicas) };
        let mut sim = Sim { losses, ..Sim::new(&case) };
        for step in steps {
            let next = sim.next(&case);
            if next.is_empty() {
                break;
            }
            let (_, next) = step.get(&next).clone();
            next.check(&case);
            if losses == 0 {
                next.check_line(&sim, &case);
            }
            sim = next;
        }
    }
}
