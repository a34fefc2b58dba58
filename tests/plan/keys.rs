//! Who may register: the file of the TSA, from the related units' bags.

use super::kit::unit::{KEYS, TestUnit, memory};
use concourse_ci_machine::paths;

/// Two applications with three workers; the endpoint's relations are in the order of their ids.
fn three() -> TestUnit {
    TestUnit::web().worker("worker/1", KEYS[1]).worker("gpu/0", KEYS[2]).settled()
}

fn file(unit: &TestUnit) -> Vec<&str> {
    unit.world.file(paths::AUTHORIZED_KEYS).unwrap().lines().collect()
}

fn with_file(mut unit: TestUnit, lines: &[&str]) -> TestUnit {
    let file = unit.world.machine.files.get_mut(paths::AUTHORIZED_KEYS).unwrap();
    file.text = lines.iter().map(|line| format!("{line}\n")).collect();
    unit
}

#[test]
fn keys_stand_in_the_order_of_the_units() {
    let unit = three();
    assert_eq!(file(&unit), [KEYS[2], KEYS[0], KEYS[1]]);
    assert_eq!(unit.plan(), "nothing");
}

#[test]
fn a_file_in_another_order_or_with_more_or_less_in_it_is_written_anew() {
    let orders: [&[&str]; 5] = [
        &[KEYS[0], KEYS[1], KEYS[2]],
        &[KEYS[1], KEYS[0], KEYS[2]],
        &[KEYS[2], KEYS[0]],
        &[KEYS[2], "ssh-rsa AAAA of nobody", KEYS[0], KEYS[1]],
        &[],
    ];
    for lines in orders {
        let unit = with_file(three(), lines);
        assert!(unit.plan().contains(paths::AUTHORIZED_KEYS), "{lines:?}: {}", unit.plan());
        let unit = unit.settled();
        assert_eq!(file(&unit), [KEYS[2], KEYS[0], KEYS[1]], "{lines:?}");
        assert_eq!(unit.plan(), "nothing", "{lines:?}");
    }
}

#[test]
fn one_of_several_leaves() {
    for (gone, left) in [("worker/0", [KEYS[2], KEYS[1]]), ("worker/1", [KEYS[2], KEYS[0]])] {
        let mut unit = three();
        memory(&mut unit.world).relation_mut("web-tsa", "web-tsa:6").units.remove(gone);
        let unit = unit.settled();
        assert_eq!(file(&unit), left, "{gone}");
        assert_eq!(unit.plan(), "nothing", "{gone}");
    }
}

#[test]
fn a_key_of_two_units_goes_with_the_last_of_them() {
    for (first, second) in [("aa/0", "worker/1"), ("worker/1", "worker/2")] {
        let mut unit = TestUnit::web().worker(first, KEYS[1]).worker(second, KEYS[1]).settled();
        assert!(file(&unit).contains(&KEYS[1]), "{first} {second}");
        assert_eq!(unit.plan(), "nothing", "{first} {second}");
        for (gone, stays) in [(first, true), (second, false)] {
            for relation in memory(&mut unit.world).relations.get_mut("web-tsa").unwrap().values_mut() {
                relation.units.remove(gone);
            }
            unit = unit.settled();
            assert_eq!(file(&unit).contains(&KEYS[1]), stays, "{gone} of {first} {second}");
            assert_eq!(unit.plan(), "nothing", "{gone} of {first} {second}");
        }
    }
}

#[test]
fn a_bad_key_is_said_and_keeps_nobody_out() {
    let unit = three().worker("gpu/1", "ssh-rsa nonsense").settled();
    assert_eq!(file(&unit), [KEYS[2], KEYS[0], KEYS[1]]);
    assert_eq!(unit.plan(), "nothing");
    let status = unit.status();
    assert!(status.starts_with("blocked: A worker's data can't be used: web-tsa:3: gpu/1 says"), "{status}");
}
