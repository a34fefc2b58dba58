//! The life of relations: scopes, members, departures.

use crate::model::{Endpoint, Hook, HookKind, Life, LocalRelation, Model, Relation, Side, app_of};
use crate::time::now;
use anyhow::{Result, bail};
use std::collections::BTreeMap;

impl Model {
    /// Makes a relation and returns its number.
    pub fn add_relation(&mut self, endpoints: Vec<Endpoint>) -> u32 {
        let id = self.next_relation;
        self.next_relation += 1;
        let bags = endpoints.iter().map(|end| (end.app.clone(), Default::default())).collect();
        let relation = Relation {
            id,
            endpoints,
            life: Life::Alive,
            since: now(),
            members: Vec::new(),
            bags,
            version: 0,
        };
        self.relations.insert(id, relation);
        id
    }

    /// The relation of two applications that `juju integrate A[:ep] B[:ep]` makes.
    pub fn relate(&mut self, one: &str, other: &str) -> Result<u32> {
        let pairs = self.matching_endpoints(one, other)?;
        let [(first, second)] = pairs.as_slice() else {
            if pairs.is_empty() {
                bail!("no compatible endpoints found between {one:?} and {other:?}");
            }
            let list: Vec<_> =
                pairs.iter().map(|(a, b)| format!("\"{}:{} {}:{}\"", a.app, a.name, b.app, b.name)).collect();
            bail!("ambiguous relation: {:?} could refer to {}", format!("{one} {other}"), list.join("; "));
        };
        for relation in self.relations.values() {
            let same =
                |end: &Endpoint| relation.endpoints.iter().any(|e| e.app == end.app && e.name == end.name);
            if same(first) && same(second) && !relation.is_peer() {
                bail!("relation {}:{} {}:{} already exists", second.app, second.name, first.app, first.name);
            }
        }
        for end in [first, second] {
            self.check_limit(end)?;
        }
        Ok(self.add_relation(vec![first.clone(), second.clone()]))
    }

    fn check_limit(&self, end: &Endpoint) -> Result<()> {
        let limit = self.applications[&end.app].charm.endpoints.get(&end.name).map_or(0, |e| e.limit);
        let used = |relation: &&Relation| {
            relation.life == Life::Alive
                && relation.endpoints.iter().any(|e| e.app == end.app && e.name == end.name)
        };
        if limit > 0 && self.relations.values().filter(used).count() as u64 >= limit {
            bail!(
                "establishing a new relation for {}:{} would exceed its maximum relation limit of {limit}",
                end.app,
                end.name
            );
        }
        Ok(())
    }

    /// The endpoints that an argument names.
    fn endpoints_of(&self, spec: &str) -> Result<Vec<Endpoint>> {
        let (app, wanted) = spec.split_once(':').map_or((spec, None), |(app, name)| (app, Some(name)));
        let Some(application) = self.applications.get(app) else { bail!("application {app:?} not found") };
        let make = |name: &str, side, interface: &str, container| Endpoint {
            app: app.into(),
            name: name.into(),
            side,
            interface: interface.into(),
            container,
        };
        let mut all = Vec::new();
        for (name, end) in &application.charm.endpoints {
            let side = match end.role.as_str() {
                "provides" => Side::Provides,
                "requires" => Side::Requires,
                _ => continue,
            };
            all.push(make(name, side, &end.interface, end.container));
        }
        if !application.charm.subordinate {
            all.push(make("juju-info", Side::Provides, "juju-info", false));
        }
        if let Some(wanted) = wanted {
            all.retain(|end| end.name == wanted);
            if all.is_empty() {
                bail!("application {app:?} has no {wanted:?} relation");
            }
        }
        Ok(all)
    }

    fn matching_endpoints(&self, one: &str, other: &str) -> Result<Vec<(Endpoint, Endpoint)>> {
        let (ours, theirs) = (self.endpoints_of(one)?, self.endpoints_of(other)?);
        let mut pairs = Vec::new();
        for a in &ours {
            for b in &theirs {
                if a.interface == b.interface && a.side != b.side {
                    let provider_first = a.side == Side::Provides;
                    pairs.push(if provider_first { (a.clone(), b.clone()) } else { (b.clone(), a.clone()) });
                }
            }
        }
        if pairs.len() > 1 {
            pairs.retain(|(a, _)| a.name != "juju-info");
        }
        Ok(pairs)
    }

    /// The alive relation that two arguments name.
    pub fn find_relation(&self, one: &str, other: &str) -> Result<u32> {
        let names = |end: &Endpoint, spec: &str| match spec.split_once(':') {
            Some((app, name)) => end.app == app && end.name == name,
            None => end.app == spec,
        };
        let matches = |relation: &&Relation| {
            let [a, b] = relation.endpoints.as_slice() else { return false };
            (names(a, one) && names(b, other)) || (names(a, other) && names(b, one))
        };
        match self.relations.values().find(matches) {
            Some(relation) => Ok(relation.id),
            None => bail!("relation {:?} not found", format!("{one} {other}")),
        }
    }

