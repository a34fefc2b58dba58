//! What a unit can be asked to run.

use serde::{Deserialize, Serialize};

/// The kinds of hook of a machine charm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookKind {
    /// First of all.
    Install,
    /// After the first config-changed, and after a boot.
    Start,
    /// Options, addresses or the charm changed.
    ConfigChanged,
    /// New charm or resource.
    UpgradeCharm,
    /// Before the end.
    Stop,
    /// The last.
    Remove,
    /// Now and then.
    UpdateStatus,
    /// This unit leads now.
    LeaderElected,
    /// Another unit leads now (3.6).
    LeaderSettingsChanged,
    /// A secret that the unit reads has a new revision.
    SecretChanged,
    /// A secret of the unit expired.
    SecretExpired,
    /// Nobody uses a revision any more.
    SecretRemove,
    /// A secret is to be rotated.
    SecretRotate,
    /// A relation is there.
    RelationCreated,
    /// A remote unit is there.
    RelationJoined,
    /// Remote data changed.
    RelationChanged,
    /// A remote unit is gone.
    RelationDeparted,
    /// The relation is gone.
    RelationBroken,
    /// Any other name (fired by hand).
    Other(String),
}

impl HookKind {
    /// The kind of a plain hook name (relation hooks and unknown names are `Other`).
    pub fn of(name: &str) -> HookKind {
        match name {
            "install" => HookKind::Install,
            "start" => HookKind::Start,
            "config-changed" => HookKind::ConfigChanged,
            "upgrade-charm" => HookKind::UpgradeCharm,
            "stop" => HookKind::Stop,
            "remove" => HookKind::Remove,
            "update-status" => HookKind::UpdateStatus,
            "leader-elected" => HookKind::LeaderElected,
            "leader-settings-changed" => HookKind::LeaderSettingsChanged,
            other => HookKind::Other(other.into()),
        }
    }
}

/// A hook with what it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// Its kind.
    pub kind: HookKind,
    /// Its full name, for example `db-relation-joined`.
    pub name: String,
    /// The relation, for relation hooks.
    pub relation: Option<u32>,
    /// The remote application.
    pub remote_app: String,
    /// The remote unit; empty in -created, -broken and for application data.
    pub remote_unit: String,
    /// Who leaves, in -departed.
    pub departing: String,
    /// The secret, for secret hooks.
    pub secret: String,
    /// Its revision, in secret-expired and secret-remove.
    pub revision: u32,
}

impl Hook {
    /// A hook that is about nothing but the unit.
    pub fn plain(name: &str) -> Hook {
        Hook {
            kind: HookKind::of(name),
            name: name.into(),
            relation: None,
            remote_app: String::new(),
            remote_unit: String::new(),
            departing: String::new(),
            secret: String::new(),
            revision: 0,
        }
    }

    /// A secret hook.
    pub fn secret(kind: HookKind, name: &str, secret: &str, revision: u32) -> Hook {
        Hook { kind, secret: secret.into(), revision, ..Hook::plain(name) }
    }

    /// A relation hook. `endpoint` is the unit's own.
    pub fn relation(kind: HookKind, endpoint: &str, id: u32, app: &str, unit: &str) -> Hook {
        let suffix = match kind {
            HookKind::RelationCreated => "created",
            HookKind::RelationJoined => "joined",
            HookKind::RelationChanged => "changed",
            HookKind::RelationDeparted => "departed",
            _ => "broken",
        };
        let name = format!("{endpoint}-relation-{suffix}");
        Hook {
            kind,
            relation: Some(id),
            remote_app: app.into(),
            remote_unit: unit.into(),
            ..Hook::plain(&name)
        }
    }
}

/// What runs in a hook context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// A hook.
    Hook(Hook),
    /// An action, by task number.
    Action(u64),
    /// Commands of `juju exec` or `juju-exec`, by task number.
    Exec(u64),
}
