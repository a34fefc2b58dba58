//! action-get, action-set, action-fail and action-log.

use super::{Answer, Args, Output, ToolError, failure, usage};
use crate::context::Context;
use crate::data::Data;
use crate::model::{Model, Operation};
use crate::time::now;
use crate::validate::is_kebab;
use serde_json::{Map, Value};

const RESERVED: [&str; 4] = ["stdout", "stderr", "stdout-encoding", "stderr-encoding"];

impl Model {
    fn running_action(context: &Context) -> Result<u64, ToolError> {
        match &context.operation {
            Operation::Action(task) | Operation::Exec(task) => Ok(*task),
            Operation::Hook(_) => Err(failure("not running an action")),
        }
    }

    pub(super) fn action_get(&self, context: &Context, args: &Args) -> Answer {
        let key = args.at_most(1)?;
        let task = Self::running_action(context)?;
        let mut value = self.actions.get(&task).map_or(&Value::Null, |action| &action.params);
        for part in key.into_iter().flat_map(|key| key.split('.')) {
            value = value.get(part).unwrap_or(&Value::Null);
        }
        Ok(Output::Show(Data::from_json(value)))
    }

    pub(super) fn action_set(&self, context: &mut Context, args: &Args) -> Answer {
        let mut pairs = Vec::new();
        for word in &args.words {
            let Some((key, value)) = word.split_once('=').filter(|(key, _)| !key.is_empty()) else {
                return Err(usage(format!("argument {word:?} must be of the form key...=value")));
            };
            for part in key.split('.') {
                if !is_kebab(part) {
                    return Err(usage(format!(
                        "key {part:?} must start and end with lowercase alphanumeric, and contain only lowercase \
                         alphanumeric and hyphens"
                    )));
                }
                if RESERVED.contains(&part) {
                    return Err(usage(format!("cannot set reserved action key {part:?}")));
                }
            }
            pairs.push((key, value));
        }
        Self::running_action(context)?;
        for (key, value) in pairs {
            let parts: Vec<&str> = key.split('.').collect();
            let slot = context.results.entry(parts[0].into()).or_insert(Value::Null);
            put(slot, &parts[1..], value);
        }
        Ok(Output::Silent)
    }

    pub(super) fn action_fail(&self, context: &mut Context, args: &Args) -> Answer {
        let message =
            args.at_most(1)?.unwrap_or("action failed without reason given, check action for errors");
        Self::running_action(context)?;
        context.failure = Some(message.into());
        Ok(Output::Silent)
    }

    pub(super) fn action_log(&mut self, context: &Context, args: &Args) -> Answer {
        if args.words.is_empty() {
            return Err(usage("no message specified"));
        }
        let task = Self::running_action(context)?;
        if let Some(action) = self.actions.get_mut(&task) {
            action.log.push((now(), args.words.join(" ")));
        }
        Ok(Output::Silent)
    }
}

fn put(slot: &mut Value, path: &[&str], value: &str) {
    let Some((first, rest)) = path.split_first() else {
        *slot = Value::from(value);
        return;
    };
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    if let Some(object) = slot.as_object_mut() {
        put(object.entry(*first).or_insert(Value::Null), rest, value);
    }
}