    /// Begins the end of a relation.
    pub fn remove_relation(&mut self, id: u32) {
        if let Some(relation) = self.relations.get_mut(&id) {
            relation.life = Life::Dying;
        }
        // A unit that never heard of it need not hear of its end.
        for unit in self.units.values_mut() {
            unit.local.relations.retain(|other, local| *other != id || local.created);
        }
        self.sweep_relations();
    }

    /// A unit comes into a relation's scope: its own bag appears, the others can see it.
    pub fn enter_scope(&mut self, unit: &str, id: u32) {
        let address = self.unit_address(unit);
        let legacy = !self.is_40();
        let Some(relation) = self.relations.get_mut(&id) else { return };
        if !relation.members.iter().any(|member| member == unit) {
            relation.members.push(unit.into());
        }
        let mut keys = BTreeMap::from([
            ("ingress-address".to_string(), address.clone()),
            ("egress-subnets".to_string(), format!("{address}/32")),
        ]);
        if legacy {
            keys.insert("private-address".into(), address);
        }
        relation.write(unit, &keys);
        if let Some(unit) = self.units.get_mut(unit) {
            unit.local.relations.entry(id).or_default();
        }
    }

    /// The address of a unit's machine.
    pub fn unit_address(&self, unit: &str) -> String {
        let machine = self.units.get(unit).and_then(|unit| self.machines.get(&unit.machine));
        machine.map_or(String::new(), |machine| machine.address().to_string())
    }

    pub(crate) fn leave_scope(&mut self, unit: &str, id: u32) {
        if let Some(relation) = self.relations.get_mut(&id) {
            relation.members.retain(|member| member != unit);
        }
        self.sweep_relations();
    }

    /// Takes away dying relations that have no members left, and the grants that hang on them.
    fn sweep_relations(&mut self) {
        let gone: Vec<u32> = self
            .relations
            .values()
            .filter(|relation| relation.life == Life::Dying && relation.members.is_empty())
            .map(|relation| relation.id)
            .collect();
        for id in gone {
            self.relations.remove(&id);
            for secret in self.secrets.values_mut() {
                secret.grants.retain(|grant| grant.relation != Some(id));
            }
            for unit in self.units.values_mut() {
                unit.local.relations.remove(&id);
            }
        }
    }

    /// The version of what a relation hook is about.
    pub(crate) fn remote_version(&self, hook: &Hook) -> u64 {
        if let Some(secret) = self.secrets.get(&hook.secret) {
            return u64::from(secret.latest());
        }
        let owner = if hook.remote_unit.is_empty() { &hook.remote_app } else { &hook.remote_unit };
        let relation = hook.relation.and_then(|id| self.relations.get(&id));
        relation.and_then(|relation| relation.bag(owner)).map_or(0, |bag| bag.version)
    }

    pub(crate) fn relation_hook_done(&mut self, unit_name: &str, hook: &Hook, version: u64) {
        let Some(id) = hook.relation else { return };
        let Some(unit) = self.units.get_mut(unit_name) else { return };
        let dying = unit.life == Life::Dying;
        let local: &mut LocalRelation = unit.local.relations.entry(id).or_default();
        let remote = hook.remote_unit.clone();
        match hook.kind {
            HookKind::RelationCreated => local.created = true,
            HookKind::RelationJoined => {
                local.members.insert(remote.clone(), version);
                local.changed_pending = Some(remote);
            }
            HookKind::RelationChanged if remote.is_empty() => {
                local.apps.insert(hook.remote_app.clone(), version);
            }
            HookKind::RelationChanged => {
                local.changed_pending = None;
                local.members.insert(remote, version);
            }
            HookKind::RelationDeparted => {
                local.members.remove(&remote);
                if local.changed_pending.as_deref() == Some(&remote) {
                    local.changed_pending = None;
                }
            }
            HookKind::RelationBroken => local.broken = true,
            _ => {}
        }
        let peer_left = dying && local.members.is_empty() && hook.kind == HookKind::RelationDeparted;
        let broken = local.broken;
        self.close_if_over(unit_name, id, broken, peer_left);
    }

    fn close_if_over(&mut self, unit: &str, id: u32, broken: bool, peer_left: bool) {
        let peer = self.relations.get(&id).is_some_and(Relation::is_peer);
        if broken || (peer && peer_left) {
            if let Some(unit) = self.units.get_mut(unit)
                && broken
            {
                unit.local.relations.remove(&id);
            }
            self.leave_scope(unit, id);
            if broken {
                self.destroy_orphan_subordinate(unit, id);
            }
        }
    }

    /// A leader's own write of a peer bag is news to itself only in 4.0.
    pub(crate) fn forget_own_write(&mut self, unit: &str, id: u32, owner: &str) {
        let peer = self.relations.get(&id).is_some_and(Relation::is_peer);
        if self.is_40() || !peer || owner != app_of(unit) {
            return;
        }
        let version = self.relations[&id].bag(owner).map_or(0, |bag| bag.version);
        if let Some(unit) = self.units.get_mut(unit) {
            unit.local.relations.entry(id).or_default().apps.insert(owner.into(), version);
        }
    }
}
