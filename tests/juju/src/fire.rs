//! Hooks by name, for those that are fired by hand.

use crate::model::{Endpoint, Hook, HookKind, Model};
use crate::tools::secret_id;
use anyhow::{Result, bail};

impl Model {
    /// A hook by its full name, with the relation, remote unit or secret that fits best.
    pub fn hook_named(&self, unit: &str, name: &str) -> Result<Hook> {
        let Some(known) = self.units.get(unit) else { bail!("unit {unit:?} not found") };
        let kinds = [
            ("created", HookKind::RelationCreated),
            ("joined", HookKind::RelationJoined),
            ("changed", HookKind::RelationChanged),
            ("departed", HookKind::RelationDeparted),
            ("broken", HookKind::RelationBroken),
        ];
        for (suffix, kind) in kinds {
            let Some(endpoint) = name.strip_suffix(&format!("-relation-{suffix}")) else { continue };
            let own = |end: &Endpoint| end.app == known.app && end.name == endpoint;
            let Some(relation) = self.relations.values().find(|relation| relation.endpoints.iter().any(own))
            else {
                bail!("{unit} has no relation on {endpoint:?}");
            };
            let remote = match kind {
                HookKind::RelationCreated | HookKind::RelationBroken => String::new(),
                _ => relation.counterparts(unit).first().map_or(String::new(), |name| (*name).clone()),
            };
            let mut hook =
                Hook::relation(kind, endpoint, relation.id, &relation.other_end(&known.app).app, &remote);
            hook.departing = remote;
            return Ok(hook);
        }
        Ok(Hook::plain(name))
    }

    /// A secret hook about the secret of this id or label.
    pub fn secret_hook(&self, unit: &str, name: &str, secret: &str) -> Result<Hook> {
        let kind = match name {
            "secret-changed" => HookKind::SecretChanged,
            "secret-expired" => HookKind::SecretExpired,
            "secret-remove" => HookKind::SecretRemove,
            "secret-rotate" => HookKind::SecretRotate,
            _ => bail!("{name:?} is not about a secret"),
        };
        let id = secret_id(secret);
        let consumed = |label: Option<&str>| label == Some(secret);
        let found = self.secrets.values().find(|known| {
            Some(&known.id) == id.as_ref()
                || known.label == secret
                || consumed(known.consumers.get(unit).map(|consumer| consumer.label.as_str()))
        });
        match found {
            Some(known) => Ok(Hook::secret(kind, name, &known.id, known.latest())),
            None => bail!("secret {secret:?} not found"),
        }
    }
}
