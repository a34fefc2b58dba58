//! Results of actions and commands, as the client prints them.

use super::{Call, Done, Out, failure};
use crate::data::{Data, map, text};
use crate::model::{Action, ActionStatus, Model};
use crate::time::civil;

impl Call<'_> {
    pub(super) fn show_tasks(&self, model: &Model, tasks: &[u64], exec: bool, out: &mut Out) -> Done {
        let actions: Vec<&Action> = tasks.iter().map(|task| &model.actions[task]).collect();
        match self.options.format("plain").as_str() {
            "json" | "yaml" => {
                let all =
                    Data::Map(actions.iter().map(|action| (action.unit.clone(), whole(action))).collect());
                out.text(if self.options.format("") == "json" {
                    format!("{}\n", all.json())
                } else {
                    all.yaml()
                });
            }
            _ => actions.iter().for_each(|action| plain(action, exec, actions.len() > 1, out)),
        }
        let failed: Vec<_> = actions.iter().filter(|action| action.rc != 0).collect();
        if failed.is_empty() {
            return Ok(0);
        }
        let plural = if failed.len() == 1 { "" } else { "s" };
        let mut note = format!("the following task{plural} failed:\n");
        for action in failed {
            note.push_str(&format!(" - id \"{}\" with return code {}\n", action.id, action.rc));
        }
        Err(failure(format!("{note}\nuse 'juju show-task' to inspect the failure\n")))
    }
}

fn results(action: &Action) -> Vec<(String, Data)> {
    let mut pairs: Vec<(String, Data)> =
        action.results.iter().map(|(key, value)| (key.clone(), Data::from_json(value))).collect();
    pairs.push(("return-code".into(), Data::Int(i64::from(action.rc))));
    for (key, value) in [("stderr", &action.stderr), ("stdout", &action.stdout)] {
        if !value.is_empty() {
            pairs.push((key.into(), text(value)));
        }
    }
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    pairs
}

fn whole(action: &Action) -> Data {
    let mut shown = map([("id", text(action.id.to_string()))]);
    if !action.log.is_empty() {
        let lines = action.log.iter().map(|(at, line)| Data::Raw(format!("{} {line}", civil(*at).go())));
        shown.push("log", Data::List(lines.collect()));
    }
    if !action.message.is_empty() {
        shown.push("message", text(&action.message));
    }
    if action.started.is_some() {
        shown.push("results", Data::Map(results(action)));
    }
    shown.push("status", text(action.status.word()));
    let mut timing = map([("enqueued", Data::Raw(civil(action.enqueued).go()))]);
    if let Some(at) = action.started {
        timing.push("started", Data::Raw(civil(at).go()));
    }
    shown.push("timing", timing);
    shown.push("unit", text(&action.unit));
    shown
}

fn plain(action: &Action, exec: bool, several: bool, out: &mut Out) {
    if exec {
        if several {
            out.line(format!("{}: ", action.unit));
        }
        out.text(action.stdout.clone());
        (out.print)(crate::wire::Printed::Err(action.stderr.clone()));
        return;
    }
    if matches!(action.status, ActionStatus::Failed | ActionStatus::Error) {
        out.line(format!("Action id {} failed: {}", action.id, action.message));
    }
    if action.started.is_none() {
        return;
    }
    let set: Vec<_> = results(action)
        .into_iter()
        .filter(|(key, _)| !["return-code", "stdout", "stderr"].contains(&key.as_str()))
        .collect();
    if !set.is_empty() {
        out.text(Data::Map(set).yaml());
    }
    out.line("");
    for printed in [&action.stdout, &action.stderr] {
        out.text(printed.clone());
    }
}
