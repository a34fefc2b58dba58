//! What this unit has read from Juju so far, and which event makes which part of it stale.
//!
//! A unit's bag is read once, and again when that unit changes; so an event costs a constant number of
//! hook-tool calls however many units are related. Juju tells of every change by an event; a lost or
//! foreign memory is simply read again.

use super::tools::Bag;
use crate::config::ModelProxy;
use crate::event::{Context, Event, Phase, RelationEvent, bare_secret_id};
use crate::parse::UnitName;
use crate::role::Worker;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The endpoints that the charm reads.
pub const ENDPOINTS: [&str; 6] =
    ["concourse-peer", "web-tsa", "worker-tsa", "database", "postgresql", "monitoring"];

/// The endpoint of the units of this application.
pub const PEERS: &str = "concourse-peer";

/// Everything read from Juju that only an event can change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Relations by endpoint, then by id.
    pub relations: BTreeMap<String, BTreeMap<String, Relation>>,
    /// Content of secrets by their bare id.
    pub secrets: BTreeMap<String, Bag>,
    /// This unit's address, as others reach it: by a relation's id, and for its [`PEERS`].
    pub addresses: BTreeMap<String, IpAddr>,
    /// The newest options, with the model's proxy, that had no problem: what runs goes on by them.
    pub good_options: Option<(Map<String, Value>, ModelProxy)>,
    /// The resource `concourse` as the agent keeps it.
    pub resource: Option<std::path::PathBuf>,
    /// Names of workers whose units are gone and that may still be on the web node's list.
    pub departed: BTreeSet<String>,
    /// Inodes of the workers' connections to their web node, once those were seen to last.
    pub links: BTreeMap<Worker, u64>,
    /// The charm that filled this memory; another one reads everything again.
    pub charm: String,
}

/// A relation as this unit sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relation {
    /// The remote application.
    pub app: Option<String>,
    /// Its bag; for a peer relation, this application's own.
    pub app_bag: Bag,
    /// The remote units' bags.
    pub units: BTreeMap<String, Bag>,
}

/// What an event makes necessary to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stale {
    /// Ask for all relations and their members again.
    pub everything: bool,
    /// List the members of this relation, and read these parts of it.
    pub relation: Option<StaleRelation>,
    /// Read this secret's newest revision.
    pub secret: Option<String>,
    /// Ask for the addresses again.
    pub addresses: bool,
}

/// A relation of which an event told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleRelation {
    /// Its endpoint.
    pub endpoint: String,
    /// Its id.
    pub id: String,
    /// The unit whose bag moved.
    pub unit: Option<String>,
    /// The application's bag moved.
    pub app: bool,
}

impl Memory {
    /// Applies what the event itself says, and tells what else has to be read.
    pub fn note(&mut self, context: &Context, charm: &str) -> Stale {
        let mut stale = Stale { everything: self.charm != charm, ..Stale::default() };
        match &context.event {
            Event::Relation(event) => self.note_relation(context, event, &mut stale),
            Event::SecretChanged(id) => stale.secret = Some(id.clone()),
            Event::Hook(name) => match name.as_str() {
                "install" | "start" | "upgrade-charm" | "leader-elected" => stale.everything = true,
                "config-changed" => stale.addresses = true,
                _ => {}
            },
            Event::Action(_) => {}
        }
        stale
    }

    fn note_relation(&mut self, context: &Context, event: &RelationEvent, stale: &mut Stale) {
        let leaving = event.departing.as_deref() == Some(context.unit.to_string().as_str());
        if event.phase == Phase::Broken || (event.phase == Phase::Departed && leaving) {
            // Juju goes on listing it during its own broken hook; and a unit that leaves is heard no more.
            self.endpoint_mut(&event.endpoint).remove(&event.id);
            return;
        }
        let known = self.endpoint_mut(&event.endpoint).contains_key(&event.id);
        if event.phase == Phase::Departed && !known {
            return;
        }
        self.note_worker(event);
        stale.relation = Some(StaleRelation {
            endpoint: event.endpoint.clone(),
            id: event.id.clone(),
            unit: event.unit.clone().filter(|_| event.phase != Phase::Departed),
            app: event.unit.is_none() || !known,
        });
    }

    /// The name can be known of a unit of this model only: one of another goes by a name made up by Juju.
    fn note_worker(&mut self, event: &RelationEvent) {
        let unit = event.unit.as_ref().and_then(|unit| unit.parse::<UnitName>().ok());
        let Some(unit) = unit.filter(|u| !u.application().starts_with("remote-")) else { return };
        if !["web-tsa", "concourse-peer"].contains(&event.endpoint.as_str()) {
            return;
        }
        if event.phase == Phase::Departed {
            self.departed.extend(unit.worker_names());
        } else {
            self.departed.retain(|name| !unit.worker_names().contains(name));
        }
    }

    fn endpoint_mut(&mut self, endpoint: &str) -> &mut BTreeMap<String, Relation> {
        self.relations.entry(endpoint.to_owned()).or_default()
    }

