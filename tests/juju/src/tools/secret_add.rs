//! Changing secrets: secret-add, secret-set, secret-grant, secret-revoke and secret-remove.

use super::secret::uri_argument;
use super::{Answer, Args, Output, ToolError, failure, usage};
use crate::commit::apply_details;
use crate::context::{Bag, Context, SecretChange, SecretDetails};
use crate::data::text;
use crate::model::{Model, Owner, Secret, app_of, rotation_period, xid};
use crate::time::{Nanos, go_duration, now, parse_rfc3339};

/// `[a-z](-?[a-z0-9]){2,}`
pub fn is_secret_key(key: &str) -> bool {
    let letters = key.chars().filter(|c| *c != '-').count();
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    letters >= 3
        && key.starts_with(|c: char| c.is_ascii_lowercase())
        && key.chars().all(inner)
        && !key.ends_with('-')
        && !key.contains("--")
}

/// Content from `key=value`, `key#base64=…` and `key#file=…` words over a file's.
pub fn content_of(args: &Args, words: &[String]) -> Result<Bag, ToolError> {
    let mut raw = args.file_map()?;
    for word in words {
        match word.split_once('=') {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => {
                raw.insert(key.into(), value.into())
            }
            _ => return Err(usage(format!("key value {word:?} not valid"))),
        };
    }
    let mut content = Bag::new();
    for (key, value) in raw {
        let (name, kind) = key.split_once('#').unwrap_or((&key, ""));
        if !is_secret_key(name) {
            return Err(usage(format!("key {name:?} not valid")));
        }
        let value = match kind {
            "base64" => crate::base64::decode(&value)
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .ok_or_else(|| usage(format!("illegal base64 data in key {name:?}")))?,
            "file" => match args.files.get(&value) {
                Some(text) => text.clone(),
                None => {
                    return Err(failure(format!(
                        "reading content for secret key {name:?}: open {value}: no such file or directory"
                    )));
                }
            },
            _ => value,
        };
        content.insert(name.into(), value);
    }
    Ok(content)
}

fn details(args: &Args) -> Result<SecretDetails, ToolError> {
    let rotate = args.value("rotate").filter(|rotate| !rotate.is_empty());
    if let Some(policy) = &rotate
        && policy != "never"
        && rotation_period(policy).is_none()
    {
        return Err(usage(format!("rotate policy {policy:?} not valid")));
    }
    let expires =
        args.value("expire").filter(|expire| !expire.is_empty()).map(|expire| expiry(&expire)).transpose()?;
    let given = |name: &str| args.value(name).filter(|value| !value.is_empty());
    Ok(SecretDetails { label: given("label"), description: given("description"), rotate, expires })
}

fn expiry(value: &str) -> Result<Nanos, ToolError> {
    let at = go_duration(value).map(|duration| now() + duration).or_else(|| parse_rfc3339(value));
    at.ok_or_else(|| usage(format!("expire time or duration {value:?} not valid")))
}

impl Model {
    pub(super) fn secret_add(&self, context: &mut Context, args: &Args) -> Answer {
        let owner = args.value("owner").unwrap_or_else(|| "application".into());
        if !["application", "unit"].contains(&owner.as_str()) {
            return Err(usage(format!("secret owner {owner:?} not valid")));
        }
        let details = details(args)?;
        if args.words.is_empty() && args.value("file").is_none() {
            return Err(usage("missing secret value or filename"));
        }
        let content = content_of(args, &args.words)?;
        let app = app_of(&context.unit);
        let owner = if owner == "unit" { Owner::Unit(context.unit.clone()) } else { Owner::App(app.into()) };
        if matches!(owner, Owner::App(_)) && !self.is_leader(&context.unit) {
            return Err(failure("this unit is not the leader"));
        }
        self.label_is_free(context, details.label.as_deref(), None)?;
        let id = xid();
        let mut secret = Secret::new(&id, owner, content, now());
        apply_details(&mut secret, &details, now());
        context.pending.secrets.push(SecretChange::Add(Box::new(secret)));
        let uri = if self.is_40() { format!("secret://{}/{id}", self.uuid) } else { format!("secret:{id}") };
        Ok(Output::Show(text(uri)))
    }

