//! Verbs that real Juju does not have: steering and watching for tests.

use super::{Call, Done, Out, failure, usage};
use crate::data::{Data, map, text, texts};
use crate::model::{Fault, HookRecord, Model, Operation, app_of};
use crate::time::{civil, go_duration, now};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const SETTLE: Duration = Duration::from_secs(60);

impl Call<'_> {
    pub(super) fn emulate(&self, out: &mut Out) -> Done {
        let verb = self.word(0, "emulate what? fire, kill, elect, fail-tool, settle, hooks, calls, dump")?;
        match verb {
            "fire" => self.fire(),
            "kill" => self.kill(),
            "elect" => self.elect(),
            "fail-tool" => self.fail_tool(),
            "settle" => self.settle(),
            "hooks" => self.hooks(out),
            "calls" => self.calls(out),
            "dump" => {
                out.line(self.shared.lock().dump());
                Ok(0)
            }
            other => Err(usage(format!("unknown verb: emulate {other}"))),
        }
    }

    fn fire(&self) -> Done {
        let unit = self.word(1, "fire: which unit?")?;
        let name = self.word(2, "fire: which hook?")?;
        let mut model = self.shared.lock();
        let mut hook = model.hook_named(unit, name)?;
        if let Some(about) = self.options.words.get(3) {
            if about.contains('/') {
                (hook.remote_unit, hook.departing) = (about.clone(), about.clone());
            } else {
                hook = model.secret_hook(unit, name, about)?;
            }
        }
        if let Some(unit) = model.units.get_mut(unit) {
            unit.fired.push_back(hook);
        }
        Ok(0)
    }

    fn kill(&self) -> Done {
        let unit = self.word(1, "kill: which unit?")?;
        let mut model = self.shared.lock();
        let running =
            model.contexts.values().find(|context| context.unit == unit).map(|context| context.id.clone());
        match running {
            Some(context) => model.kills.push(context),
            None => return Err(failure(format!("nothing runs on {unit:?}"))),
        }
        Ok(0)
    }

    fn elect(&self) -> Done {
        let unit = self.word(1, "elect: which unit?")?;
        let mut model = self.shared.lock();
        if !model.units.contains_key(unit) {
            return Err(failure(format!("unit {unit:?} not found")));
        }
        model.elect(app_of(unit), Some(unit));
        Ok(0)
    }

    fn fail_tool(&self) -> Done {
        let unit = self.word(1, "fail-tool: which unit?")?.to_string();
        let tool = self.word(2, "fail-tool: which tool?")?.to_string();
        let times = u32::try_from(self.options.number(&["times"], 1)?).unwrap_or(u32::MAX);
        let text = self.options.value(&["text"]).unwrap_or("connection is shut down").to_string();
        let mut model = self.shared.lock();
        model.faults.retain(|fault| fault.unit != unit || fault.tool != tool);
        model.faults.push(Fault { unit, tool, times, text });
        Ok(0)
    }

    fn settle(&self) -> Done {
        let given = self.options.value(&["timeout"]);
        let given = given.and_then(|value| {
            go_duration(value).or_else(|| Some(value.parse::<u128>().ok()? * 1_000_000_000))
        });
        let wait = given.map_or(SETTLE, |nanos| Duration::from_nanos(nanos as u64));
        let deadline = Instant::now() + wait;
        let mut model = self.shared.lock();
        self.shared.kick();
        loop {
            let pending = model.pending();
            if pending.is_empty() {
                return Ok(0);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(failure(format!(
                    "not settled after {}s:\n  {}",
                    wait.as_secs(),
                    pending.join("\n  ")
                )));
            }
            model = self.shared.wait(model, left.min(Duration::from_millis(500)));
        }
    }

    fn chosen<'a>(&self, model: &'a Model) -> Vec<&'a HookRecord> {
        let wanted = self.options.words.get(1);
        model
            .history
            .iter()
            .filter(|record| wanted.is_none_or(|unit| record.unit == *unit || app_of(&record.unit) == unit))
            .collect()
    }

    fn hooks(&self, out: &mut Out) -> Done {
        let model = self.shared.lock();
        let records = self.chosen(&model);
        if self.options.format("tabular") == "json" {
            out.line(Data::List(records.into_iter().map(shown).collect()).json());
            return Ok(0);
        }
        let head = ["Unit", "Start", "ms", "rc", "Calls", "Hook"];
        let mut rows = vec![head.iter().map(ToString::to_string).collect::<Vec<_>>()];
        for record in records {
            rows.push(vec![
                record.unit.clone(),
                civil(record.start).clock(),
                record.duration_ms.to_string(),
                record.rc.to_string(),
                record.calls.len().to_string(),
                record.name.clone(),
            ]);
        }
        out.text(super::status::table(&rows, &[2, 3, 4]));
        Ok(0)
    }

    fn calls(&self, out: &mut Out) -> Done {
        let mut model = self.shared.lock();
        if self.options.flag("reset") {
            model.history.clear();
            return Ok(0);
        }
        let mut counts: BTreeMap<String, i64> = BTreeMap::new();
        for call in self.chosen(&model).iter().flat_map(|record| &record.calls) {
            *counts.entry(call.tool.clone()).or_default() += 1;
        }
        out.line(
            Data::Map(counts.into_iter().map(|(tool, count)| (tool, Data::Int(count))).collect()).json(),
        );
        Ok(0)
    }
}

