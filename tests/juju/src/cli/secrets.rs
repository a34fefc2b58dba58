//! Secrets of the operator, and a look at all.

use super::{Call, CliError, Done, Out, failure, usage};
use crate::context::Bag;
use crate::data::{Data, map, text};
use crate::model::{Grant, Model, Owner, Secret, xid};
use crate::time::{civil, now};
use crate::tools::{is_secret_key, secret_id};

impl Call<'_> {
    fn content(&self, words: &[String]) -> Result<Bag, CliError> {
        let mut content = Bag::new();
        if let Some(file) = self.options.value(&["file"]) {
            let text = match (file, &self.command.stdin) {
                ("-", Some(stdin)) => stdin.clone(),
                _ => std::fs::read_to_string(self.path(file))
                    .map_err(|error| failure(format!("open {file}: {error}")))?,
            };
            content = serde_yaml::from_str(&text).map_err(|error| failure(error.to_string()))?;
        }
        for word in words {
            let Some((key, value)) = word.split_once('=').filter(|(_, value)| !value.is_empty()) else {
                return Err(usage(format!("key value {word:?} not valid")));
            };
            let (key, value) = match key.split_once('#') {
                Some((key, "file")) => {
                    let read = std::fs::read_to_string(self.path(value));
                    (key, read.map_err(|error| failure(format!("open {value}: {error}")))?)
                }
                _ => (key, value.to_string()),
            };
            content.insert(key.into(), value);
        }
        match content.keys().find(|key| !is_secret_key(key)) {
            Some(key) => Err(usage(format!("key {key:?} not valid"))),
            None => Ok(content),
        }
    }

    pub(super) fn add_secret(&self, out: &mut Out) -> Done {
        let name = self.word(0, "missing secret name")?;
        let content = self.content(&self.options.words[1..])?;
        if content.is_empty() {
            return Err(usage("missing secret value or filename"));
        }
        let mut model = self.shared.lock();
        if model.user_secret(name).is_ok() {
            return Err(failure(format!("secret with name {name:?} already exists")));
        }
        let mut secret = Secret::new(&xid(), Owner::Model, content, now());
        secret.label = name.into();
        out.line(format!("secret:{}", secret.id));
        model.secrets.insert(secret.id.clone(), secret);
        Ok(0)
    }

    pub(super) fn update_secret(&self) -> Done {
        let name = self.word(0, "missing secret URI or name")?;
        let content = self.content(&self.options.words[1..])?;
        let mut model = self.shared.lock();
        let id = model.user_secret(name)?;
        if let Some(secret) = model.secrets.get_mut(&id) {
            secret.add_revision(content, now());
        }
        Ok(0)
    }

    pub(super) fn remove_secret(&self) -> Done {
        let name = self.word(0, "missing secret URI or name")?;
        let mut model = self.shared.lock();
        let id = model.user_secret(name)?;
        let revision = self.options.value(&["revision"]).and_then(|revision| revision.parse().ok());
        model.remove_secret(&id, revision);
        Ok(0)
    }

    pub(super) fn grant_secret(&self, give: bool) -> Done {
        let name = self.word(0, "missing secret URI or name")?;
        let apps = self.word(1, "missing application name")?;
        let mut model = self.shared.lock();
        let id = model.user_secret(name)?;
        for app in apps.split(',') {
            if !model.applications.contains_key(app) {
                return Err(failure(format!("application {app:?} not found")));
            }
            let grant = Grant { target: app.into(), relation: None };
            if let Some(secret) = model.secrets.get_mut(&id) {
                secret.grants.retain(|known| *known != grant);
                if give {
                    secret.grants.push(grant);
                }
            }
        }
        Ok(0)
    }

    pub(super) fn secrets(&self, out: &mut Out) -> Done {
        let model = self.shared.lock();
        if self.options.format("tabular") != "tabular" {
            let all =
                model.secrets.values().map(|secret| (secret.id.clone(), model.secret_shown(secret, false)));
            let all = Data::Map(all.collect());
            out.text(if self.options.format("") == "json" {
                format!("{}\n", all.json())
            } else {
                all.yaml()
            });
            return Ok(0);
        }
        let head = ["ID", "Name", "Owner", "Rotation", "Revision", "Last updated"];
        let mut rows = vec![head.iter().map(ToString::to_string).collect::<Vec<_>>()];
        for secret in model.secrets.values() {
            let (name, owner) = match &secret.owner {
                Owner::Model => (secret.label.clone(), "<model>".to_string()),
                Owner::App(owner) | Owner::Unit(owner) => ("-".into(), owner.clone()),
            };
            let revision = secret.latest().to_string();
            rows.push(vec![
                secret.id.clone(),
                name,
                owner,
                secret.rotate.clone(),
                revision,
                civil(secret.updated).status(),
            ]);
        }
        out.text(super::status::table(&rows, &[4]));
        Ok(0)
    }

    pub(super) fn show_secret(&self, out: &mut Out) -> Done {
        let name = self.word(0, "missing secret URI or name")?;
        let model = self.shared.lock();
        let id = secret_id(name)
            .filter(|id| model.secrets.contains_key(id))
            .map_or_else(|| model.user_secret(name), Ok);
        let Ok(id) = id else {
            return Err(CliError { out: "{}\n", ..failure(format!("secret {name:?} not found")) });
        };
        let shown = map([(id.clone(), model.secret_shown(&model.secrets[&id], self.options.flag("reveal")))]);
        out.text(if self.options.format("yaml") == "json" {
            format!("{}\n", shown.json())
        } else {
            shown.yaml()
        });
        Ok(0)
    }
}

impl Model {
    /// The id of the operator's secret of a name or id.
    pub fn user_secret(&self, name: &str) -> anyhow::Result<String> {
        let id = secret_id(name);
        let own = |secret: &&Secret| {
            secret.owner == Owner::Model && (secret.label == name || Some(&secret.id) == id.as_ref())
        };
        match self.secrets.values().find(own) {
            Some(secret) => Ok(secret.id.clone()),
            None => {
                anyhow::bail!("getting user secret for label {name:?}: secret with label {name:?} not found")
            }
        }
    }

    fn secret_shown(&self, secret: &Secret, reveal: bool) -> Data {
        let (owner, name) = match &secret.owner {
            Owner::Model => ("<model>".to_string(), "name"),
            Owner::App(owner) | Owner::Unit(owner) => (owner.clone(), "label"),
        };
        let mut shown = map([
            ("revision", Data::Int(i64::from(secret.latest()))),
            ("rotation", text(&secret.rotate)),
            ("owner", text(owner)),
        ]);
        if !secret.description.is_empty() {
            shown.push("description", text(&secret.description));
        }
        if !secret.label.is_empty() {
            shown.push(name, text(&secret.label));
        }
        shown.push("created", Data::Raw(civil(secret.created).rfc3339()));
        shown.push("updated", Data::Raw(civil(secret.updated).rfc3339()));
        if reveal {
            shown.push("content", Data::strings(&secret.revisions[&secret.latest()]));
        }
        if !secret.grants.is_empty() {
            shown.push("access", Data::List(secret.grants.iter().map(|grant| self.access(grant)).collect()));
        }
        shown
    }
}