    fn label_is_free(
        &self,
        context: &Context,
        label: Option<&str>,
        own: Option<&str>,
    ) -> Result<(), ToolError> {
        let Some(label) = label else { return Ok(()) };
        match self.labelled(context, label) {
            Some(id) if Some(id.as_str()) != own => {
                Err(failure(format!("secret with label {label:?} already exists")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn secret_set(&self, context: &mut Context, args: &Args) -> Answer {
        let Some(word) = args.words.first() else { return Err(usage("missing secret URI")) };
        let id = uri_argument(word)?;
        let details = details(args)?;
        let content = content_of(args, &args.words[1..])?;
        let content = (!content.is_empty()).then_some(content);
        for change in &mut context.pending.secrets {
            if let SecretChange::Add(secret) = change
                && secret.id == id
            {
                apply_details(secret, &details, now());
                if let Some(content) = content {
                    secret.revisions.insert(1, content);
                }
                return Ok(Output::Silent);
            }
        }
        context.pending.secrets.push(SecretChange::Set { id, content, details });
        Ok(Output::Silent)
    }

    fn own_secret(&self, context: &Context, args: &Args) -> Result<String, ToolError> {
        let Some(word) = args.at_most(1)? else { return Err(usage("missing secret URI")) };
        let id = uri_argument(word)?;
        let stored = self.secrets.get(&id);
        if self.added(context, &id).is_none() && stored.is_none_or(|secret| !secret.belongs_to(&context.unit))
        {
            return Err(failure(format!("secret {id:?} not found")));
        }
        let app_owned = stored.is_some_and(|secret| matches!(secret.owner, Owner::App(_)));
        if app_owned && !self.is_leader(&context.unit) {
            return Err(failure(format!("secret {id:?} not found")));
        }
        Ok(id)
    }

    pub(super) fn secret_grant(&self, context: &mut Context, args: &Args) -> Answer {
        let relation = match args.value("relation") {
            Some(given) => self.relation_argument(context, &given)?,
            None => context.relation.ok_or_else(|| usage("no relation id specified"))?,
        };
        let id = self.own_secret(context, args)?;
        let remote = self.relations[&relation].other_end(app_of(&context.unit)).app.clone();
        let target = match args.value("unit").filter(|unit| !unit.is_empty()) {
            Some(unit) if app_of(&unit) != remote => {
                return Err(usage(format!(
                    "cannot specify unit {unit:?} in relation to application {remote:?}"
                )));
            }
            Some(unit) => unit,
            None => remote,
        };
        context.pending.secrets.push(SecretChange::Grant { id, target, relation });
        Ok(Output::Silent)
    }

    pub(super) fn secret_revoke(&self, context: &mut Context, args: &Args) -> Answer {
        let relation =
            args.value("relation").map(|given| self.relation_argument(context, &given)).transpose()?;
        let target = args.value("unit").or(args.value("app")).or(args.value("application"));
        let id = self.own_secret(context, args)?;
        let relation = if target.is_none() { relation.or(context.relation) } else { relation };
        context.pending.secrets.push(SecretChange::Revoke { id, target, relation });
        Ok(Output::Silent)
    }

    pub(super) fn secret_remove(&self, context: &mut Context, args: &Args) -> Answer {
        let Some(word) = args.at_most(1)? else { return Err(usage("missing secret URI")) };
        let id = uri_argument(word)?;
        let revision = match args.value("revision") {
            None => None,
            Some(given) => match given.parse() {
                Ok(0) | Err(_) => return Err(usage("revision must be a positive integer")),
                Ok(revision) => Some(revision),
            },
        };
        let added = |change: &SecretChange| matches!(change, SecretChange::Add(secret) if secret.id == id);
        if revision.is_none() && context.pending.secrets.iter().any(added) {
            // Made and gone within one hook: nothing is left to commit.
            let about = |change: &SecretChange| match change {
                SecretChange::Add(secret) => secret.id == id,
                SecretChange::Set { id: other, .. }
                | SecretChange::Grant { id: other, .. }
                | SecretChange::Revoke { id: other, .. }
                | SecretChange::Remove { id: other, .. }
                | SecretChange::TrackLatest { id: other } => *other == id,
            };
            context.pending.secrets.retain(|change| !about(change));
            return Ok(Output::Silent);
        }
        context.pending.secrets.push(SecretChange::Remove { id, revision });
        Ok(Output::Silent)
    }
}
