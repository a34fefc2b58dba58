//! A model without processes.

use emulated_juju::Outcome;
use emulated_juju::charm::Charm;
use emulated_juju::model::{Application, Model, Operation};
use emulated_juju::time::now;
use emulated_juju::tools::{ToolReply, ToolRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A model whose charms do nothing but what `writes` says.
pub struct Sim {
    /// The model.
    pub model: Model,
    /// `(hook, tool call)`: what the charm does in hooks that end like this.
    pub writes: Vec<(&'static str, &'static str)>,
    /// Hooks that fail.
    pub failing: BTreeSet<&'static str>,
}

impl Sim {
    /// An empty model of a version.
    pub fn new(version: &str) -> Sim {
        let mut model = Model::new(version, std::env::temp_dir());
        model.retry_base_ms = 0;
        Sim { model, writes: Vec::new(), failing: BTreeSet::new() }
    }

    /// Deploys the probe charm.
    pub fn deploy(&mut self, app: &str, units: usize) {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/charms/probe");
        let application = Application::new(app, Charm::load(&dir).unwrap());
        self.model.add_application(application).unwrap();
        (0..units).for_each(|_| self.add_unit(app));
    }

    /// Adds a unit on a machine of its own.
    pub fn add_unit(&mut self, app: &str) {
        let machine = self.model.add_machine();
        self.model.make_up_network(&machine);
        self.model.add_unit(app, &machine, "").unwrap();
    }

    /// Runs the next thing of the first unit that has one.
    pub fn step(&mut self) -> Option<String> {
        self.model.synchronize();
        let units: Vec<String> = self.model.units.keys().cloned().collect();
        let (unit, operation) =
            units.iter().find_map(|unit| Some((unit.clone(), self.model.next_operation(unit, now())?)))?;
        let name = self.model.operation_name(&operation);
        let context = self.model.begin(&unit, operation);
        for (hook, call) in self.writes.clone() {
            if name.ends_with(hook) {
                self.call(&context, call);
            }
        }
        let remote = self.model.contexts[&context].remote_unit.clone();
        let env: BTreeMap<_, _> =
            self.model.environment(&self.model.contexts[&context]).into_iter().collect();
        let rc = i32::from(self.failing.contains(name.as_str()));
        self.model.finish(&context, &Outcome { rc, ..Outcome::default() });
        let mut shown = format!("{unit} {name}");
        if !remote.is_empty() {
            shown.push_str(&format!(" {remote}"));
        }
        if let Some(departing) = env.get("JUJU_DEPARTING_UNIT") {
            shown.push_str(&format!(" ({departing} departs)"));
        }
        Some(shown)
    }

    /// Calls a tool.
    pub fn call(&mut self, context: &str, line: &str) -> ToolReply {
        let mut words = line.split(' ').map(String::from);
        let tool = words.next().unwrap_or_default();
        let request =
            ToolRequest { context: context.into(), tool, args: words.collect(), ..ToolRequest::default() };
        self.model.call_tool(&request)
    }

    /// Runs everything there is to run.
    pub fn settle(&mut self) -> Vec<String> {
        let mut done = Vec::new();
        while let Some(step) = self.step() {
            done.push(step);
            assert!(done.len() < 300, "no rest: {done:?}");
        }
        done
    }

    /// A call in a context of its own, as `juju exec` makes it.
    pub fn exec(&mut self, unit: &str, line: &str) -> ToolReply {
        let task = self.model.enqueue_exec(unit, "").unwrap();
        let context = self.model.begin(unit, Operation::Exec(task));
        let reply = self.call(&context, line);
        self.model.finish(&context, &Outcome::default());
        reply
    }
}
