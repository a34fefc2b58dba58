//! status-set and status-get.

use super::{Answer, Args, Output, failure, usage};
use crate::context::Context;
use crate::data::{Data, map, text};
use crate::model::{Model, Status, app_of};

const WORDS: [&str; 4] = ["maintenance", "blocked", "waiting", "active"];

impl Model {
    pub(super) fn status_set(&mut self, context: &Context, args: &Args) -> Answer {
        let Some(word) = args.words.first() else {
            return Err(usage("invalid args, require <status> [message]"));
        };
        if !WORDS.contains(&word.as_str()) {
            return Err(usage(format!("invalid status {word:?}, expected one of [{}]", WORDS.join(" "))));
        }
        args.at_most(2)?;
        let status = Status::new(word, args.words.get(1).map_or("", String::as_str));
        if args.flag("application") {
            if !self.is_leader(&context.unit) {
                return Err(failure("this unit is not the leader"));
            }
            if let Some(app) = self.applications.get_mut(app_of(&context.unit)) {
                app.status = Some(status);
            }
        } else if let Some(unit) = self.units.get_mut(&context.unit) {
            unit.status = status;
            unit.status_set = true;
        }
        Ok(Output::Silent)
    }

    pub(super) fn status_get(&self, context: &Context, args: &Args) -> Answer {
        args.at_most(0)?;
        let full = args.flag("include-data");
        let plain = !full && args.value("format").is_none_or(|format| format == "smart");
        let Some(unit) = self.units.get(&context.unit) else { return Err(failure("unit not found")) };
        if !args.flag("application") {
            return Ok(Output::Show(if plain { text(&unit.status.word) } else { shown(&unit.status, full) }));
        }
        if !self.is_leader(&context.unit) {
            return Err(failure("finding application status: this unit is not the leader"));
        }
        let status = self.application_status(&unit.app);
        if plain {
            return Ok(Output::Show(text(status.word)));
        }
        let units =
            self.units_of(&unit.app).iter().map(|u| (u.name.clone(), shown(&u.status, full))).collect();
        let mut inner = shown(&status, full);
        inner.push("units", Data::Map(units));
        Ok(Output::Show(map([("application-status", inner)])))
    }

    /// The status of an application: its own, or that of its worst unit.
    pub fn application_status(&self, app: &str) -> Status {
        const WORST: [&str; 8] =
            ["error", "blocked", "maintenance", "waiting", "active", "terminated", "unknown", "unset"];
        if let Some(status) = self.applications.get(app).and_then(|app| app.status.clone()) {
            return status;
        }
        let rank = |word: &str| WORST.iter().position(|w| *w == word).unwrap_or(WORST.len());
        let units = self.units_of(app);
        let shown = units.iter().map(|unit| self.workload_status(unit));
        shown.min_by_key(|status| rank(&status.word)).unwrap_or_else(|| Status::new("unknown", ""))
    }

    /// The workload status that `juju status` shows: a failed hook hides the charm's own.
    pub fn workload_status(&self, unit: &crate::model::Unit) -> Status {
        match &unit.local.failed {
            Some(failure) => Status {
                word: "error".into(),
                message: format!("hook failed: {:?}", failure.hook.name),
                since: unit.status.since,
            },
            None => unit.status.clone(),
        }
    }
}

fn shown(status: &Status, full: bool) -> Data {
    if !full {
        return map([("status", text(&status.word))]);
    }
    map([
        ("message", text(&status.message)),
        ("status", text(&status.word)),
        ("status-data", Data::Map(Vec::new())),
    ])
}
