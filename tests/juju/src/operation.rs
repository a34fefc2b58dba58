//! Beginning and ending what a unit runs.

use crate::context::{Context, Pending};
use crate::model::{
    ActionStatus, Hook, HookFailure, HookKind, HookRecord, Life, Model, Operation, Status, app_of, hex,
};
use crate::time::{Nanos, now};
use std::collections::{BTreeMap, BTreeSet};

/// How a hook ended.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its exit code.
    pub rc: i32,
    /// What ended it, if not itself (for actions: `exit status 3`, `signal: killed`).
    pub message: String,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Model {
    /// Begins an operation: makes its context and returns the context's id.
    pub fn begin(&mut self, unit_name: &str, operation: Operation) -> String {
        let name = self.operation_name(&operation);
        let id = format!("{unit_name}-{name}-{}", hex());
        let mut context = Context {
            id: id.clone(),
            unit: unit_name.into(),
            operation: operation.clone(),
            start: now(),
            relation: None,
            remote_unit: String::new(),
            remote_app: String::new(),
            version: 0,
            members: BTreeMap::new(),
            cache: BTreeMap::new(),
            pending: Pending::default(),
            not_leader: false,
            results: BTreeMap::new(),
            failure: None,
            calls: Vec::new(),
        };
        match &operation {
            Operation::Hook(hook) => self.begin_hook(unit_name, hook, &mut context),
            Operation::Action(task) | Operation::Exec(task) => self.begin_task(*task, &name, unit_name),
        }
        context.members = self.known_members(unit_name, &operation);
        if let Some(unit) = self.units.get(unit_name)
            && let Some(machine) = self.machines.get_mut(&unit.machine)
        {
            machine.running = Some(id.clone());
        }
        self.contexts.insert(id.clone(), context);
        id
    }

    /// The name that the history and the context id show.
    pub fn operation_name(&self, operation: &Operation) -> String {
        match operation {
            Operation::Hook(hook) => hook.name.clone(),
            Operation::Exec(_) => "juju-exec".into(),
            Operation::Action(task) => {
                self.actions.get(task).map_or(String::new(), |action| action.name.clone())
            }
        }
    }

    fn begin_hook(&mut self, unit_name: &str, hook: &Hook, context: &mut Context) {
        context.relation = hook.relation;
        context.remote_unit = hook.remote_unit.clone();
        context.remote_app = hook.remote_app.clone();
        if hook.kind == HookKind::RelationCreated
            && let Some(id) = hook.relation
        {
            self.enter_scope(unit_name, id);
        }
        context.version = self.remote_version(hook);
        let Some(unit) = self.units.get_mut(unit_name) else { return };
        if unit.fired.front() == Some(hook) {
            unit.fired.pop_front();
        }
        unit.resolved = None;
        unit.agent = Status::new("executing", &format!("running {} hook", hook.name));
        let note = match hook.kind {
            HookKind::Install if !unit.status_set => "installing charm software",
            HookKind::Stop => "stopping charm software",
            HookKind::Remove => "cleaning up prior to charm deletion",
            _ => return,
        };
        unit.status = Status::new("maintenance", note);
    }

    fn begin_task(&mut self, task: u64, name: &str, unit_name: &str) {
        if let Some(action) = self.actions.get_mut(&task) {
            action.status = ActionStatus::Running;
            action.started = Some(now());
        }
        if let Some(unit) = self.units.get_mut(unit_name) {
            unit.tasks.retain(|other| *other != task);
            unit.agent = Status::new("executing", &format!("running action {name}"));
        }
    }

    /// Members of each relation as the unit's agent knows them, this hook's own news included.
    fn known_members(&self, unit_name: &str, operation: &Operation) -> BTreeMap<u32, BTreeSet<String>> {
        let Some(unit) = self.units.get(unit_name) else { return BTreeMap::new() };
        let mut members: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
        for (id, local) in &unit.local.relations {
            members.insert(*id, local.members.keys().cloned().collect());
        }
        if let Operation::Hook(hook) = operation
            && let Some(id) = hook.relation
        {
            let of = members.entry(id).or_default();
            match hook.kind {
                HookKind::RelationJoined => drop(of.insert(hook.remote_unit.clone())),
                HookKind::RelationDeparted => drop(of.remove(&hook.remote_unit)),
                _ => {}
            }
        }
        members
    }

    /// Ends an operation: makes its changes if it ended well, and moves the unit on.
    pub fn finish(&mut self, id: &str, outcome: &Outcome) {
        let Some(context) = self.contexts.remove(id) else { return };
        let unit_name = context.unit.clone();
        let machine = self.units.get(&unit_name).map(|unit| unit.machine.clone());
        if let Some(machine) = machine.and_then(|machine| self.machines.get_mut(&machine)) {
            machine.running = None;
            machine.reboot |= context.pending.reboot && outcome.rc == 0;
        }
        let refused = if outcome.rc == 0 { self.commit(&context).err() } else { None };
        let rc = if refused.is_some() && outcome.rc == 0 { 1 } else { outcome.rc };
        if let Some(reason) = &refused {
            self.log(
                &unit_name,
                "ERROR",
                "juju.worker.uniter.context",
                format!("committing failed: {reason}"),
            );
        }
        let name = self.operation_name(&context.operation);
        let end = now();
        self.history.push(HookRecord {
            unit: unit_name.clone(),
            name: name.clone(),
            operation: context.operation.clone(),
            start: context.start,
            duration_ms: ((end - context.start) / 1_000_000) as u64,
            rc,
            refused: refused.clone(),
            calls: context.calls.clone(),
        });
        if let Some(unit) = self.units.get_mut(&unit_name) {
            unit.agent = Status::new("idle", "");
        }
        match &context.operation {
            Operation::Action(task) | Operation::Exec(task) => {
                self.finish_task(*task, &context, outcome, refused);
            }
            Operation::Hook(hook) if rc == 0 => self.hook_succeeded(&unit_name, hook, end, context.version),
            Operation::Hook(hook) => self.hook_failed(&unit_name, hook, end),
        }
    }

    /// Ends a hook that was cut off (machine lost, agent killed): the same one runs again.
    pub fn interrupt(&mut self, id: &str) {
        let Some(context) = self.contexts.remove(id) else { return };
        let Some(unit) = self.units.get_mut(&context.unit) else { return };
        unit.agent = Status::new("idle", "");
        match &context.operation {
            Operation::Hook(hook) => {
                unit.local.failed = None;
                unit.local.queued = Some(hook.clone());
            }
            Operation::Action(task) | Operation::Exec(task) => {
                if let Some(action) = self.actions.get_mut(task) {
                    action.status = ActionStatus::Failed;
                    action.message = "action terminated".into();
                    action.finished = Some(now());
                }
            }
        }
        if let Some(machine) = self.units.get(&context.unit).map(|unit| unit.machine.clone())
            && let Some(machine) = self.machines.get_mut(&machine)
        {
            machine.running = None;
        }
    }

    fn finish_task(&mut self, task: u64, context: &Context, outcome: &Outcome, refused: Option<String>) {
        let Some(action) = self.actions.get_mut(&task) else { return };
        action.finished = Some(now());
        action.rc = outcome.rc;
        action.stdout = outcome.stdout.clone();
        action.stderr = outcome.stderr.clone();
        action.results = context.results.clone();
        let exec = action.name == "juju-exec";
        let (status, message) = if action.cancelled {
            (ActionStatus::Aborted, outcome.message.clone())
        } else if let Some(reason) = refused {
            (ActionStatus::Failed, format!("committing requested changes failed: {reason}"))
        } else if let Some(message) = &context.failure {
            (ActionStatus::Failed, message.clone())
        } else if outcome.rc != 0 && !exec {
            (ActionStatus::Failed, outcome.message.clone())
        } else {
            (ActionStatus::Completed, String::new())
        };
        action.status = status;
        action.message = message;
    }

    fn hook_failed(&mut self, unit_name: &str, hook: &Hook, at: Nanos) {
        let retry = self.flag("automatically-retry-hooks", true);
        let tries =
            self.units.get(unit_name).and_then(|unit| unit.local.failed.as_ref()).map_or(0, |f| f.tries) + 1;
        let wait = self.retry_wait(tries);
        self.log(unit_name, "ERROR", "juju.worker.uniter.operation", format!("hook {:?} failed", hook.name));
        let Some(unit) = self.units.get_mut(unit_name) else { return };
        unit.local.failed =
            Some(HookFailure { hook: hook.clone(), tries, retry_at: retry.then_some(at + wait) });
    }

    /// Marks a failed hook as done without running it (`juju resolve --no-retry`).
    pub fn skip_failed(&mut self, unit_name: &str) {
        let failed = self.units.get_mut(unit_name).and_then(|unit| unit.local.failed.take());
        if let Some(failure) = failed {
            let version = self.remote_version(&failure.hook);
            self.hook_succeeded(unit_name, &failure.hook, now(), version);
        }
    }

    fn hook_succeeded(&mut self, unit_name: &str, hook: &Hook, at: Nanos, version: u64) {
        let interval = self.update_status_interval();
        let modified = self.applications.get(app_of(unit_name)).map_or(0, |app| app.modified);
        let leader = self.applications.get(app_of(unit_name)).and_then(|app| app.leader.clone());
        let is_leader = leader.as_deref() == Some(unit_name);
        let Some(unit) = self.units.get_mut(unit_name) else { return };
        if unit.local.failed.as_ref().is_some_and(|failure| failure.hook == *hook)
            || hook.name == "upgrade-charm"
        {
            unit.local.failed = None;
        }
        if unit.local.queued.as_ref() == Some(hook) {
            unit.local.queued = None;
        }
        match hook.kind {
            HookKind::Install => unit.local.installed = true,
            HookKind::Start => {
                unit.local.started = true;
                unit.local.rebooted = false;
                unit.update_status_at = at + interval.unwrap_or_default();
                if !unit.status_set {
                    unit.status = Status::new("unknown", "");
                }
            }
            HookKind::ConfigChanged => {
                unit.config_pending = unit.config_pending.saturating_sub(1);
                if !unit.local.started && unit.life == Life::Alive {
                    unit.local.queued = Some(Hook::plain("start"));
                }
            }
            HookKind::UpgradeCharm => {
                unit.local.modified = modified;
                unit.force_upgrade = false;
                unit.config_pending = 0;
                unit.local.queued = Some(Hook::plain("config-changed"));
            }
            HookKind::Stop => unit.local.stopped = true,
            HookKind::Remove => unit.local.removed = true,
            HookKind::UpdateStatus => unit.update_status_at = at + interval.unwrap_or_default(),
            HookKind::LeaderElected => unit.local.leader = true,
            HookKind::LeaderSettingsChanged => unit.local.leader_told = leader.unwrap_or_default(),
            _ => {}
        }
        unit.local.leader &= is_leader || hook.kind == HookKind::LeaderElected;
        if hook.relation.is_some() {
            self.relation_hook_done(unit_name, hook, version);
        } else if !hook.secret.is_empty() {
            self.secret_hook_done(unit_name, hook, at, version as u32);
        } else if hook.kind == HookKind::Remove {
            self.unit_removed(unit_name);
        }
    }
}
