//! Reading secrets: secret-get, secret-info-get, secret-ids; and giving the right to read.

use super::{Answer, Args, Output, ToolError, failure, usage};
use crate::context::{Bag, Context, SecretChange};
use crate::data::{Data, map, text, texts};
use crate::model::{Model, Owner, Secret, app_of, tag_of};
use crate::time::civil;

/// The bare id in `secret:ID`, `secret://MODEL/ID` or `ID`.
pub fn secret_id(uri: &str) -> Option<String> {
    let rest = uri.strip_prefix("secret:").unwrap_or(uri);
    let id = rest.rsplit('/').next().unwrap_or(rest);
    let digits = |c: char| c.is_ascii_digit() || ('a'..='v').contains(&c);
    (id.len() == 20 && id.chars().all(digits)).then(|| id.into())
}

pub(super) fn uri_argument(word: &str) -> Result<String, ToolError> {
    secret_id(word).ok_or_else(|| usage(format!("secret URI {word:?} not valid")))
}

impl Model {
    /// A secret of this hook's making.
    pub(super) fn added<'a>(&self, context: &'a Context, id: &str) -> Option<&'a Secret> {
        let gone = |change: &SecretChange| matches!(change, SecretChange::Remove { id: other, revision: None } if other == id);
        if context.pending.secrets.iter().any(gone) {
            return None;
        }
        context.pending.secrets.iter().find_map(|change| match change {
            SecretChange::Add(secret) if secret.id == id => Some(secret.as_ref()),
            _ => None,
        })
    }

    /// Whether this unit may change a secret.
    pub(super) fn owns(&self, context: &Context, secret: &Secret) -> bool {
        match &secret.owner {
            Owner::Model => false,
            Owner::App(app) => app == app_of(&context.unit) && self.is_leader(&context.unit),
            Owner::Unit(unit) => *unit == context.unit,
        }
    }

    /// The id of the secret that this unit calls `label`.
    pub(super) fn labelled(&self, context: &Context, label: &str) -> Option<String> {
        let added = context.pending.secrets.iter().find_map(|change| match change {
            SecretChange::Add(secret) if secret.label == label => Some(secret.id.clone()),
            SecretChange::Set { id, details, .. } if details.label.as_deref() == Some(label) => {
                Some(id.clone())
            }
            _ => None,
        });
        let own = |secret: &&Secret| secret.belongs_to(&context.unit) && secret.label == label;
        let consumed =
            |secret: &&Secret| secret.consumers.get(&context.unit).is_some_and(|c| c.label == label);
        let stored = self.secrets.values().find(own).or_else(|| self.secrets.values().find(consumed));
        added.or_else(|| stored.map(|secret| secret.id.clone()))
    }

    pub(super) fn secret_get(&mut self, context: &mut Context, args: &Args) -> Answer {
        let id = args.at_most(2)?.filter(|word| !word.is_empty()).map(uri_argument).transpose()?;
        let label = args.value("label").filter(|label| !label.is_empty());
        let (peek, refresh) = (args.flag("peek"), args.flag("refresh"));
        if id.is_none() && label.is_none() {
            return Err(usage("require either a secret URI or label"));
        }
        if peek && refresh {
            return Err(usage("specify one of --peek or --refresh but not both"));
        }
        let by_label = || label.as_deref().and_then(|label| self.labelled(context, label));
        let Some(id) = id.clone().or_else(by_label) else {
            let label = label.unwrap_or_default();
            let what = if self.is_40() { "secret URI for consumer label" } else { "consumer label" };
            return Err(failure(format!("{what} {label:?} not found")));
        };
        let content = match self.added(context, &id) {
            Some(secret) => secret.revisions.values().next_back().cloned().unwrap_or_default(),
            None => self.read_secret(context, &id, label, peek, refresh)?,
        };
        let Some(key) = args.words.get(1) else { return Ok(Output::Show(Data::strings(&content))) };
        let (name, encode) = key.strip_suffix("#base64").map_or((key.as_str(), false), |name| (name, true));
        match content.get(name) {
            Some(value) if encode => Ok(Output::Show(text(crate::base64::encode(value.as_bytes())))),
            Some(value) => Ok(Output::Show(text(value))),
            None => Err(failure(format!("secret key value {name:?} not found"))),
        }
    }

    fn read_secret(
        &mut self,
        context: &mut Context,
        id: &str,
        label: Option<String>,
        peek: bool,
        refresh: bool,
    ) -> Result<Bag, ToolError> {
        let unit = context.unit.clone();
        let legacy = !self.is_40();
        let missing = || {
            failure(if legacy {
                format!("secret {id:?} not found")
            } else {
                "getting latest secret revision: secret not found".into()
            })
        };
        let Some(secret) = self.secrets.get_mut(id) else { return Err(missing()) };
        let own = secret.belongs_to(&unit);
        let granted = secret.grants.iter().any(|grant| grant.target == unit || grant.target == app_of(&unit));
        if !own && !granted {
            return Err(failure("permission denied"));
        }
        let latest = secret.latest();
        let pinned = secret.consumers.get(&unit).map(|consumer| consumer.revision);
        let pending = context.pending.secrets.iter().rev().find_map(|change| match change {
            SecretChange::Set { id: other, content: Some(content), .. } if other == id => {
                Some(content.clone())
            }
            _ => None,
        });
        if let Some(content) = pending
            && (peek || refresh || pinned.is_none_or(|revision| revision == 0))
        {
            if refresh {
                context.pending.secrets.push(SecretChange::TrackLatest { id: id.into() });
            }
            return Ok(content);
        }
        let revision = match pinned {
            _ if peek || refresh => latest,
            None | Some(0) => latest,
            Some(revision) => revision,
        };
        if !peek {
            let consumer = secret.consumers.entry(unit.clone()).or_default();
            consumer.revision = revision;
            consumer.told = consumer.told.max(revision);
        }
        if let Some(label) = label.filter(|_| !own) {
            secret.consumers.entry(unit).or_default().label = label;
        }
        secret.revisions.get(&revision).cloned().ok_or_else(missing)
    }

    pub(super) fn secret_ids(&self, context: &Context) -> Answer {
        let stored =
            self.secrets.values().filter(|secret| self.owns(context, secret)).map(|secret| secret.id.clone());
        let added = context.pending.secrets.iter().filter_map(|change| match change {
            SecretChange::Add(secret) => self.added(context, &secret.id).map(|secret| secret.id.clone()),
            _ => None,
        });
        let ids: Vec<String> = stored.chain(added).collect();
        let json = if ids.is_empty() { Data::Null } else { texts(ids.clone()) };
        Ok(Output::Differ { json, other: texts(ids) })
    }

    pub(super) fn secret_info_get(&self, context: &Context, args: &Args) -> Answer {
        let id = args.at_most(1)?.filter(|word| !word.is_empty()).map(uri_argument).transpose()?;
        let label = args.value("label").filter(|label| !label.is_empty());
        let id = match (id, label) {
            (None, None) => return Err(usage("require either a secret URI or label")),
            (Some(_), Some(_)) => return Err(usage("specify either a secret URI or label but not both")),
            (Some(id), None) => id,
            (None, Some(label)) => self
                .labelled(context, &label)
                .ok_or_else(|| failure(format!("secret {label:?} not found")))?,
        };
        let info = match (self.added(context, &id), self.secrets.get(&id)) {
            (Some(secret), _) => self.info(secret, true),
            (None, Some(secret)) if self.owns(context, secret) => self.info(secret, false),
            _ => return Err(failure(format!("secret {id:?} not found"))),
        };
        Ok(Output::Show(map([(id, info)])))
    }

    fn info(&self, secret: &Secret, pending: bool) -> Data {
        let owner = if matches!(secret.owner, Owner::Unit(_)) { "unit" } else { "application" };
        let mut info = map([
            ("revision", Data::Int(i64::from(secret.latest()))),
            ("label", text(&secret.label)),
            ("owner", text(owner)),
        ]);
        if !secret.description.is_empty() {
            info.push("description", text(&secret.description));
        }
        // What is never rotated says so only once it is stored.
        let unsaid = if pending { "never" } else { "" };
        if !["", unsaid].contains(&secret.rotate.as_str()) {
            info.push("rotation", text(&secret.rotate));
        }
        if let Some(at) = secret.expires {
            info.push("expiry", Data::Raw(civil(at).rfc3339()));
        }
        if let Some(at) = secret.rotates.filter(|_| !pending) {
            info.push("rotates", Data::Raw(civil(at).rfc3339()));
        }
        let grants: Vec<Data> = secret.grants.iter().map(|grant| self.access(grant)).collect();
        if !grants.is_empty() && !pending {
            info.push("access", Data::List(grants));
        }
        info
    }

    /// A grant as Juju lists it.
    pub fn access(&self, grant: &crate::model::Grant) -> Data {
        let target = match grant.target.contains('/') {
            true => tag_of(&grant.target),
            false => format!("application-{}", grant.target),
        };
        let scope = match grant.relation.and_then(|id| self.relations.get(&id)) {
            Some(relation) => {
                let ends = relation.endpoints.iter().rev().map(|end| format!("{}.{}", end.app, end.name));
                format!("relation-{}", ends.collect::<Vec<_>>().join("#"))
            }
            None => format!("model-{}", self.uuid),
        };
        map([("target", text(target)), ("scope", text(scope)), ("role", text("view"))])
    }
}
