//! is-leader, goal-state, juju-log, resource-get and the like.

use super::{Answer, Args, Output, failure, usage};
use crate::context::Context;
use crate::data::{Data, map, text};
use crate::model::{Life, Model, Operation, app_of, tag_of};
use crate::time::{Nanos, civil};

impl Model {
    pub(super) fn is_leader_tool(&self, context: &mut Context, args: &Args) -> Answer {
        args.at_most(0)?;
        let leader = !context.not_leader && self.is_leader(&context.unit);
        context.not_leader = !leader;
        Ok(Output::Show(Data::Bool(leader)))
    }

    /// 3.6 only.
    pub(super) fn leader_get(&self, context: &Context, args: &Args) -> Answer {
        let key = args.at_most(1)?.filter(|key| *key != "-");
        let settings = &self.applications[app_of(&context.unit)].leader_settings;
        Ok(Output::Show(match key {
            Some(key) => settings.get(key).map_or(Data::Null, text),
            None => Data::strings(settings),
        }))
    }

    /// 3.6 only; written at once.
    pub(super) fn leader_set(&mut self, context: &Context, args: &Args) -> Answer {
        let pairs = args.pairs(0)?;
        if !self.is_leader(&context.unit) {
            return Err(failure("cannot write leadership settings: not the leader"));
        }
        if let Some(app) = self.applications.get_mut(app_of(&context.unit)) {
            app.leader_settings.extend(pairs);
            app.leader_settings.retain(|_, value| !value.is_empty());
        }
        Ok(Output::Silent)
    }

    pub(super) fn goal_state(&self, context: &Context, args: &Args) -> Answer {
        args.at_most(0)?;
        if args.value("format").as_deref() == Some("smart") {
            return Err(usage("invalid value \"smart\" for option --format: unknown format \"smart\""));
        }
        let app = app_of(&context.unit);
        let entry = |word: &str, since: Nanos| {
            map([("status", text(word)), ("since", Data::Raw(civil(since).goal()))])
        };
        let unit_entries = |app: &str| -> Vec<(String, Data)> {
            let units = self.units_of(app);
            let word = |unit: &crate::model::Unit| match unit.life {
                Life::Alive => self.workload_status(unit).word,
                _ => "dying".into(),
            };
            units.iter().map(|unit| (unit.name.clone(), entry(&word(unit), unit.status.since))).collect()
        };
        let subordinate = self.units.get(&context.unit).is_some_and(|unit| !unit.principal.is_empty());
        let own = if subordinate { Vec::new() } else { unit_entries(app) };
        let mut ends: Vec<(String, Data)> = Vec::new();
        for relation in self.relations.values().filter(|relation| !relation.is_peer()) {
            let Some(end) = relation.end_of(app) else { continue };
            let other = &relation.other_end(app).app;
            let mut all = vec![(other.clone(), entry("joined", relation.since))];
            all.extend(unit_entries(other));
            match ends.iter_mut().find(|(name, _)| *name == end.name) {
                Some((_, Data::Map(known))) => known.extend(all),
                _ => ends.push((end.name.clone(), Data::Map(all))),
            }
        }
        ends.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Output::Show(map([("units", Data::Map(own)), ("relations", Data::Map(ends))])))
    }

    pub(super) fn credential_get(&self, context: &Context) -> Answer {
        let trusted = self.applications.get(app_of(&context.unit)).is_some_and(|app| app.trusted);
        if !trusted {
            return Err(failure("cannot access cloud credentials: permission denied"));
        }
        let spec = [
            ("type", text("unmanaged")),
            ("name", text("lab")),
            ("region", text("default")),
            ("endpoint", text(&self.api_address)),
            ("is-controller-cloud", Data::Bool(true)),
        ];
        Ok(Output::Show(map(spec)))
    }

    pub(super) fn application_version_set(&mut self, context: &Context, args: &Args) -> Answer {
        let Some(version) = args.at_most(1)? else { return Err(usage("no version specified")) };
        if let Some(app) = self.applications.get_mut(app_of(&context.unit)) {
            app.workload_version = version.into();
        }
        Ok(Output::Silent)
    }

    pub(super) fn juju_log(&mut self, context: &Context, args: &Args) -> Answer {
        if args.words.is_empty() {
            return Err(usage("no message specified"));
        }
        const LEVELS: [&str; 6] = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];
        let given = args
            .value("log-level")
            .unwrap_or_else(|| if args.flag("debug") { "DEBUG" } else { "INFO" }.into());
        let upper = given.to_uppercase();
        let level = if LEVELS.contains(&upper.as_str()) { upper } else { "INFO".into() };
        let prefix = match (context.relation, &context.operation) {
            (Some(id), Operation::Hook(_)) => {
                let key = self.relations.get(&id).map(|relation| relation.key_for(app_of(&context.unit)));
                key.map_or(String::new(), |key| format!("{key}: "))
            }
            _ => String::new(),
        };
        let logger = format!("unit.{}.juju-log", context.unit);
        self.log(&context.unit.clone(), &level, &logger, format!("{prefix}{}", args.words.join(" ")));
        Ok(Output::Silent)
    }

    pub(super) fn juju_reboot(&mut self, context: &mut Context, args: &Args) -> Answer {
        if !matches!(context.operation, Operation::Hook(_)) {
            return Err(failure("juju-reboot is not supported when running an action."));
        }
        context.pending.reboot = true;
        let machine = self.units.get(&context.unit).map(|unit| unit.machine.clone());
        if args.flag("now")
            && let Some(machine) = machine.and_then(|machine| self.machines.get_mut(&machine))
        {
            machine.reboot = true;
        }
        Ok(Output::Silent)
    }

    pub(super) fn resource_get(&self, context: &Context, args: &Args) -> Answer {
        let Some(name) = args.at_most(1)? else { return Err(usage("missing required resource name")) };
        let app = &self.applications[app_of(&context.unit)];
        let tag = tag_of(&context.unit);
        let url = format!("https://{}/model/{}/units/{tag}/resources/{name}", self.api_address, self.uuid);
        let refuse = |why: String| {
            Err(failure(format!("could not download resource: HTTP request failed: Get {url}: {why}")))
        };
        let Some(filename) = app.charm.resources.get(name) else {
            let id = "00000000-0000-4000-8000-000000000000";
            return refuse(format!(
                "getting UUID of resource {name} for application {id}: resource not found"
            ));
        };
        let Some(resource) = app.resources.get(name) else {
            return refuse(format!("resource {name:?} not found"));
        };
        let data_dir = self.data_dir(&context.unit);
        let folder = format!("{data_dir}/agents/{tag}/resources");
        let path =
            if self.is_40() { format!("{folder}/{filename}") } else { format!("{folder}/{name}/{filename}") };
        Ok(Output::File { path, blob: resource.blob.clone() })
    }

    /// Where the agent of a unit's machine keeps its files.
    pub fn data_dir(&self, unit: &str) -> String {
        let machine = self.units.get(unit).and_then(|unit| self.machines.get(&unit.machine));
        machine.map_or("/var/lib/juju".into(), |machine| machine.data_dir.clone())
    }
}
