use super::*;
use proptest::prelude::*;

fn place(id: &str, memory_mib: u64, group: u64) -> Place {
    Place { id: id.into(), memory_mib, groups: [None, Some(group)], nodes: vec![], replicas: 1, sick: false }
}

fn chosen(free: &[(Place, u32, u64)], count: usize) -> Option<String> {
    let free: Vec<_> = free.iter().map(|(place, holders, last)| (place, *holders, *last)).collect();
    choose(&free, count).map(|ids| ids.join(" "))
}

#[test]
fn the_smallest_the_least_shared_the_longest_at_rest() {
    let of = |a, b, c| vec![(place("a", a, 0), 0, 9), (place("b", b, 0), 0, 5), (place("c", c, 0), 0, 7)];
    assert_eq!(chosen(&of(80, 40, 24), 1).unwrap(), "c");
    assert_eq!(chosen(&of(80, 24, 24), 1).unwrap(), "b", "it rested longest");
    assert_eq!(chosen(&of(80, 24, 24), 2).unwrap(), "b c");
    assert_eq!(chosen(&of(1, 1, 1), 3).unwrap(), "a b c");
    assert_eq!(chosen(&of(1, 1, 1), 4), None, "all or nothing");
    let shared = [(place("a", 24, 0), 1, 0), (place("b", 24, 0), 0, 9), (place("c", 80, 0), 0, 0)];
    assert_eq!(chosen(&shared, 1).unwrap(), "b", "nobody else has it");
}

#[test]
fn several_are_close_to_each_other() {
    let free = [
        (place("a", 24, 1), 0, 0),
        (place("b", 24, 2), 0, 9),
        (place("c", 80, 1), 0, 0),
        (place("d", 24, 2), 0, 9),
    ];
    assert_eq!(chosen(&free, 2).unwrap(), "b d", "one node, and small");
    assert_eq!(chosen(&free, 3).unwrap(), "a b d", "no node has three");
}

#[test]
fn nvlink_is_closer_than_a_node() {
    let linked =
        |id: &str, link: Option<u64>, node: u64| Place { groups: [link, Some(node)], ..place(id, 24, 0) };
    let free = [
        (linked("a", None, 1), 0, 0),
        (linked("b", Some(7), 1), 0, 9),
        (linked("c", None, 1), 0, 0),
        (linked("d", Some(7), 2), 0, 9),
    ];
    assert_eq!(chosen(&free, 2).unwrap(), "b d", "though of two nodes, and used last");
    assert_eq!(chosen(&free, 3).unwrap(), "a b c", "one node: no link reaches three");
    assert_eq!(chosen(&free, 1).unwrap(), "a", "one alone needs no link");
}

proptest! {
    #[test]
    fn as_many_as_asked_each_once(
        all in prop::collection::vec((0..3u64, 0..3u64, 0..3u32, 0..9u64), 0..9), count in 0..10usize
    ) {
        let free: Vec<_> = all.iter().enumerate()
            .map(|(at, (memory, group, holders, last))| (place(&at.to_string(), *memory, *group), *holders, *last))
            .collect();
        let free: Vec<_> = free.iter().map(|(place, holders, last)| (place, *holders, *last)).collect();
        match choose(&free, count) {
            None => prop_assert!(free.len() < count),
            Some(ids) => {
                let mut once = ids.clone();
                once.dedup();
                prop_assert_eq!(once.len(), count);
                prop_assert!(ids.iter().all(|id| free.iter().any(|(place, ..)| place.id == *id)));
            }
        }
    }
}
