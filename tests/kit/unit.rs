//! A unit to be tested: healthy and complete, so that a test names only its difference.

use super::model::Model;
use concourse_ci_machine::config;
use concourse_ci_machine::event::Goal;
use concourse_ci_machine::gpu::lacks::Lacks;
use concourse_ci_machine::juju::memory::{Memory, PEERS, Relation};
use concourse_ci_machine::juju::tools::Bag;
use concourse_ci_machine::parse::Moment;
use concourse_ci_machine::plan::plan;
use concourse_ci_machine::status::status;
use concourse_ci_machine::world::{Machine, Record, World};
use serde_json::{Map, Value};

/// Public keys that parse.
pub const KEYS: [&str; 3] = [
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCoEDmAtrv4P01FOWhoOlrrwivJwxDswSi9ufrU354+3RaaUIOP+PIGqCb5MqThJA43Sys7H+hUvyqjaMHroEDOate7K5wS2GYNifK3yBmkntRsDMLGCqe+q/9PMYCFz2m2Tnq7/eYmnpwDegax4RJTTVnVarDFOSetJwHIem7J4bfpiEP8yjZNCYyh2wF6xk7EFO0tY1oD4/0veK8I1JnrFtsWNSxMdCSSuBlfQdiQe85nlNlXWsFoqUWGr6mBZgksQaWCd+SADVO1ybr/x2OZv3v9Z2RWaG5hNx60FYmVmseSkccPjyt0Pfi27UJLGUS2ruDm3R9kpzT0o4+yVjjN",
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC1qIWoWRg8ialjnIXcdY4va+JpnEFbIyw+9s4Frv3QXZpOIoc4PUx7sY98ku6jj6USmDBoH11iaKgUXF46ZLRTVHaZEOCWThJjOZvjvcawrcSLwfbef+Z2KIwoJWWjlEC5gKILiauu9ioFLdZYrNvk2clUELDKf4hTxvxbCtu+VE9MfUDE2VCgNXxoKndSTVUpQ//D3XSsB2QyOGVABhKl//XpM3fo/AoX8Ths1Rj5gc4L1LBpl8Ro1q/yx/SnRaLqvmkQUdnolFYrdPvIcm9MU/uDex7kkNZjgeb0K/E+VeS+1DSCsL007XvBnZBjyKDPwAceZibZgoLNWGrSbnav",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIN6H0yX5gIxXvias7vtd7OzNJVfprXbMsjA4YWNHhEcA",
];

/// A world in the making.
#[derive(Clone)]
pub struct TestUnit {
    pub world: World,
    options: Map<String, Value>,
}

