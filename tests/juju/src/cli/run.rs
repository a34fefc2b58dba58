//! Actions and commands: run and exec.

use super::{Call, Done, Out, failure, usage};
use crate::model::{Action, ActionStatus, Model, Operation, app_of, tag_of};
use crate::schema;
use crate::time::{civil, go_duration, now};
use anyhow::{Result, bail};
use serde_json::{Map, Value};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(60);

impl Model {
    /// Puts a task into a unit's queue and returns its number.
    fn enqueue(&mut self, unit: &str, name: &str, params: Value, script: &str) -> Result<u64> {
        let Some(known) = self.units.get_mut(unit) else { bail!("unit {unit:?} not found") };
        let (operation, id) = (self.next_task, self.next_task + 1);
        self.next_task += 2;
        known.tasks.push_back(id);
        let action = Action {
            id,
            operation,
            unit: unit.into(),
            name: name.into(),
            params,
            script: script.into(),
            local: false,
            status: ActionStatus::Pending,
            cancelled: false,
            message: String::new(),
            results: Default::default(),
            rc: 0,
            stdout: String::new(),
            stderr: String::new(),
            log: Vec::new(),
            enqueued: now(),
            started: None,
            finished: None,
        };
        self.actions.insert(id, action);
        Ok(id)
    }

    /// Takes a task out of its queue, or has it killed.
    fn cancel(&mut self, id: u64) {
        let running = self.contexts.values().find(|context| {
            context.operation == Operation::Action(id) || context.operation == Operation::Exec(id)
        });
        self.kills.extend(running.map(|context| context.id.clone()));
        let waits = running.is_none();
        let Some(action) = self.actions.get_mut(&id).filter(|action| !action.status.is_final()) else {
            return;
        };
        action.cancelled = true;
        if waits {
            action.status = ActionStatus::Aborted;
            action.finished = Some(now());
            if let Some(unit) = self.units.get_mut(&action.unit) {
                unit.tasks.retain(|task| *task != id);
            }
        }
    }

    /// Puts commands into a unit's queue.
    pub fn enqueue_exec(&mut self, unit: &str, script: &str) -> Result<u64> {
        self.enqueue(unit, "juju-exec", Value::Object(Map::new()), script)
    }

    /// Puts an action into a unit's queue; one with wrong parameters ends at once (4.0) or is refused (3.6).
    pub fn enqueue_action(&mut self, unit: &str, name: &str, params: Value) -> Result<u64> {
        let Some(app) = self.applications.get(app_of(unit)) else { bail!("unit {unit:?} not found") };
        let Some(declared) = app.charm.actions.get(name) else {
            bail!("action {name:?} not defined for unit {unit:?}. (not found)");
        };
        let declared = declared.clone();
        let wrong = schema::check(&declared, &params, !self.is_40());
        if let Some(wrong) = wrong {
            if !self.is_40() {
                bail!("{wrong}");
            }
            let id = self.enqueue(unit, name, params, "")?;
            if let Some(unit) = self.units.get_mut(unit) {
                unit.tasks.retain(|task| *task != id);
            }
            if let Some(action) = self.actions.get_mut(&id) {
                action.status = ActionStatus::Error;
                action.message = format!("cannot run {name:?} action: {wrong}");
            }
            return Ok(id);
        }
        self.enqueue(unit, name, schema::with_defaults(&declared, params), "")
    }
}

