//! config-get.

use super::{Answer, Args, Output, failure, usage};
use crate::context::Context;
use crate::data::Data;
use crate::model::{Model, app_of};

impl Model {
    pub(super) fn config_get(&self, context: &Context, args: &Args) -> Answer {
        let key = args.at_most(1)?;
        let all = args.flag("all");
        if let Some(key) = key
            && all
        {
            return Err(usage(format!("cannot use argument --all together with key {key:?}")));
        }
        let Some(app) = self.applications.get(app_of(&context.unit)) else {
            return Err(failure("application not found"));
        };
        let settings = app.settings();
        if let Some(key) = key {
            let value = settings.get(key).map_or(Data::Null, Data::from_json);
            return Ok(Output::Show(value));
        }
        let shown = settings.iter().filter(|(_, value)| all || !value.is_null());
        Ok(Output::Show(Data::Map(shown.map(|(key, value)| (key.clone(), Data::from_json(value))).collect())))
    }
}
