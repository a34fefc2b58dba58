//! What a unit tells those outside its model.

use crate::kit::unit::{KEYS, TestUnit, memory};
use concourse_ci_machine::event::Goal;
use insta::assert_snapshot;

#[test]
fn each_relation_is_told_the_address_that_its_other_side_reaches() {
    let mut unit = TestUnit::web().worker("far-away/0", KEYS[1]);
    memory(&mut unit.world).addresses.insert("web-tsa:8".into(), "203.0.113.5".parse().unwrap());
    unit.hook(Goal::Run);
    let host = |id: &str| unit.world.record.unit_bags[id]["tsa-host"].clone();
    assert_eq!([host("web-tsa:6"), host("web-tsa:8")], ["10.0.0.5:2222", "203.0.113.5:2222"]);
}

#[test]
fn metrics_are_offered_where_they_are() {
    let unit = TestUnit::web().config("enable-metrics", true).related("monitoring:9", "prometheus", &[], &[]);
    let mut unit = unit.settled();
    memory(&mut unit.world).addresses.insert("monitoring:9".into(), "10.1.0.5".parse().unwrap());
    unit.hook(Goal::Run);
    let lines = |bag: &concourse_ci_machine::juju::tools::Bag| {
        bag.iter().map(|(key, value)| format!("{key}: {value}")).collect::<Vec<_>>().join("\n")
    };
    assert_snapshot!(lines(&unit.world.record.unit_bags["monitoring:9"]), @"
    prometheus_scrape_unit_address: 10.1.0.5
    prometheus_scrape_unit_name: web/0
    ");
    assert_snapshot!(lines(&unit.world.record.app_bags["monitoring:9"]), @r#"
    scrape_jobs: [{"metrics_path":"/metrics","static_configs":[{"targets":["*:9391"]}]}]
    scrape_metadata: {"application":"web","charm_name":"concourse-ci-machine","model":"ci","model_uuid":"4075b630-e862-4195-830a-20ca42d22366","unit":"web/0"}
    "#);
    // Without metrics there is nothing to be scraped.
    let mut unit = unit.config("enable-metrics", false);
    unit.hook(Goal::Run);
    assert!(unit.world.record.unit_bags["monitoring:9"].is_empty());
    assert!(unit.world.record.app_bags["monitoring:9"].is_empty());
}
