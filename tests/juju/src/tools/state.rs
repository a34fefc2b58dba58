//! state-get, state-set and state-delete.

use super::{Answer, Args, Output, failure, usage};
use crate::context::{Bag, Context};
use crate::data::{Data, text};
use crate::model::Model;

const KEY_LIMIT: usize = 256;
const VALUE_LIMIT: usize = 64 * 1024;

impl Model {
    fn unit_state(&self, context: &Context) -> Bag {
        let stored = || self.units.get(&context.unit).map(|unit| unit.state.clone()).unwrap_or_default();
        context.pending.state.clone().unwrap_or_else(stored)
    }

    pub(super) fn state_get(&self, context: &Context, args: &Args) -> Answer {
        let state = self.unit_state(context);
        match args.at_most(1)? {
            None | Some("-") if state.is_empty() => {
                let json = if self.is_40() { Data::Null } else { Data::Map(Vec::new()) };
                Ok(Output::Differ { json, other: Data::Map(Vec::new()) })
            }
            None | Some("-") => Ok(Output::Show(Data::strings(&state))),
            Some(key) => match state.get(key) {
                Some(value) => Ok(Output::Show(text(value))),
                None if args.flag("strict") => Err(failure(format!("{key:?} not found"))),
                None => Ok(Output::Show(text(""))),
            },
        }
    }

    pub(super) fn state_set(&self, context: &mut Context, args: &Args) -> Answer {
        if args.words.is_empty() && args.value("file").is_none() {
            return Ok(Output::Silent);
        }
        let words = args.pairs(0)?;
        let mut state = self.unit_state(context);
        for (key, value) in args.file_map()?.into_iter().chain(words) {
            if key.len() > KEY_LIMIT {
                return Err(failure(format!("max allowed key length ({KEY_LIMIT}) exceeded")));
            }
            if value.len() > VALUE_LIMIT {
                return Err(failure(format!("max allowed value length ({VALUE_LIMIT}) exceeded")));
            }
            state.insert(key, value);
        }
        context.pending.state = Some(state);
        Ok(Output::Silent)
    }

    pub(super) fn state_delete(&self, context: &mut Context, args: &Args) -> Answer {
        let Some(key) = args.at_most(1)? else { return Err(usage("missing required key")) };
        let mut state = self.unit_state(context);
        state.remove(key);
        context.pending.state = Some(state);
        Ok(Output::Silent)
    }
}
