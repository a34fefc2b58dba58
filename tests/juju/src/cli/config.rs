//! config and model-config.

use super::{Call, CliError, Done, Out, failure, usage};
use crate::data::{Data, map, text};
use crate::model::{Application, Model};
use crate::validate::option_value;
use serde_json::Value;

impl Call<'_> {
    pub(super) fn config(&self, out: &mut Out) -> Done {
        let name = self.word(0, "no application name specified")?;
        let mut model = self.shared.lock();
        let four = model.is_40();
        let Some(app) = model.applications.get(name) else {
            return Err(failure(format!("application {name:?} not found")));
        };
        let words = &self.options.words[1..];
        let resets = self.options.all(&["reset"]);
        if let Some(file) = self.options.value(&["file"]) {
            return Err(refused(format!("config yaml not supported not implemented ({file})"), four));
        }
        if words.is_empty() && resets.is_empty() {
            let shown = whole(app);
            out.text(if self.options.format("yaml") == "json" {
                format!("{}\n", shown.json())
            } else {
                shown.yaml()
            });
            return Ok(0);
        }
        if let ([key], []) = (words, resets.as_slice())
            && !key.contains('=')
        {
            return show_one(app, key, out);
        }
        let mut config = app.config.clone();
        for key in resets.iter().flat_map(|keys| keys.split(',')) {
            if !app.charm.options.contains_key(key) {
                return Err(refused(format!("unknown option {key:?}"), four));
            }
            config.remove(key);
        }
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return Err(usage("cannot set and retrieve values simultaneously"));
            };
            let Some(option) = app.charm.options.get(key) else {
                return Err(refused(format!("invalid application config: unknown option {key:?}"), four));
            };
            let value = self.value_or_file(value)?;
            let value =
                option_value(key, &option.kind, &value).map_err(|error| refused(error.to_string(), four))?;
            config.insert(key.into(), value);
        }
        model.set_config(name, config);
        Ok(0)
    }

    /// `@FILE` stands for the file's text.
    fn value_or_file(&self, value: &str) -> Result<String, CliError> {
        match value.strip_prefix('@') {
            Some(file) => std::fs::read_to_string(self.path(file))
                .map_err(|error| failure(format!("cannot read option from file {file:?}: {error}"))),
            None => Ok(value.into()),
        }
    }

    pub(super) fn model_config(&self, out: &mut Out) -> Done {
        let mut model = self.shared.lock();
        for key in self.options.all(&["reset"]).iter().flat_map(|keys| keys.split(',')) {
            model.config.remove(key);
        }
        for word in &self.options.words {
            match word.split_once('=') {
                Some((key, value)) => {
                    model.config.insert(key.into(), value.into());
                }
                None => out.line(model.config.get(word).map_or("", String::as_str)),
            }
        }
        if self.options.words.is_empty() && self.options.all(&["reset"]).is_empty() {
            for (key, value) in &model.config {
                out.line(format!("{key}: {value}"));
            }
        }
        Ok(0)
    }
}

impl Model {
    /// Gives an application its options; config-changed follows if one of them moved (twice in 4.0.15).
    pub fn set_config(&mut self, app: &str, config: std::collections::BTreeMap<String, Value>) {
        let times = if self.is_40() { 2 } else { 1 };
        let Some(known) = self.applications.get_mut(app) else { return };
        let before = known.settings();
        known.config = config;
        if known.settings() == before {
            return;
        }
        for unit in self.units.values_mut().filter(|unit| unit.app == app) {
            let installed = unit.local.started;
            unit.config_pending = if installed { times } else { 1 };
        }
    }
}

fn refused(text: String, four: bool) -> CliError {
    CliError { out: if four { "{}\n" } else { "" }, ..failure(text) }
}

fn show_one(app: &Application, key: &str, out: &mut Out) -> Done {
    match app.settings().get(key) {
        Some(Value::String(value)) => out.line(value),
        Some(Value::Null) => out.line(""),
        Some(value) => out.line(value.to_string()),
        None => {
            return Err(failure(format!(
                "key {key:?} not found in {:?} application config or charm settings.",
                app.name
            )));
        }
    }
    Ok(0)
}

fn whole(app: &Application) -> Data {
    let settings = app.settings();
    let mut shown = Vec::new();
    for (name, option) in &app.charm.options {
        let mut entry = Data::Map(Vec::new());
        if !option.default.is_null() {
            entry.push("default", Data::from_json(&option.default));
        }
        entry.push("description", text(&option.description));
        let source = match app.config.contains_key(name) {
            true => "user",
            false if option.default.is_null() => "unset",
            false => "default",
        };
        entry.push("source", text(source));
        entry.push("type", text(&option.kind));
        if !settings[name].is_null() {
            entry.push("value", Data::from_json(&settings[name]));
        }
        shown.push((name.clone(), entry));
    }
    let trust = map([
        ("default", Data::Bool(false)),
        ("description", text("Does this application have access to trusted credentials")),
        ("source", text(if app.trusted { "user" } else { "default" })),
        ("type", text("bool")),
        ("value", Data::Bool(app.trusted)),
    ]);
    map([
        ("application", text(&app.name)),
        ("application-config", map([("trust", trust)])),
        ("charm", text(&app.charm.name)),
        ("settings", Data::Map(shown)),
    ])
}