pub fn bag(pairs: &[(&str, &str)]) -> Bag {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

impl TestUnit {
    /// A unit right after Juju made it, with the options' defaults.
    pub fn new(name: &str, mode: &str) -> Self {
        let world = World {
            unit: name.parse().unwrap(),
            now: Moment::new(1_000),
            model: ("ci".into(), "4075b630-e862-4195-830a-20ca42d22366".into()),
            config: None,
            problems: vec![],
            leader: true,
            memory: Memory::default().into(),
            record: Record::default(),
            committed: Record::default(),
            machine: Machine { arch: "amd64".into(), ..Machine::default() },
            troubles: Default::default(),
            looked: false,
            started: Default::default(),
        };
        let unit = TestUnit { world, options: Map::new() }.config("deployment-mode", mode);
        let app = unit.world.unit.application().to_owned();
        let mut unit = unit.related("concourse-peer:0", &app, &[], &[]);
        memory(&mut unit.world).addresses.insert(PEERS.into(), "10.0.0.5".parse().unwrap());
        unit
    }

    /// A web node with a database and one related worker, at rest.
    pub fn web() -> Self {
        Self::new("web/0", "web").database("s3cret").worker("worker/0", KEYS[0]).settled()
    }

    /// The same without a worker.
    pub fn web_alone() -> Self {
        Self::web().unrelated("web-tsa:6").settled()
    }

    /// A worker with one web node, at rest and registered.
    pub fn worker_unit() -> Self {
        Self::new("worker/0", "worker").tsa("10.0.0.5:2222").settled()
    }

    /// A unit with a worker that has a tag and one that has none, at rest and registered.
    pub fn two_workers() -> Self {
        Self::worker_unit().config("tag", "gpu").config("worker-untagged", true).settled()
    }

    /// Sets an option as `juju config` would; one that is bad keeps the good ones before it.
    pub fn config(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.options.insert(name.to_owned(), value.into());
        match config::parse(&self.options, &config::ModelProxy::default()) {
            Ok(good) => (self.world.config, self.world.problems) = (Some(good), vec![]),
            Err(problems) => self.world.problems = problems,
        }
        self
    }

    pub fn related(
        mut self,
        id: &str,
        app: &str,
        app_bag: &[(&str, &str)],
        units: &[(&str, &[(&str, &str)])],
    ) -> Self {
        memory(&mut self.world).addresses.entry(id.into()).or_insert("10.0.0.5".parse().unwrap());
        let relation = memory(&mut self.world).relation_mut(id.split(':').next().unwrap(), id);
        *relation = Relation { app: Some(app.into()), app_bag: bag(app_bag), units: relation.units.clone() };
        relation.units.extend(units.iter().map(|(unit, pairs)| ((*unit).to_owned(), bag(pairs))));
        self
    }

    pub fn unrelated(mut self, id: &str) -> Self {
        memory(&mut self.world).retain_relations(id.split(':').next().unwrap(), &[]);
        self
    }

    pub fn database(mut self, password: &str) -> Self {
        let content = bag(&[("username", "relation-3"), ("password", password)]);
        memory(&mut self.world).secrets.insert("db0".into(), content);
        let app_bag =
            [("endpoints", "10.0.0.9:5432"), ("database", "concourse"), ("secret-user", "secret:db0")];
        self.related("database:3", "postgresql", &app_bag, &[])
    }

    pub fn tsa(self, host: &str) -> Self {
        let bag = [("tsa-host", host), ("tsa-public-key", KEYS[1]), ("concourse-version", "8.2.5")];
        self.related("worker-tsa:1", "web", &[], &[("web/0", &bag)])
    }

    /// The related workers answer what the web node asks, or something else.
    pub fn answered(mut self, answer: &str) -> Self {
        for relation in
            memory(&mut self.world).relations.get_mut("web-tsa").into_iter().flat_map(|r| r.values_mut())
        {
            relation.units.values_mut().for_each(|bag| drop(bag.insert("paused".into(), answer.into())));
        }
        self
    }

    /// The web node asks for a pause; with an empty text no more.
    pub fn asked(mut self, since: &str) -> Self {
        for relation in
            memory(&mut self.world).relations.get_mut("worker-tsa").into_iter().flat_map(|r| r.values_mut())
        {
            relation.units.values_mut().for_each(|bag| drop(bag.insert("pause".into(), since.into())));
        }
        self
    }

    pub fn worker(self, unit: &str, key: &str) -> Self {
        let app = unit.split('/').next().unwrap().to_owned();
        let id = format!("web-tsa:{}", app.len());
        self.related(&id, &app, &[], &[(unit, &[("worker-public-key", key)])])
    }

    /// Carries out plans until there is nothing left to do, as hooks would, each committed.
    pub fn settled(mut self) -> Self {
        for _ in 0..4 {
            self.hook(Goal::Run);
        }
        self
    }

    /// One hook; gives the plans of its passes as text.
    pub fn hook(&mut self, goal: Goal) -> Vec<String> {
        Model::default().hook(&mut self.world, goal)
    }

    /// What NVIDIA's GPUs lack, and nobody has looked since.
    pub fn lacking(mut self, lacks: Lacks) -> Self {
        let report = self.world.machine.gpus.get_or_insert_default();
        report.lacks = lacks;
        self
    }

    /// The plan as a golden shows it.
    pub fn plan(&self) -> String {
        let steps: Vec<String> = plan(Goal::Run, &self.world).iter().map(ToString::to_string).collect();
        if steps.is_empty() { "nothing".into() } else { steps.join("\n") }
    }

    /// The status as a golden shows it.
    pub fn status(&self) -> String {
        let status = status(&self.world);
        format!("{}: {}", status.level.word(), status.message)
    }
}

/// What the unit remembers, to change it.
pub fn memory(world: &mut World) -> &mut Memory {
    std::rc::Rc::make_mut(&mut world.memory)
}
