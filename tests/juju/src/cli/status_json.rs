//! status, as data.

use crate::data::{Data, map, text, texts};
use crate::model::{Application, Machine, Model, Status, Unit};
use crate::time::{civil, now};
use crate::tools::ports_listed;
use std::collections::BTreeMap;

fn status(status: &Status) -> Data {
    let mut shown = map([("current", text(&status.word))]);
    if !status.message.is_empty() {
        shown.push("message", text(&status.message));
    }
    shown.push("since", Data::Raw(civil(status.since).status()));
    shown
}

fn base() -> Data {
    map([("name", text("ubuntu")), ("channel", text("24.04"))])
}

impl Model {
    /// What `juju status --format=json|yaml` shows.
    pub(super) fn status_data(&self, wanted: &[String], json: bool) -> Data {
        let model = map([
            ("name", text(&self.name)),
            ("type", text("iaas")),
            ("controller", text("emulated")),
            ("cloud", text("localhost")),
            ("region", text("localhost")),
            ("version", text(&self.version)),
            ("model-status", status(&Status::new("available", ""))),
        ]);
        let units = self.shown_units(wanted);
        let shown = |app: &&Application| {
            wanted.is_empty() || wanted.contains(&app.name) || units.iter().any(|u| u.app == app.name)
        };
        let machines: Vec<_> = self
            .machines
            .values()
            .filter(|machine| wanted.is_empty() || units.iter().any(|unit| unit.machine == machine.id))
            .map(|machine| (machine.id.clone(), self.machine_data(machine, json)))
            .collect();
        let apps = self.applications.values().filter(shown).map(|app| (app.name.clone(), self.app_data(app)));
        map([
            ("model", model),
            ("machines", Data::Map(machines)),
            ("applications", Data::Map(apps.collect())),
            ("controller", map([("timestamp", Data::Raw(format!("{}Z", civil(now()).clock())))])),
        ])
    }

    fn machine_data(&self, machine: &Machine, json: bool) -> Data {
        let word = match (machine.started, machine.connected) {
            (false, _) => "pending",
            (true, true) => "started",
            (true, false) => "down",
        };
        let alive = |word: &str, message: &str| {
            let mut shown = status(&Status::new(word, message));
            shown.push("life", text("alive"));
            shown
        };
        let mut shown = map([
            ("juju-status", alive(word, "")),
            ("hostname", text(&machine.hostname)),
            ("dns-name", text(machine.address())),
            ("ip-addresses", texts(machine.addresses.clone())),
            ("instance-id", text(if machine.started { &machine.hostname } else { "pending" })),
            ("machine-status", alive("running", "Running")),
        ]);
        if json {
            shown.push("modification-status", Data::Map(Vec::new()));
        }
        shown.push("base", base());
        shown
    }

    fn app_data(&self, app: &Application) -> Data {
        let mut relations: BTreeMap<String, Vec<Data>> = BTreeMap::new();
        for relation in self.relations.values() {
            let Some(end) = relation.end_of(&app.name) else { continue };
            let scope = if relation.is_container() { "container" } else { "global" };
            relations.entry(end.name.clone()).or_default().push(map([
                ("related-application", text(&relation.other_end(&app.name).app)),
                ("interface", text(&end.interface)),
                ("scope", text(scope)),
            ]));
        }
        let units = self.units_of(&app.name);
        let mut shown = map([
            ("charm", text(format!("local:{}-{}", app.charm.name, app.revision))),
            ("base", base()),
            ("charm-origin", text("local")),
            ("charm-name", text(&app.charm.name)),
            ("charm-rev", Data::Int(i64::from(app.revision))),
            ("exposed", Data::Bool(app.exposed)),
            ("life", text(format!("{:?}", app.life).to_lowercase())),
            ("application-status", status(&self.shown_application_status(&app.name))),
        ]);
        if !relations.is_empty() {
            let all = relations.into_iter().map(|(name, list)| (name, Data::List(list)));
            shown.push("relations", Data::Map(all.collect()));
        }
        if !units.is_empty() {
            shown.push(
                "units",
                Data::Map(units.iter().map(|unit| (unit.name.clone(), self.unit_data(unit))).collect()),
            );
        }
        if !app.workload_version.is_empty() {
            shown.push("version", text(&app.workload_version));
        }
        let mut bindings: Vec<String> =
            app.charm.endpoints.keys().chain(&app.charm.bindings).cloned().collect();
        bindings.extend(["juju-info".into(), String::new()]);
        bindings.sort();
        shown.push(
            "endpoint-bindings",
            Data::Map(bindings.into_iter().map(|name| (name, text("alpha"))).collect()),
        );
        shown
    }

    fn unit_data(&self, unit: &Unit) -> Data {
        let mut agent = status(&unit.agent);
        agent.push("version", text(&self.version));
        let mut shown =
            map([("workload-status", status(&self.workload_status(unit))), ("juju-status", agent)]);
        if self.is_leader(&unit.name) {
            shown.push("leader", Data::Bool(true));
        }
        shown.push("machine", text(&unit.machine));
        if !unit.ports.is_empty() {
            shown.push("open-ports", texts(ports_listed(&unit.ports, false)));
        }
        shown.push("public-address", text(self.unit_address(&unit.name)));
        shown
    }
}
