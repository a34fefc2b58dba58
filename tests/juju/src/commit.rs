//! Making the changes that a hook asked for, all or none.

use crate::context::{Context, SecretChange, SecretDetails};
use crate::model::{Grant, Hook, HookKind, Model, Owner, Secret, app_of};
use crate::time::{Nanos, now};
use std::collections::BTreeMap;

impl Model {
    /// Makes a context's pending changes, or says why not one of them is made.
    pub fn commit(&mut self, context: &Context) -> Result<(), String> {
        self.check(context)?;
        for (id, bags) in &context.pending.bags {
            for (owner, changes) in bags {
                let changed =
                    self.relations.get_mut(id).is_some_and(|relation| relation.write(owner, changes));
                if changed {
                    self.forget_own_write(&context.unit, *id, owner);
                }
            }
        }
        if let Some(unit) = self.units.get_mut(&context.unit) {
            if let Some(state) = &context.pending.state {
                unit.state = state.clone();
            }
            if let Some(ports) = &context.pending.ports {
                unit.ports = ports.clone();
            }
        }
        for change in &context.pending.secrets {
            self.change_secret(&context.unit, change);
        }
        Ok(())
    }

    fn check(&self, context: &Context) -> Result<(), String> {
        let app = app_of(&context.unit);
        let leader = self.is_leader(&context.unit);
        for (id, bags) in &context.pending.bags {
            if !self.relations.contains_key(id) {
                return Err(format!("cannot write relation settings: relation {id} not found"));
            }
            if bags.contains_key(app) && !leader {
                return Err(format!("checking leadership: {:?} is not leader of {app:?}", context.unit));
            }
        }
        let mut added: Vec<&String> = Vec::new();
        for change in &context.pending.secrets {
            let id = match change {
                SecretChange::Add(secret) => {
                    if secret.owner == Owner::App(app.into()) && !leader {
                        return Err(format!("creating secret: {:?} is not leader of {app:?}", context.unit));
                    }
                    added.push(&secret.id);
                    continue;
                }
                SecretChange::Set { id, .. }
                | SecretChange::Grant { id, .. }
                | SecretChange::Revoke { id, .. }
                | SecretChange::Remove { id, .. } => id,
                SecretChange::TrackLatest { .. } => continue,
            };
            if added.contains(&id) {
                continue;
            }
            let Some(secret) = self.secrets.get(id) else { return Err(format!("secret {id:?} not found")) };
            let may = match &secret.owner {
                Owner::Model => false,
                Owner::App(owner) => owner == app && leader,
                Owner::Unit(owner) => *owner == context.unit,
            };
            if !may {
                return Err(format!("changing secret {id:?}: permission denied"));
            }
        }
        Ok(())
    }

    fn change_secret(&mut self, unit: &str, change: &SecretChange) {
        let at = now();
        match change {
            SecretChange::Add(secret) => {
                let mut secret = secret.as_ref().clone();
                if secret.rotate.is_empty() {
                    secret.rotate = "never".into();
                }
                self.secrets.insert(secret.id.clone(), secret);
            }
            SecretChange::Set { id, content, details } => {
                let Some(secret) = self.secrets.get_mut(id) else { return };
                apply_details(secret, details, at);
                if let Some(content) = content
                    && secret.add_revision(content.clone(), at)
                {
                    own_write(secret, unit);
                }
            }
            SecretChange::Grant { id, target, relation } => {
                let grant = Grant { target: target.clone(), relation: Some(*relation) };
                if let Some(secret) = self.secrets.get_mut(id)
                    && !secret.grants.contains(&grant)
                {
                    secret.grants.push(grant);
                }
            }
            SecretChange::Revoke { id, target, relation } => {
                if let Some(secret) = self.secrets.get_mut(id) {
                    let matches = |grant: &Grant| {
                        target.as_ref().is_none_or(|target| grant.target == *target)
                            && (relation.is_none() || grant.relation == *relation)
                    };
                    secret.grants.retain(|grant| !matches(grant));
                }
            }
            SecretChange::Remove { id, revision } => self.remove_secret(id, *revision),
            SecretChange::TrackLatest { id } => {
                if let Some(secret) = self.secrets.get_mut(id) {
                    let latest = secret.latest();
                    let consumer = secret.consumers.entry(unit.into()).or_default();
                    consumer.revision = latest;
                    consumer.told = latest;
                }
            }
        }
    }

    /// Takes a secret or one of its revisions away.
    pub fn remove_secret(&mut self, id: &str, revision: Option<u32>) {
        let Some(secret) = self.secrets.get_mut(id) else { return };
        if let Some(revision) = revision {
            secret.revisions.remove(&revision);
        }
        if revision.is_none() || secret.revisions.is_empty() {
            self.secrets.remove(id);
        }
    }

    pub(crate) fn secret_hook_done(&mut self, unit: &str, hook: &Hook, at: Nanos, seen: u32) {
        let Some(secret) = self.secrets.get_mut(&hook.secret) else { return };
        match hook.kind {
            HookKind::SecretChanged => {
                if let Some(consumer) = secret.consumers.get_mut(unit) {
                    consumer.told = seen;
                }
            }
            HookKind::SecretExpired => secret.expired_told = hook.revision,
            HookKind::SecretRemove => secret.obsolete_told.push(hook.revision),
            HookKind::SecretRotate => {
                let period = crate::model::rotation_period(&secret.rotate);
                secret.rotates = period.map(|period| at + period);
            }
            _ => {}
        }
    }
}

/// Own writes are no news to the writer.
fn own_write(secret: &mut Secret, unit: &str) {
    let latest = secret.latest();
    if let Some(consumer) = secret.consumers.get_mut(unit) {
        consumer.told = latest;
    }
}

/// Gives a secret the details that were named.
pub fn apply_details(secret: &mut Secret, details: &SecretDetails, at: Nanos) {
    if let Some(label) = &details.label {
        secret.label = label.clone();
    }
    if let Some(description) = &details.description {
        secret.description = description.clone();
    }
    if let Some(rotate) = &details.rotate {
        secret.rotate = rotate.clone();
        secret.rotates = crate::model::rotation_period(rotate).map(|period| at + period);
    }
    if details.expires.is_some() {
        secret.expires = details.expires;
    }
}

/// A secret's content as a map of texts.
pub type Content = BTreeMap<String, String>;