    /// The relations of an endpoint, by id.
    pub fn of(&self, endpoint: &str) -> impl Iterator<Item = (&String, &Relation)> {
        self.relations.get(endpoint).into_iter().flatten()
    }

    /// The only relation of an endpoint with `limit: 1`, or the peer relation.
    pub fn one(&self, endpoint: &str) -> Option<(&String, &Relation)> {
        self.of(endpoint).next()
    }

    /// Brings a relation's members to `units`; gives those that are new and so unread.
    pub fn set_members(&mut self, endpoint: &str, id: &str, units: &[String]) -> Vec<String> {
        let relation = self.endpoint_mut(endpoint).entry(id.to_owned()).or_default();
        let members: BTreeSet<&str> = units.iter().map(String::as_str).collect();
        relation.units.retain(|unit, _| members.contains(unit.as_str()));
        let unread = members.into_iter().filter(|unit| !relation.units.contains_key(*unit));
        unread.map(str::to_owned).collect()
    }

    /// Forgets the relations of an endpoint that are not among `ids`.
    pub fn retain_relations(&mut self, endpoint: &str, ids: &[String]) {
        self.endpoint_mut(endpoint).retain(|id, _| ids.contains(id));
    }

    /// The relation, to be filled.
    pub fn relation_mut(&mut self, endpoint: &str, id: &str) -> &mut Relation {
        self.endpoint_mut(endpoint).entry(id.to_owned()).or_default()
    }

    /// The content of a secret, whatever form its id has.
    pub fn secret(&self, id: &str) -> Option<&Bag> {
        self.secrets.get(bare_secret_id(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(event: Event) -> Context {
        Context {
            unit: "worker/0".parse().unwrap(),
            model: String::new(),
            model_uuid: String::new(),
            charm_dir: String::new(),
            model_proxy: ModelProxy::default(),
            event,
        }
    }

    fn relation(phase: Phase, unit: Option<&str>, departing: Option<&str>) -> Context {
        context(Event::Relation(RelationEvent {
            phase,
            endpoint: "worker-tsa".into(),
            id: "worker-tsa:1".into(),
            unit: unit.map(Into::into),
            departing: departing.map(Into::into),
        }))
    }

    fn related() -> Memory {
        let mut memory = Memory { charm: "c".into(), ..Memory::default() };
        memory.set_members("worker-tsa", "worker-tsa:1", &["web/0".into()]);
        memory.relation_mut("worker-tsa", "worker-tsa:1").units.insert("web/0".into(), Bag::new());
        memory
    }

    #[test]
    fn an_unchanged_world_needs_no_reading() {
        for event in [Event::Hook("update-status".into()), Event::Action("check-status".into())] {
            assert_eq!(related().note(&context(event), "c"), Stale::default());
        }
    }

    #[test]
    fn a_change_reads_one_bag() {
        let stale = related().note(&relation(Phase::Changed, Some("web/0"), None), "c");
        let expected = StaleRelation {
            endpoint: "worker-tsa".into(),
            id: "worker-tsa:1".into(),
            unit: Some("web/0".into()),
            app: false,
        };
        assert_eq!(stale, Stale { relation: Some(expected), ..Stale::default() });
    }

    #[test]
    fn a_unit_that_leaves_or_a_broken_relation_is_related_no_more() {
        for context in
            [relation(Phase::Broken, None, None), relation(Phase::Departed, Some("web/0"), Some("worker/0"))]
        {
            let mut memory = related();
            assert_eq!(memory.note(&context, "c"), Stale::default());
            assert_eq!(memory.one("worker-tsa"), None);
            // A later departed of another member does not bring it back.
            memory.note(&relation(Phase::Departed, Some("web/1"), Some("worker/0")), "c");
            assert_eq!(memory.one("worker-tsa"), None);
        }
    }

    #[test]
    fn a_unit_that_went_may_have_had_two_workers_and_has_them_again_when_it_comes_back() {
        let event = |phase| {
            context(Event::Relation(RelationEvent {
                phase,
                endpoint: "web-tsa".into(),
                id: "web-tsa:1".into(),
                unit: Some("gpu/3".into()),
                departing: None,
            }))
        };
        let mut memory = Memory { charm: "c".into(), ..Memory::default() };
        memory.set_members("web-tsa", "web-tsa:1", &["gpu/3".into()]);
        memory.note(&event(Phase::Departed), "c");
        assert_eq!(memory.departed, ["gpu-3".to_owned(), "gpu-3-untagged".to_owned()].into());
        memory.note(&event(Phase::Joined), "c");
        assert!(memory.departed.is_empty());
    }

    #[test]
    fn members_that_left_are_forgotten_and_new_ones_are_unread() {
        let mut memory = related();
        let unread = memory.set_members("worker-tsa", "worker-tsa:1", &["web/1".into()]);
        assert_eq!(unread, ["web/1"]);
        assert!(memory.one("worker-tsa").unwrap().1.units.is_empty());
    }

    #[test]
    fn a_new_charm_reads_everything() {
        assert!(related().note(&context(Event::Hook("update-status".into())), "d").everything);
    }
}
