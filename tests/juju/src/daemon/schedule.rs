//! Handing out work: one hook at a time on each machine.

use super::Daemon;
use crate::model::{Hook, HookKind, Model, Operation, app_of};
use crate::time::now;
use crate::tools::{TOOLS, TOOLS_36};
use crate::wire::{Job, ToAgent};
use std::time::Duration;

const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// Hands out work for ever.
pub fn run(daemon: &Daemon) {
    let mut model = daemon.shared.lock();
    loop {
        let jobs = hand_out(&mut model);
        let began = !jobs.is_empty();
        for (machine, message) in jobs {
            daemon.tell(&machine, &message);
        }
        if began {
            daemon.shared.kick();
            continue;
        }
        let at = now();
        let due =
            model.units.values().filter_map(|unit| model.next_wakeup(unit)).filter(|due| *due > at).min();
        let sleep = due
            .map_or(LONGEST_SLEEP, |due| Duration::from_nanos(u64::try_from(due - at).unwrap_or(u64::MAX)));
        model = daemon.shared.wait(model, sleep.min(LONGEST_SLEEP));
    }
}

/// Begins what can begin now.
fn hand_out(model: &mut Model) -> Vec<(String, ToAgent)> {
    model.synchronize();
    let mut messages = Vec::new();
    for context in std::mem::take(&mut model.kills) {
        let machine = model.machines.values().find(|machine| machine.running.as_ref() == Some(&context));
        if let Some(machine) = machine {
            messages.push((machine.id.clone(), ToAgent::Kill { context }));
        }
    }
    let free: Vec<String> = model
        .machines
        .values()
        .filter(|machine| machine.connected && machine.running.is_none() && machine.network.is_some())
        .map(|machine| machine.id.clone())
        .collect();
    for id in free {
        let gone = model.machines.get_mut(&id).map(|machine| std::mem::take(&mut machine.removed_units));
        for unit in gone.into_iter().flatten() {
            messages.push((id.clone(), ToAgent::RemoveUnit { unit }));
        }
        if let Some(machine) = model.machines.get_mut(&id).filter(|machine| machine.reboot) {
            machine.reboot = false;
            machine.connected = false;
            messages.push((id, ToAgent::Reboot));
            continue;
        }
        let mut units: Vec<_> = model.units.values().filter(|unit| unit.machine == id).collect();
        units.sort_by_key(|unit| unit.agent.since);
        let next =
            units.iter().find_map(|unit| Some((unit.name.clone(), model.next_operation(&unit.name, now())?)));
        if let Some((unit, operation)) = next {
            let job = job(model, &unit, operation);
            messages.push((id, ToAgent::Run(job)));
        }
    }
    messages
}

fn job(model: &mut Model, unit: &str, operation: Operation) -> Job {
    let unpack =
        matches!(&operation, Operation::Hook(Hook { kind: HookKind::Install | HookKind::UpgradeCharm, .. }));
    let script = match &operation {
        Operation::Exec(task) => {
            model.actions.get(task).map_or(String::new(), |action| action.script.clone())
        }
        _ => String::new(),
    };
    let context = model.begin(unit, operation);
    let env = model.environment(&model.contexts[&context]);
    let dispatch = env.iter().find(|(key, _)| key == "JUJU_DISPATCH_PATH").map(|(_, path)| path.clone());
    let app = &model.applications[app_of(unit)];
    let extra: &[&str] = if model.is_40() { &[] } else { &TOOLS_36 };
    Job {
        context,
        unit: unit.into(),
        blob: app.blob.clone(),
        charm: format!("local:{}-{}", app.charm.name, app.revision),
        unpack,
        dispatch: dispatch.unwrap_or_default(),
        script,
        env,
        tools: TOOLS.iter().chain(extra).map(ToString::to_string).collect(),
        version: model.version.clone(),
    }
}
