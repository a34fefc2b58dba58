//! status, as a table.

use super::{Call, Done, Out};
use crate::model::{Life, Model, Side, Unit, number_of};
use crate::time::{civil, now};
use crate::tools::ports_listed;

/// Rows as columns two blanks apart, like Juju's; `right` names the columns that are right-aligned.
pub(super) fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(width(column).unwrap_or_default() - cell.chars().count());
            let last = column + 1 == row.len();
            match (right.contains(&column), last) {
                (true, _) => line.push_str(&format!("{pad}{cell}  ")),
                (false, true) => line.push_str(cell),
                (false, false) => line.push_str(&format!("{cell}{pad}  ")),
            }
        }
        out.push_str(&line);
        out.push('\n');
    }
    out
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(ToString::to_string).collect()
}

impl Call<'_> {
    pub(super) fn status(&self, out: &mut Out) -> Done {
        let model = self.shared.lock();
        let wanted = &self.options.words;
        match self.options.format("tabular").as_str() {
            "json" => out.line(model.status_data(wanted, true).json()),
            "yaml" => out.text(model.status_data(wanted, false).yaml()),
            "short" | "oneline" | "line" => {
                for unit in model.shown_units(wanted) {
                    let (status, ports) = (model.workload_status(unit), short_ports(unit));
                    let address = model.unit_address(&unit.name);
                    let line = format!(
                        "- {}: {address} (agent:{}, workload:{}) {ports}",
                        unit.name, unit.agent.word, status.word
                    );
                    out.line(line.trim_end());
                }
            }
            _ => out.text(model.status_table(wanted, self.options.flag("relations"))),
        }
        Ok(0)
    }
}

impl Model {
    /// Units of the named applications (or with the named names), in order; all if none is named.
    pub(super) fn shown_units(&self, wanted: &[String]) -> Vec<&Unit> {
        let shown = |unit: &&Unit| {
            let principal = &unit.principal;
            wanted.is_empty()
                || wanted
                    .iter()
                    .any(|w| *w == unit.name || *w == unit.app || crate::model::app_of(principal) == w)
        };
        let mut units: Vec<&Unit> = self.units.values().filter(shown).collect();
        units.sort_by_key(|unit| (unit.app.clone(), number_of(&unit.name)));
        units
    }

    fn status_table(&self, wanted: &[String], relations: bool) -> String {
        let mut out = String::new();
        let head = row(["Model", "Controller", "Cloud/Region", "Version", "Timestamp"]);
        let clock = format!("{}Z", civil(now()).clock());
        let cells = [self.name.as_str(), "emulated", "localhost/localhost", &self.version, &clock];
        out.push_str(&table(&[head, row(cells)], &[]));
        let units = self.shown_units(wanted);
        let apps: Vec<_> = self
            .applications
            .values()
            .filter(|app| {
                wanted.is_empty()
                    || wanted.contains(&app.name)
                    || units.iter().any(|unit| unit.app == app.name)
            })
            .collect();
        if apps.is_empty() && self.machines.is_empty() {
            return format!("{out}\nModel {:?} is empty.\n", format!("admin/{}", self.name));
        }
        let mut rows =
            vec![row(["App", "Version", "Status", "Scale", "Charm", "Channel", "Rev", "Exposed", "Message"])];
        for app in apps {
            let status = self.shown_application_status(&app.name);
            let all = self.units_of(&app.name);
            let allocating = all.iter().filter(|unit| unit.agent.word == "allocating").count();
            let scale = match allocating {
                0 => all.len().to_string(),
                _ => format!("{}/{}", all.len() - allocating, all.len()),
            };
            let revision = app.revision.to_string();
            let exposed = if app.exposed { "yes" } else { "no" };
            let cells = [
                &app.name,
                &app.workload_version,
                &status.word,
                scale.as_str(),
                &app.charm.name,
                "",
                &revision,
                exposed,
                &status.message,
            ];
            rows.push(row(cells));
        }
        out.push_str(&format!("\n{}", table(&rows, &[3, 6])));
        let mut rows =
            vec![row(["Unit", "Workload", "Agent", "Machine", "Public address", "Ports", "Message"])];
        for unit in units.iter().filter(|unit| unit.principal.is_empty()) {
            rows.push(self.unit_row(unit, ""));
            for other in self.units.values().filter(|other| other.principal == unit.name) {
                rows.push(self.unit_row(other, "  "));
            }
        }
        out.push_str(&format!("\n{}", table(&rows, &[])));
        out.push_str(&format!("\n{}", self.machine_table()));
        if relations {
            out.push_str(&format!("\n{}", self.relation_table(wanted)));
        }
        out
    }

