//! What a unit runs next: Juju's resolvers, in Juju's order.

use crate::model::{
    Hook, HookKind, Life, Local, LocalRelation, Model, Operation, Owner, Relation, Unit, app_of,
};
use crate::time::Nanos;
use std::collections::BTreeSet;

impl Model {
    /// What `unit` is to run now, if anything.
    pub fn next_operation(&self, unit: &str, at: Nanos) -> Option<Operation> {
        let unit = self.units.get(unit)?;
        let app = self.applications.get(&unit.app)?;
        if unit.life == Life::Dead || unit.local.removed {
            return None;
        }
        if let Some(hook) = unit.fired.front() {
            return Some(Operation::Hook(hook.clone()));
        }
        let local = &unit.local;
        let idle = local.failed.is_none() && local.queued.is_none();
        if idle && local.rebooted && local.started {
            return Some(Operation::Hook(Hook::plain("start")));
        }
        if local.failed.is_some() && unit.force_upgrade && app.modified != local.modified {
            return Some(Operation::Hook(Hook::plain("upgrade-charm")));
        }
        if idle && local.installed && unit.life == Life::Alive {
            let hook =
                self.created(unit).or_else(|| self.leadership(unit)).or_else(|| self.secrets(unit, at));
            if hook.is_some() {
                return hook.map(Operation::Hook);
            }
        }
        if local.queued.is_none()
            && local.installed | local.failed.is_some()
            && let Some(task) = unit.tasks.front()
        {
            let exec = self.actions.get(task).is_some_and(|action| action.name == "juju-exec");
            return Some(if exec { Operation::Exec(*task) } else { Operation::Action(*task) });
        }
        if let Some(failure) = &local.failed {
            let asked = unit.resolved == Some(true);
            let due = failure.retry_at.is_some_and(|due| due <= at);
            return (asked || due).then(|| Operation::Hook(failure.hook.clone()));
        }
        if let Some(hook) = &local.queued {
            return Some(Operation::Hook(hook.clone()));
        }
        self.settled(unit, at).map(Operation::Hook)
    }

    /// When `unit` may have something to run although nothing happens meanwhile.
    pub fn next_wakeup(&self, unit: &Unit) -> Option<Nanos> {
        let retry = unit.local.failed.as_ref().and_then(|failure| failure.retry_at);
        let status =
            (self.update_status_interval().is_some() && unit.local.started && unit.local.failed.is_none())
                .then_some(unit.update_status_at);
        let secrets = self.secrets.values().filter(|secret| self.manages(unit, &secret.owner));
        let due = secrets.flat_map(|secret| {
            let expiry = secret.expires.filter(|_| secret.expired_told < secret.latest());
            [expiry, secret.rotates].into_iter().flatten()
        });
        [retry, status].into_iter().flatten().chain(due).min()
    }

    /// The time between two update-status hooks; none if they are off (they are unless set).
    pub fn update_status_interval(&self) -> Option<Nanos> {
        self.config.get("update-status-hook-interval").and_then(|value| crate::time::go_duration(value))
    }

    fn settled(&self, unit: &Unit, at: Nanos) -> Option<Hook> {
        let local = &unit.local;
        if unit.life == Life::Dying {
            return self.relations(unit).or_else(|| {
                if local.started && !local.stopped {
                    Some(Hook::plain("stop"))
                } else {
                    (local.installed && !self.has_subordinates(unit)).then(|| Hook::plain("remove"))
                }
            });
        }
        if !local.installed {
            return Some(Hook::plain("install"));
        }
        if self.applications.get(&unit.app).is_some_and(|app| app.modified != local.modified) {
            return Some(Hook::plain("upgrade-charm"));
        }
        if unit.config_pending > 0 {
            return Some(Hook::plain("config-changed"));
        }
        let due = self.update_status_interval().is_some() && unit.update_status_at <= at && local.started;
        self.relations(unit).or_else(|| due.then(|| Hook::plain("update-status")))
    }

    fn has_subordinates(&self, unit: &Unit) -> bool {
        self.units.values().any(|other| other.principal == unit.name)
    }

    /// Whether `unit` sees a relation: global ones, and container-scoped ones with its own principal.
    pub(crate) fn sees(&self, unit: &Unit, relation: &Relation) -> bool {
        if relation.end_of(&unit.app).is_none() {
            return false;
        }
        if !relation.is_container() || relation.is_peer() {
            return true;
        }
        let other = &relation.other_end(&unit.app).app;
        unit.principal.is_empty() || app_of(&unit.principal) == other
    }

    /// Whether the application's end is the `juju-info` that every charm has without declaring it: no hooks run for it.
    pub(crate) fn is_implicit(&self, relation: &Relation, app: &str) -> bool {
        let declared =
            |name: &str| self.applications.get(app).is_some_and(|app| app.charm.endpoints.contains_key(name));
        relation.end_of(app).is_some_and(|end| !declared(&end.name))
    }

