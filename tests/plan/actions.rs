//! What actions do before the plan goes on.

use crate::kit::model::Model;
use crate::kit::unit::{TestUnit, memory};
use concourse_ci_machine::actions::{Action, steps};
use concourse_ci_machine::event::Goal;
use concourse_ci_machine::juju::memory::PEERS;
use concourse_ci_machine::parse::Moment;
use concourse_ci_machine::paths;
use concourse_ci_machine::status::status;
use concourse_ci_machine::step::Step;
use concourse_ci_machine::world::Role;
use insta::assert_snapshot;
use std::time::Duration;

const REVISION: &str = "concourse-keys-revision";

/// What a rotation tells the other web nodes.
fn told(unit: &TestUnit) -> String {
    let steps = steps(&Action::RotateKeys, &unit.world).unwrap();
    let mut bags = steps.iter().filter_map(|step| match step {
        Step::Publish { app: true, values, .. } => values.get(REVISION),
        _ => None,
    });
    bags.next().unwrap().clone()
}

#[test]
fn each_rotation_of_keys_is_told_by_another_number() {
    let mut unit = TestUnit::web();
    assert_eq!(told(&unit), "1");
    // Juju tells a leader nothing of its own writes; a hook that reads everything again finds them.
    for (read, wrote, next) in [("1", "1", "2"), ("1", "2", "3"), ("4", "2", "5"), ("", "nonsense", "1")] {
        let relation = memory(&mut unit.world).relation_mut(PEERS, "concourse-peer:0");
        relation.app_bag.insert(REVISION.into(), read.into());
        let record = unit.world.record.app_bags.entry("concourse-peer:0".into()).or_default();
        record.insert(REVISION.into(), wrote.into());
        assert_eq!(told(&unit), next, "read {read}, wrote {wrote}");
    }
}

#[test]
fn a_rotation_of_keys_that_was_killed_leaves_no_key_that_others_do_not_know() {
    for unit in
        [TestUnit::web(), TestUnit::worker_unit(), TestUnit::web().config("deployment-mode", "all").settled()]
    {
        let rotation = steps(&Action::RotateKeys, &unit.world).unwrap();
        for cut in 0..=rotation.len() {
            let mut unit = unit.clone();
            let before = unit.world.clone();
            Model::default().carry_out(&mut unit.world, &rotation[..cut]);
            // What was written to Juju is lost with the action; what was written to the disk is not.
            (unit.world.memory, unit.world.record) = (before.memory.clone(), before.record.clone());
            unit = unit.settled();
            let world = &unit.world;
            assert_eq!(status(&unit.world), status(&before), "after {cut} steps");
            if let Some(shared) = world.memory.secret("concourse-keys") {
                let here =
                    [paths::HOST_KEY, paths::HOST_KEY_PUB, paths::SESSION_KEY].map(|path| world.file(path));
                let shared =
                    ["tsa-host-key", "tsa-public-key", "session-signing-key"].map(|key| shared.get(key));
                assert_eq!(here, shared.map(|text| text.map(String::as_str)), "after {cut} steps");
            }
            for bag in world.record.unit_bags.values() {
                let Some(told) = bag.get("worker-public-key") else { continue };
                assert_eq!(world.file(paths::WORKER_KEY_PUB), Some(told.as_str()), "after {cut} steps");
            }
        }
    }
}

#[test]
fn a_drain_that_was_cut_off_gives_builds_the_rest_of_their_time() {
    let patience = |unit: &TestUnit| {
        let steps = concourse_ci_machine::plan::plan(Goal::Run, &unit.world);
        steps.iter().find_map(|step| match step {
            Step::Leave(_, _, patience) => Some(patience.as_secs()),
            _ => None,
        })
    };
    let mut unit = TestUnit::worker_unit();
    let drain = Action::Drain(Duration::from_secs(7200));
    let first = steps(&drain, &unit.world).unwrap();
    // Killed while it waits for builds.
    Model::default().carry_out(&mut unit.world, &first[..1]);
    unit.world.machine.drained = true;
    assert_eq!(patience(&unit), Some(7200));
    unit.world.now = Moment::new(1_000 + 7000);
    assert_eq!(patience(&unit), Some(200));
    unit.world.now = Moment::new(1_000 + 8000);
    assert_eq!(patience(&unit), Some(0));
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    land concourse-worker.service
    end containers of concourse-worker.service concourse-worker-untagged.service
    disable concourse-worker.service
    ");
    assert!(!unit.world.service(Role::Worker).active);
}