    /// An application's status, a failed hook of a unit before its own word for it.
    pub(super) fn shown_application_status(&self, app: &str) -> crate::model::Status {
        let units = self.units_of(app);
        let own = self.applications.get(app).is_some_and(|app| app.status.is_some());
        let error = units.iter().map(|unit| self.workload_status(unit)).find(|status| status.word == "error");
        error.filter(|_| !own).unwrap_or_else(|| self.application_status(app))
    }

    fn unit_row(&self, unit: &Unit, indent: &str) -> Vec<String> {
        let status = self.workload_status(unit);
        let star = if self.is_leader(&unit.name) { "*" } else { "" };
        let doing = unit.agent.message.strip_prefix("running ").filter(|_| unit.agent.word == "executing");
        let doing = doing.map(|doing| doing.strip_suffix(" hook").unwrap_or(doing).to_string());
        let message = match doing {
            Some(doing) if status.message.is_empty() => format!("({doing})"),
            Some(doing) => format!("({doing}) {}", status.message),
            None => status.message.clone(),
        };
        let machine = if unit.principal.is_empty() { unit.machine.as_str() } else { "" };
        let name = format!("{indent}{}{star}", unit.name);
        row([
            &name,
            &status.word,
            &unit.agent.word,
            machine,
            &self.unit_address(&unit.name),
            &short_ports(unit),
            &message,
        ])
    }

    pub(super) fn machine_table(&self) -> String {
        let mut rows = vec![row(["Machine", "State", "Address", "Inst id", "Base", "AZ", "Message"])];
        let mut machines: Vec<_> = self.machines.values().collect();
        machines.sort_by_key(|machine| machine.id.parse::<u32>().unwrap_or(u32::MAX));
        for machine in machines {
            let state = match (machine.started, machine.connected) {
                (false, _) => "pending",
                (true, true) => "started",
                (true, false) => "down",
            };
            let instance = if machine.started { machine.hostname.as_str() } else { "pending" };
            let message = if machine.started { "Running" } else { "" };
            rows.push(row([&machine.id, state, machine.address(), instance, "ubuntu@24.04", "", message]));
        }
        table(&rows, &[])
    }

    fn relation_table(&self, wanted: &[String]) -> String {
        let mut rows = Vec::new();
        for relation in self.relations.values() {
            if !wanted.is_empty() && !relation.endpoints.iter().any(|end| wanted.contains(&end.app)) {
                continue;
            }
            let end = |end: &crate::model::Endpoint| format!("{}:{}", end.app, end.name);
            let first = relation
                .endpoints
                .iter()
                .find(|end| end.side != Side::Requires)
                .unwrap_or(&relation.endpoints[0]);
            let second = relation.other_end(&first.app);
            let subordinate = |app: &str| self.applications.get(app).is_some_and(|app| app.charm.subordinate);
            let kind = if relation.is_peer() {
                "peer"
            } else if relation.is_container() && (subordinate(&first.app) || subordinate(&second.app)) {
                "subordinate"
            } else {
                "regular"
            };
            let message = match relation.life {
                Life::Alive if relation.members.is_empty() => "joining",
                Life::Alive => "",
                _ => "removing",
            };
            rows.push(row([&end(first), &end(second), &first.interface, kind, message]));
        }
        rows.sort();
        rows.insert(0, row(["Integration provider", "Requirer", "Interface", "Type", "Message"]));
        table(&rows, &[])
    }
}

/// `8080,8443/tcp icmp`: ranges of one protocol together.
pub(super) fn short_ports(unit: &Unit) -> String {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for port in ports_listed(&unit.ports, false) {
        let (range, protocol) = port.split_once('/').unwrap_or(("", &port));
        match groups.iter_mut().find(|(known, _)| known == protocol) {
            Some((_, ranges)) => ranges.push(range.into()),
            None => groups.push((protocol.into(), vec![range.into()])),
        }
    }
    let shown = |(protocol, ranges): &(String, Vec<String>)| match protocol.as_str() {
        "icmp" => "icmp".into(),
        _ => format!("{}/{protocol}", ranges.join(",")),
    };
    let mut all: Vec<String> = groups.iter().map(shown).collect();
    all.sort_by_key(|shown| shown == "icmp");
    all.join(" ")
}