    fn created(&self, unit: &Unit) -> Option<Hook> {
        let known = &unit.local.relations;
        let new = |relation: &&Relation| {
            relation.life == Life::Alive
                && self.sees(unit, relation)
                && !self.is_implicit(relation, &unit.app)
                && known.get(&relation.id).is_none_or(|local| !local.created)
        };
        let relation = self.relations.values().find(new)?;
        let end = relation.end_of(&unit.app)?;
        let other = &relation.other_end(&unit.app).app;
        Some(Hook::relation(HookKind::RelationCreated, &end.name, relation.id, other, ""))
    }

    fn leadership(&self, unit: &Unit) -> Option<Hook> {
        let leader = self.is_leader(&unit.name);
        if leader && !unit.local.leader {
            return Some(Hook::plain("leader-elected"));
        }
        let current = self.applications.get(&unit.app)?.leader.clone()?;
        (!self.is_40() && !leader && unit.local.leader_told != current)
            .then(|| Hook::plain("leader-settings-changed"))
    }

    /// Whether `unit` is the one that is told about a secret of `owner`.
    fn manages(&self, unit: &Unit, owner: &Owner) -> bool {
        match owner {
            Owner::Model => false,
            Owner::App(app) => *app == unit.app && self.is_leader(&unit.name),
            Owner::Unit(name) => *name == unit.name,
        }
    }

    fn secrets(&self, unit: &Unit, at: Nanos) -> Option<Hook> {
        for secret in self.secrets.values() {
            let latest = secret.latest();
            if let Some(consumer) = secret.consumers.get(&unit.name)
                && consumer.revision < latest
                && consumer.told < latest
            {
                return Some(Hook::secret(HookKind::SecretChanged, "secret-changed", &secret.id, 0));
            }
            if !self.manages(unit, &secret.owner) {
                continue;
            }
            if secret.expires.is_some_and(|due| due <= at) && secret.expired_told < latest {
                return Some(Hook::secret(HookKind::SecretExpired, "secret-expired", &secret.id, latest));
            }
            if secret.rotates.is_some_and(|due| due <= at) {
                return Some(Hook::secret(HookKind::SecretRotate, "secret-rotate", &secret.id, 0));
            }
            let used: BTreeSet<u32> = secret.consumers.values().map(|consumer| consumer.revision).collect();
            let idle = |revision: &&u32| {
                **revision < latest && !used.contains(revision) && !secret.obsolete_told.contains(revision)
            };
            if let Some(revision) = secret.revisions.keys().find(idle) {
                return Some(Hook::secret(HookKind::SecretRemove, "secret-remove", &secret.id, *revision));
            }
        }
        None
    }

    fn relations(&self, unit: &Unit) -> Option<Hook> {
        unit.local.relations.iter().find_map(|(id, local)| {
            let relation = self.relations.get(id)?;
            self.next_for_relation(unit, &unit.local, relation, local)
        })
    }

    fn next_for_relation(
        &self,
        unit: &Unit,
        _: &Local,
        relation: &Relation,
        local: &LocalRelation,
    ) -> Option<Hook> {
        if local.broken || self.is_implicit(relation, &unit.app) {
            return None;
        }
        let end = &relation.end_of(&unit.app)?.name;
        let other = &relation.other_end(&unit.app).app;
        let hook = |kind, remote: &str| Some(Hook::relation(kind, end, relation.id, other, remote));
        let over = unit.life == Life::Dying || relation.life == Life::Dying;
        let remote: Vec<String> = if over {
            Vec::new()
        } else {
            relation
                .counterparts(&unit.name)
                .into_iter()
                .filter(|name| self.shares(unit, relation, name))
                .cloned()
                .collect()
        };
        if let Some(joined) = &local.changed_pending {
            return hook(HookKind::RelationChanged, joined);
        }
        if !over {
            let version = relation.bag(other).map_or(0, |bag| bag.version);
            if local.apps.get(other).copied().unwrap_or_default() != version {
                return hook(HookKind::RelationChanged, "");
            }
        }
        if let Some(gone) = local.members.keys().find(|name| !remote.contains(name)) {
            let mut departed = hook(HookKind::RelationDeparted, gone)?;
            departed.departing = if unit.life == Life::Dying { unit.name.clone() } else { gone.clone() };
            return Some(departed);
        }
        if over {
            return if relation.is_peer() { None } else { hook(HookKind::RelationBroken, "") };
        }
        let mut sorted = remote;
        sorted.sort();
        if let Some(new) = sorted.iter().find(|name| !local.members.contains_key(*name)) {
            return hook(HookKind::RelationJoined, new);
        }
        // What a departing unit still writes is not told to the others.
        let stays = |name: &str| self.units.get(name).is_none_or(|unit| unit.life == Life::Alive);
        let moved = |name: &&String| {
            stays(name) && relation.bag(name).map_or(0, |bag| bag.version) != local.members[*name]
        };
        sorted.iter().find(moved).and_then(|name| hook(HookKind::RelationChanged, name))
    }

    /// In a container-scoped relation only the units of one principal see each other.
    fn shares(&self, unit: &Unit, relation: &Relation, other: &str) -> bool {
        !relation.is_container()
            || relation.is_peer()
            || unit.principal == *other
            || self.units.get(other).is_some_and(|other| other.principal == unit.name)
    }
}
