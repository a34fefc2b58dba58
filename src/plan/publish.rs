//! What others learn from this unit: databags, ports, version. Written only when it differs from what was written.

use crate::juju::tools::Bag;
use crate::parse::{HostPort, Moment};
use crate::paths;
use crate::render::web::METRICS_PORT;
use crate::step::Step;
use crate::view::database;
use crate::view::pause::{ANSWER, ASK, answer};
use crate::view::roles::{application_has_web, peers_exchange, roles};
use crate::view::tsa::TSA_PORT;
use crate::view::version::published;
use crate::view::web::address;
use crate::view::worker::public_key;
use crate::world::{Concern, World};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Brings Juju's side up to date; with `ask`, workers are asked to pause since that moment.
pub fn steps(world: &World, ask: Option<Moment>) -> Vec<Step> {
    let mut steps = vec![];
    let record = &world.record;
    for (endpoint, relations) in &world.memory.relations {
        for id in relations.keys() {
            let written = record.unit_bags.get(id);
            let wanted = unit_bag(world, (endpoint, id), written, ask);
            steps.extend(publish(id, false, written, wanted));
            // The peers' application bag holds the ids of secrets: see `keys`.
            if world.leader && endpoint != "concourse-peer" {
                let wanted = app_bag(world, endpoint);
                steps.extend(publish(id, true, record.app_bags.get(id), wanted));
            }
        }
    }
    steps.extend(ports(world));
    steps.extend(version(world));
    steps
}

fn publish(id: &str, app: bool, written: Option<&Bag>, wanted: Bag) -> Option<Step> {
    let empty = Bag::new();
    let written = written.unwrap_or(&empty);
    let mut values: Bag = wanted
        .iter()
        .filter(|(k, v)| written.get(*k) != Some(v))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    values.extend(written.keys().filter(|k| !wanted.contains_key(*k)).map(|k| (k.clone(), String::new())));
    (!values.is_empty()).then(|| Step::Publish { relation: id.to_owned(), app, values })
}

fn unit_bag(world: &World, (endpoint, id): (&str, &str), written: Option<&Bag>, ask: Option<Moment>) -> Bag {
    let mut bag = Bag::new();
    let peers = peers_exchange(world);
    match endpoint {
        "web-tsa" => {
            let address = world.memory.addresses.get(id).copied();
            bag.extend(tsa(world, address, written, ask));
        }
        "worker-tsa" if !peers => bag.extend(worker(world, id)),
        "concourse-peer" if peers => {
            bag.extend(tsa(world, address(world), written, ask));
            bag.extend(worker(world, id));
        }
        "postgresql" if application_has_web(world) => {
            drop(bag.insert("database".into(), database::NAME.into()))
        }
        "monitoring" if roles(world).web && metrics(world) => {
            if let Some(address) = world.memory.addresses.get(id) {
                bag.insert("prometheus_scrape_unit_address".into(), address.to_string());
            }
            bag.insert("prometheus_scrape_unit_name".into(), world.unit.to_string());
            // prometheus_scrape_unit_path is what stands before the jobs' metrics_path: nothing.
        }
        _ => {}
    }
    bag
}

/// Told first when the web node answers, not taken back because it is away for a moment, and not new before its restart.
fn tsa(world: &World, address: Option<IpAddr>, written: Option<&Bag>, ask: Option<Moment>) -> Bag {
    const KEYS: [&str; 3] = ["tsa-host", "tsa-public-key", "concourse-version"];
    if !roles(world).web {
        return Bag::new();
    }
    let up = world.machine.web.is_some() && ask.is_none();
    let key = world.file(paths::HOST_KEY_PUB).map(str::trim);
    let mut bag: Bag = match (up, address, key, published(world)) {
        (true, Some(address), Some(key), Some(version)) => {
            let host = SocketAddr::new(address, TSA_PORT).to_string();
            debug_assert!(host.parse::<HostPort>().is_ok());
            KEYS.map(str::to_owned).into_iter().zip([host, key.to_owned(), version.to_string()]).collect()
        }
        _ => {
            // Who joins while the web node waits for its restart learns what the others know.
            let told = |bag: &&Bag| bag.contains_key(KEYS[0]);
            let others = || world.record.unit_bags.values().filter(|_| ask.is_some()).find(told);
            let kept = written.filter(told).or_else(others).into_iter().flatten();
            let kept = kept.filter(|(k, _)| KEYS.contains(&k.as_str()));
            kept.map(|(k, v)| (k.clone(), v.clone())).collect()
        }
    };
    bag.extend(ask.map(|ask| (ASK.to_owned(), ask.to_string())));
    bag
}

fn worker(world: &World, relation: &str) -> Bag {
    let Some(key) = public_key(world).filter(|_| roles(world).worker) else { return Bag::new() };
    let mut bag = Bag::from([("worker-public-key".to_owned(), key.to_string())]);
    let answer: Vec<String> = answer(world, relation).iter().map(ToString::to_string).collect();
    if !answer.is_empty() {
        bag.insert(ANSWER.to_owned(), answer.join(" "));
    }
    bag
}

fn metrics(world: &World) -> bool {
    world.config.as_ref().is_some_and(|c| c.metrics)
}

fn app_bag(world: &World, endpoint: &str) -> Bag {
    let mut bag = Bag::new();
    match endpoint {
        "database" if application_has_web(world) => {
            bag.insert("database".into(), database::NAME.into());
            let secrets = json!(["username", "password", "tls", "tls-ca", "uris", "read-only-uris"]);
            bag.insert("requested-secrets".into(), secrets.to_string());
        }
        "monitoring" if application_has_web(world) && metrics(world) => {
            let jobs = json!([{"metrics_path": "/metrics", "static_configs": [{"targets": [format!("*:{METRICS_PORT}")]}]}]);
            let metadata = json!({
                "model": world.model.0, "model_uuid": world.model.1, "application": world.unit.application(),
                "unit": world.unit.to_string(), "charm_name": "concourse-ci-machine",
            });
            bag.insert("scrape_jobs".into(), jobs.to_string());
            bag.insert("scrape_metadata".into(), metadata.to_string());
        }
        _ => {}
    }
    bag
}

fn ports(world: &World) -> Vec<Step> {
    let mut wanted = BTreeSet::new();
    if let (true, Some(config)) = (roles(world).web, &world.config) {
        wanted.extend([config.web_port, TSA_PORT].map(|p| format!("{p}/tcp")));
        wanted.extend(config.metrics.then(|| format!("{METRICS_PORT}/tcp")));
    }
    let open = &world.record.ports;
    let mut steps: Vec<Step> = open.difference(&wanted).cloned().map(Step::ClosePort).collect();
    if !world.troubles.contains_key(&Concern::Ports) {
        steps.extend(wanted.difference(open).cloned().map(Step::OpenPort));
    }
    steps
}

fn version(world: &World) -> Option<Step> {
    let version = published(world)?.to_string();
    (world.record.version.as_ref() != Some(&version)).then_some(Step::TellVersion(version))
}
