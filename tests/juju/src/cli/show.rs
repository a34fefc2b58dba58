//! show-unit, debug-log, machines and actions.

use super::{Call, Done, Out, failure};
use crate::data::{Data, map, text, texts};
use crate::model::{LogLine, Model, Unit, tag_of};
use crate::time::civil;
use crate::tools::ports_listed;

impl Call<'_> {
    pub(super) fn show_unit(&self, out: &mut Out) -> Done {
        self.word(0, "a unit name must be supplied")?;
        let model = self.shared.lock();
        let mut all = Vec::new();
        for name in &self.options.words {
            let Some(unit) = model.units.get(name) else {
                return Err(failure(format!("unit {name:?} not found")));
            };
            all.push((name.clone(), model.unit_shown(unit)));
        }
        let all = Data::Map(all);
        out.text(if self.options.format("yaml") == "json" {
            format!("{}\n", all.json())
        } else {
            all.yaml()
        });
        Ok(0)
    }

    pub(super) fn debug_log(&self, out: &mut Out) -> Done {
        let model = self.shared.lock();
        let include = self.options.all(&["include"]);
        let level = self.options.value(&["level"]).map(rank);
        let chosen = |line: &&LogLine| {
            (include.is_empty()
                || include.iter().any(|who| line.entity == *who || tag_of(&line.entity) == *who))
                && level.is_none_or(|level| rank(&line.level) >= level)
        };
        let lines: Vec<_> = model.log.iter().filter(chosen).collect();
        let most = self.options.number(&["limit", "lines", "n"], lines.len())?;
        let first = if self.options.flag("replay") { 0 } else { lines.len().saturating_sub(most) };
        for line in lines.iter().skip(first).take(most) {
            let who = tag_of(&line.entity);
            out.line(format!(
                "{who}: {} {} {} {}",
                civil(line.at).clock(),
                line.level,
                line.logger,
                line.message
            ));
        }
        Ok(0)
    }

    pub(super) fn machines(&self, out: &mut Out) -> Done {
        out.text(self.shared.lock().machine_table());
        Ok(0)
    }

    pub(super) fn actions(&self, out: &mut Out) -> Done {
        let name = self.word(0, "no application name specified")?;
        let model = self.shared.lock();
        let Some(app) = model.applications.get(name) else {
            return Err(failure(format!("application {name:?} not found")));
        };
        let mut rows = vec![vec!["Action".to_string(), "Description".into()]];
        for (name, declared) in &app.charm.actions {
            let description = declared["description"].as_str().unwrap_or("No description");
            rows.push(vec![name.clone(), description.lines().next().unwrap_or_default().into()]);
        }
        out.text(super::status::table(&rows, &[]));
        Ok(0)
    }
}

fn rank(level: &str) -> usize {
    ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
        .iter()
        .position(|known| level.eq_ignore_ascii_case(known))
        .unwrap_or(2)
}

impl Model {
    fn unit_shown(&self, unit: &Unit) -> Data {
        let app = &self.applications[&unit.app];
        let mut shown = map([
            ("workload-version", text(&app.workload_version)),
            ("machine", text(&unit.machine)),
            ("opened-ports", texts(ports_listed(&unit.ports, false))),
            ("public-address", text(self.unit_address(&unit.name))),
            ("charm", text(format!("local:{}-{}", app.charm.name, app.revision))),
            ("leader", Data::Bool(self.is_leader(&unit.name))),
            ("life", text(format!("{:?}", unit.life).to_lowercase())),
        ]);
        let mut relations = Vec::new();
        for relation in self.relations.values().filter(|relation| self.sees(unit, relation)) {
            let other = relation.other_end(&unit.app);
            let bag =
                |name: &str| relation.bag(name).map_or(Data::Map(Vec::new()), |bag| Data::strings(&bag.data));
            let scope = |name: &String| {
                map([("in-scope", Data::Bool(relation.members.contains(name))), ("data", bag(name))])
            };
            let mut entry = map([
                ("relation-id", Data::Int(i64::from(relation.id))),
                ("endpoint", text(relation.end_of(&unit.app).map_or("", |end| &end.name))),
                ("related-endpoint", text(&other.name)),
                ("application-data", bag(&other.app)),
                ("local-unit", scope(&unit.name)),
            ]);
            let units: Vec<_> = relation
                .counterparts(&unit.name)
                .into_iter()
                .map(|name| (name.clone(), scope(name)))
                .collect();
            if !units.is_empty() {
                entry.push("related-units", Data::Map(units));
            }
            relations.push(entry);
        }
        if !relations.is_empty() {
            shown.push("relation-info", Data::List(relations));
        }
        shown
    }
}