fn shown(record: &HookRecord) -> Data {
    let mut counts: BTreeMap<&String, i64> = BTreeMap::new();
    for call in &record.calls {
        *counts.entry(&call.tool).or_default() += 1;
    }
    let calls = record.calls.iter().map(|call| {
        map([
            ("tool", text(&call.tool)),
            ("args", texts(call.args.clone())),
            ("rc", Data::Int(i64::from(call.rc))),
        ])
    });
    let about = match &record.operation {
        Operation::Hook(hook) if hook.relation.is_some() => map([
            ("relation", Data::Int(i64::from(hook.relation.unwrap_or_default()))),
            ("remote-app", text(&hook.remote_app)),
            ("remote-unit", text(&hook.remote_unit)),
            ("departing-unit", text(&hook.departing)),
        ]),
        Operation::Hook(hook) if !hook.secret.is_empty() => map([("secret", text(&hook.secret))]),
        Operation::Hook(_) => Data::Null,
        Operation::Action(task) | Operation::Exec(task) => map([("task", Data::Int(*task as i64))]),
    };
    map([
        ("unit", text(&record.unit)),
        ("hook", text(&record.name)),
        ("start", text(civil(record.start).rfc3339())),
        ("duration-ms", Data::Int(record.duration_ms as i64)),
        ("rc", Data::Int(i64::from(record.rc))),
        ("refused", record.refused.as_ref().map_or(Data::Null, text)),
        ("about", about),
        (
            "counts",
            Data::Map(counts.into_iter().map(|(tool, count)| (tool.clone(), Data::Int(count))).collect()),
        ),
        ("calls", Data::List(calls.collect())),
    ])
}

impl Model {
    /// Everything that still has to happen, in words.
    pub fn pending(&self) -> Vec<String> {
        let at = now();
        let mut pending: Vec<String> =
            self.contexts.keys().map(|context| format!("running: {context}")).collect();
        for unit in self.units.values() {
            if let Some(failure) = &unit.local.failed {
                pending.push(format!(
                    "{}: hook failed {} times: {:?}",
                    unit.name, failure.tries, failure.hook.name
                ));
            } else if let Some(operation) = self.next_operation(&unit.name, at) {
                pending.push(format!("{}: {} is next", unit.name, self.operation_name(&operation)));
            } else if unit.life != crate::model::Life::Alive {
                pending.push(format!("{}: is going", unit.name));
            }
            if self.machines.get(&unit.machine).is_some_and(|machine| !machine.connected) {
                pending.push(format!("{}: machine {} has no agent", unit.name, unit.machine));
            }
        }
        pending
    }
}