impl Call<'_> {
    pub(super) fn run_action(&self, out: &mut Out) -> Done {
        let units: Vec<&String> =
            self.options.words.iter().take_while(|word| word.contains('/') && !word.contains('=')).collect();
        let Some(name) = self.options.words.get(units.len()) else {
            return Err(usage("no action specified"));
        };
        if units.is_empty() {
            return Err(usage("no unit specified"));
        }
        if units.iter().any(|unit| app_of(unit) != app_of(units[0])) {
            return Err(usage("all units must be of the same application"));
        }
        let params = self.params(&self.options.words[units.len() + 1..])?;
        let mut model = self.shared.lock();
        let mut tasks = Vec::new();
        for unit in units {
            let unit = Self::unit_named(&model, unit)?;
            tasks.push(model.enqueue_action(&unit, name, params.clone())?);
        }
        drop(model);
        self.shared.kick();
        self.await_tasks(&tasks, out)
    }

    fn params(&self, words: &[String]) -> Result<Value, super::CliError> {
        let mut params = Value::Object(Map::new());
        if let Some(file) = self.options.value(&["params"]) {
            let text = std::fs::read_to_string(self.path(file))
                .map_err(|error| failure(format!("open {file}: {error}")))?;
            params = serde_yaml::from_str(&text).map_err(|error| failure(error.to_string()))?;
        }
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return Err(usage(format!("argument {word:?} must be of the form key.key.key...=value")));
            };
            let parsed = match self.options.flag("string-args") {
                true => Value::from(value),
                false => serde_yaml::from_str(value).unwrap_or_else(|_| Value::from(value)),
            };
            let mut slot = &mut params;
            for part in key.split('.') {
                if !crate::validate::is_kebab(part) {
                    return Err(usage(format!(
                        "key {part:?} must start and end with lowercase alphanumeric, and contain only lowercase \
                         alphanumeric and hyphens"
                    )));
                }
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                slot = &mut slot[part];
            }
            *slot = parsed;
        }
        Ok(params)
    }

    pub(super) fn exec(&self, out: &mut Out) -> Done {
        let mut words = self.options.words.clone();
        words.extend(self.options.rest.clone());
        if words.is_empty() {
            return Err(usage("no commands specified"));
        }
        let script = words.join(" ");
        let mut model = self.shared.lock();
        let mut units = Vec::new();
        for given in self.options.all(&["unit", "u"]).iter().flat_map(|units| units.split(',')) {
            units.push(Self::unit_named(&model, given)?);
        }
        for app in self.options.all(&["application", "a"]).iter().flat_map(|apps| apps.split(',')) {
            units.extend(model.units_of(app).iter().map(|unit| unit.name.clone()));
        }
        if units.is_empty() {
            return Err(usage("you must specify a target with --all, --machine, --application or --unit"));
        }
        let mut tasks = Vec::new();
        for unit in units {
            tasks.push(model.enqueue_exec(&unit, &script)?);
        }
        drop(model);
        self.shared.kick();
        self.await_tasks(&tasks, out)
    }

    pub(super) fn show_task(&self, out: &mut Out) -> Done {
        let id = self.task()?;
        let model = self.shared.lock();
        let exec = model.actions.get(&id).is_some_and(|action| action.name == "juju-exec");
        if !model.actions.contains_key(&id) {
            out.line("{}");
            return Err(failure("id not found"));
        }
        self.show_tasks(&model, &[id], exec, out)
    }

    pub(super) fn cancel_task(&self) -> Done {
        let id = self.task()?;
        self.shared.lock().cancel(id);
        Ok(0)
    }

    fn task(&self) -> Result<u64, super::CliError> {
        let word = self.word(0, "no task ID specified")?;
        word.parse().map_err(|_| usage(format!("invalid task ID {word:?}")))
    }

    fn await_tasks(&self, tasks: &[u64], out: &mut Out) -> Done {
        let mut model = self.shared.lock();
        let exec = model.actions[&tasks[0]].name == "juju-exec";
        let operation = model.actions[&tasks[0]].operation;
        if !exec {
            if self.options.flag("background") {
                out.note(format!("Scheduled operation {operation} with task {}", tasks[0]));
                out.note(format!("Check operation status with 'juju show-operation {operation}'"));
                out.note(format!("Check task status with 'juju show-task {}'", tasks[0]));
                return Ok(0);
            }
            let plural = if tasks.len() == 1 { "" } else { "s" };
            out.note(format!("Running operation {operation} with {} task{plural}", tasks.len()));
            for task in tasks {
                out.note(format!("  - task {task} on {}", tag_of(&model.actions[task].unit)));
            }
            out.note("");
        }
        let wait = self
            .options
            .value(&["wait"])
            .and_then(go_duration)
            .map(|nanos| Duration::from_nanos(nanos as u64));
        let deadline = Instant::now() + wait.unwrap_or(WAIT);
        for task in tasks {
            if !exec {
                out.note(format!("Waiting for task {task}..."));
            }
            let mut told = 0;
            loop {
                let action = &model.actions[task];
                let lines: Vec<_> = action.log[told..]
                    .iter()
                    .map(|(at, line)| format!("{} {line}", civil(*at).clock()))
                    .collect();
                told += lines.len();
                let over = action.status.is_final();
                for line in &lines {
                    out.note(line);
                }
                if over {
                    break;
                }
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(failure(format!("timed out waiting for results from: unit {}", action.unit)));
                }
                model = self.shared.wait(model, left);
            }
            if told > 0 {
                out.note("");
            }
        }
        self.show_tasks(&model, tasks, exec, out)
    }
}
