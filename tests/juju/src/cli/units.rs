//! Machines, units and applications: adding, removing, exposing.

use super::{Call, CliError, Done, Out, failure, usage};
use crate::model::{Model, app_of};

/// The machines for `count` new units: those that `--to` names, then new ones.
pub(super) fn placements(model: &mut Model, to: Option<&str>, count: usize) -> Result<Vec<String>, CliError> {
    let mut named: Vec<String> =
        to.into_iter().flat_map(|to| to.split(',')).map(|to| to.trim().to_string()).collect();
    for machine in &named {
        if !model.machines.contains_key(machine) {
            return Err(failure(format!("machine {machine} not found")));
        }
    }
    named.truncate(count);
    while named.len() < count {
        named.push(model.add_machine());
    }
    Ok(named)
}

impl Call<'_> {
    pub(super) fn add_machine(&self, out: &mut Out) -> Done {
        let mut model = self.shared.lock();
        let count = self.options.number(&["n"], 1)?;
        for _ in 0..count {
            let id = model.add_machine();
            out.note(format!("created machine {id}"));
        }
        Ok(0)
    }

    pub(super) fn add_unit(&self) -> Done {
        let app = self.word(0, "no application specified")?;
        let mut model = self.shared.lock();
        if !model.applications.contains_key(app) {
            return Err(failure(format!("application {app:?} not found")));
        }
        let count = self.options.number(&["num-units", "n"], 1)?;
        for machine in placements(&mut model, self.options.value(&["to"]), count)? {
            model.add_unit(app, &machine, "")?;
        }
        Ok(0)
    }

    pub(super) fn remove_unit(&self, out: &mut Out) -> Done {
        self.word(0, "no units specified")?;
        let mut model = self.shared.lock();
        for unit in &self.options.words {
            if self.options.flag("force") {
                model.force_remove_unit(unit)?;
            } else {
                model.remove_unit(unit)?;
            }
            out.line(format!("will remove unit {unit}"));
        }
        Ok(0)
    }

    pub(super) fn remove_application(&self, out: &mut Out) -> Done {
        self.word(0, "no application specified")?;
        let mut model = self.shared.lock();
        for app in &self.options.words {
            let units = model.remove_application(app)?;
            out.line(format!("will remove application {app}"));
            for unit in units {
                out.line(format!("- will remove unit {unit}"));
            }
        }
        Ok(0)
    }

    pub(super) fn expose(&self, exposed: bool) -> Done {
        let app = self.word(0, "no application name specified")?;
        let mut model = self.shared.lock();
        match model.applications.get_mut(app) {
            Some(app) => app.exposed = exposed,
            None => return Err(failure(format!("application {app:?} not found"))),
        }
        Ok(0)
    }

    pub(super) fn trust(&self) -> Done {
        let app = self.word(0, "no application name specified")?;
        let mut model = self.shared.lock();
        match model.applications.get_mut(app) {
            Some(app) => app.trusted = !self.options.flag("remove"),
            None => return Err(failure(format!("application {app:?} not found"))),
        }
        for unit in model.units.values_mut().filter(|unit| unit.app == app) {
            unit.config_pending = unit.config_pending.max(1);
        }
        Ok(0)
    }

    pub(super) fn resolve(&self) -> Done {
        self.word(0, "no unit specified")?;
        let mut model = self.shared.lock();
        for unit in &self.options.words {
            let Some(known) = model.units.get_mut(unit) else {
                return Err(failure(format!("unit {unit:?} not found")));
            };
            if known.local.failed.is_none() {
                return Err(failure(format!(
                    "resolving unit: checking unit {unit:?} status: unit is not in error state"
                )));
            }
            if self.options.flag("no-retry") {
                model.skip_failed(unit);
            } else {
                known.resolved = Some(true);
            }
        }
        Ok(0)
    }

    /// `APP/N` or `APP/leader` as a unit's name.
    pub(super) fn unit_named(model: &Model, given: &str) -> Result<String, CliError> {
        let app = app_of(given);
        if given.ends_with("/leader") {
            let leader = model.applications.get(app).and_then(|app| app.leader.clone());
            return leader.ok_or_else(|| failure(format!("could not determine leader for {app:?}")));
        }
        if !given.contains('/') {
            return Err(usage(format!("invalid unit or application name {given:?}")));
        }
        if !model.units.contains_key(given) {
            return Err(failure(format!("unit {given:?} not found")));
        }
        Ok(given.into())
    }
}
