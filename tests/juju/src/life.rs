//! Units and applications coming and going; leadership.

use crate::model::{Application, Endpoint, Life, Machine, Model, Network, Owner, Side, Status, Unit, app_of};
use anyhow::{Result, bail};

impl Model {
    /// Registers a machine and returns its number.
    pub fn add_machine(&mut self) -> String {
        let id = self.next_machine.to_string();
        self.register_machine(&id);
        id
    }

    /// Registers a machine under a given number unless it is known.
    pub fn register_machine(&mut self, id: &str) {
        if let Ok(number) = id.parse::<u32>() {
            self.next_machine = self.next_machine.max(number + 1);
        }
        let machine = || Machine { id: id.into(), data_dir: "/var/lib/juju".into(), ..Machine::default() };
        self.machines.entry(id.into()).or_insert_with(machine);
    }

    /// Gives a machine a made-up address, for tests without agents.
    pub fn make_up_network(&mut self, id: &str) {
        let number = id.parse().unwrap_or_default();
        if let Some(machine) = self.machines.get_mut(id) {
            machine.network = Some(Network::made_up(number));
            machine.addresses = vec![machine.address().to_string()];
            machine.hostname = format!("juju-machine-{id}");
            machine.started = true;
        }
    }

    /// Adds an application with its peer relations, without units.
    pub fn add_application(&mut self, app: Application) -> Result<()> {
        if self.applications.contains_key(&app.name) {
            bail!(
                "cannot deploy {0:?}: creating application {0:?}: creating IAAS application {0:?}: inserting IAAS \
                 application {0:?}: checking if application {0:?} exists: application already exists",
                app.name
            );
        }
        let name = app.name.clone();
        self.applications.insert(name.clone(), app);
        self.add_peer_relations(&name);
        Ok(())
    }

    /// Makes the peer relations that the charm declares and the model lacks.
    pub fn add_peer_relations(&mut self, app: &str) {
        let charm = self.applications[app].charm.clone();
        for (name, end) in &charm.endpoints {
            let exists = |id: &u32| self.relations[id].end_of(app).is_some_and(|e| e.name == *name);
            if end.role == "peers" && !self.relations.keys().any(exists) {
                let (interface, container) = (end.interface.clone(), end.container);
                self.add_relation(vec![Endpoint {
                    app: app.into(),
                    name: name.clone(),
                    side: Side::Peer,
                    interface,
                    container,
                }]);
            }
        }
    }

    /// Adds a unit on a machine.
    pub fn add_unit(&mut self, app: &str, machine: &str, principal: &str) -> Result<String> {
        let Some(application) = self.applications.get_mut(app) else {
            bail!("application {app:?} not found")
        };
        let number = self.unit_numbers.entry(app.into()).or_default();
        let name = format!("{app}/{number}");
        *number += 1;
        let mut unit = Unit::new(&name, app, machine, principal, application.modified);
        if application.leader.is_none() {
            application.leader = Some(name.clone());
        }
        if self.machines.get(machine).is_some_and(|machine| machine.started) {
            unit.status = Status::new("waiting", "agent initialising");
        }
        self.units.insert(name.clone(), unit);
        Ok(name)
    }

    /// Asks a unit to go.
    pub fn remove_unit(&mut self, name: &str) -> Result<()> {
        let Some(unit) = self.units.get_mut(name) else { bail!("unit {name:?} not found") };
        unit.life = Life::Dying;
        let nothing_ran = !unit.local.installed && unit.local.failed.is_none();
        let idle = !self.contexts.values().any(|context| context.unit == name);
        let subordinates: Vec<String> = self
            .units
            .values()
            .filter(|other| other.principal == name)
            .map(|other| other.name.clone())
            .collect();
        for subordinate in subordinates {
            self.remove_unit(&subordinate)?;
        }
        if nothing_ran && idle {
            self.unit_removed(name);
        }
        Ok(())
    }

    /// Takes a unit away at once, whatever it does.
    pub fn force_remove_unit(&mut self, name: &str) -> Result<()> {
        self.remove_unit(name)?;
        let running: Vec<String> = self
            .contexts
            .values()
            .filter(|context| context.unit == name)
            .map(|context| context.id.clone())
            .collect();
        for context in running {
            self.interrupt(&context);
        }
        self.unit_removed(name);
        Ok(())
    }

    /// Asks an application and all its units to go.
    pub fn remove_application(&mut self, name: &str) -> Result<Vec<String>> {
        let Some(app) = self.applications.get_mut(name) else { bail!("application {name:?} not found") };
        app.life = Life::Dying;
        let relations: Vec<u32> = self
            .relations
            .values()
            .filter(|relation| !relation.is_peer() && relation.end_of(name).is_some())
            .map(|relation| relation.id)
            .collect();
        for id in relations {
            self.remove_relation(id);
        }
        let units: Vec<String> = self.units_of(name).iter().map(|unit| unit.name.clone()).collect();
        for unit in &units {
            self.remove_unit(unit)?;
        }
        self.sweep_application(name);
        Ok(units)
    }

    /// A unit's last hook has run: it is no more.
    pub(crate) fn unit_removed(&mut self, name: &str) {
        let Some(unit) = self.units.remove(name) else { return };
        if let Some(machine) = self.machines.get_mut(&unit.machine) {
            machine.removed_units.push(name.into());
        }
        let relations: Vec<u32> = self.relations.keys().copied().collect();
        for id in relations {
            if let Some(relation) = self.relations.get_mut(&id) {
                relation.members.retain(|member| member != name);
            }
        }
        self.secrets.retain(|_, secret| secret.owner != Owner::Unit(name.into()));
        for secret in self.secrets.values_mut() {
            secret.consumers.remove(name);
        }
        let app = app_of(name).to_string();
        if self.applications.get(&app).is_some_and(|app| app.leader.as_deref() == Some(name)) {
            self.elect(&app, None);
        }
        self.sweep_application(&app);
        self.finish_relations();
    }

    fn finish_relations(&mut self) {
        let dying: Vec<u32> =
            self.relations.values().filter(|relation| relation.life == Life::Dying).map(|r| r.id).collect();
        for id in dying {
            self.remove_relation(id);
        }
    }

    /// Moves leadership to `unit`, or to the first one that stays.
    pub fn elect(&mut self, app: &str, unit: Option<&str>) {
        let heir = unit.map(String::from).or_else(|| {
            let units = self.units_of(app);
            let alive = units.iter().find(|unit| unit.life == Life::Alive);
            alive.or(units.first()).map(|unit| unit.name.clone())
        });
        let old = self.applications.get(app).and_then(|app| app.leader.clone());
        if let Some(old) = old.and_then(|old| self.units.get_mut(&old)) {
            old.local.leader = false;
        }
        if let Some(app) = self.applications.get_mut(app) {
            app.leader = heir;
        }
    }

    fn sweep_application(&mut self, name: &str) {
        let dying = self.applications.get(name).is_some_and(|app| app.life == Life::Dying);
        if !dying || self.units.values().any(|unit| unit.app == name) {
            return;
        }
        self.applications.remove(name);
        let own: Vec<u32> = self
            .relations
            .values()
            .filter(|relation| relation.end_of(name).is_some())
            .filter(|relation| relation.is_peer())
            .map(|relation| relation.id)
            .collect();
        for id in own {
            self.relations.remove(&id);
        }
        self.secrets.retain(|_, secret| secret.owner != Owner::App(name.into()));
        for secret in self.secrets.values_mut() {
            secret.grants.retain(|grant| grant.target != name);
        }
    }

    /// Does what happens without hooks: scopes of implicit endpoints, and subordinate units that relations ask for.
    pub fn synchronize(&mut self) {
        self.synchronize_implicit();
        self.add_subordinates();
    }

    fn synchronize_implicit(&mut self) {
        let (mut enter, mut leave) = (Vec::new(), Vec::new());
        for relation in self.relations.values() {
            for unit in self.units.values().filter(|unit| self.is_implicit(relation, &unit.app)) {
                let inside = relation.members.contains(&unit.name);
                let over = relation.life == Life::Dying || unit.life == Life::Dying;
                match (inside, over) {
                    (false, false) if unit.local.installed => enter.push((unit.name.clone(), relation.id)),
                    (true, true) => leave.push((unit.name.clone(), relation.id)),
                    _ => {}
                }
            }
        }
        for (unit, id) in enter {
            self.enter_scope(&unit, id);
            if let Some(local) = self.units.get_mut(&unit).and_then(|unit| unit.local.relations.get_mut(&id))
            {
                local.created = true;
            }
        }
        for (unit, id) in leave {
            if let Some(unit) = self.units.get_mut(&unit) {
                unit.local.relations.remove(&id);
            }
            self.leave_scope(&unit, id);
        }
    }

    /// Makes the subordinate units that container-scoped relations ask for.
    fn add_subordinates(&mut self) {
        let mut wanted = Vec::new();
        for relation in
            self.relations.values().filter(|relation| relation.life == Life::Alive && !relation.is_peer())
        {
            for end in &relation.endpoints {
                let subordinate =
                    |app: &str| self.applications.get(app).is_some_and(|app| app.charm.subordinate);
                let other = &relation.other_end(&end.app).app;
                if !end.container && !relation.is_container() || !subordinate(&end.app) || subordinate(other)
                {
                    continue;
                }
                for unit in self.units_of(other) {
                    let has = |u: &&Unit| u.app == end.app && u.principal == unit.name;
                    let in_scope = relation.members.contains(&unit.name);
                    if unit.life == Life::Alive && in_scope && !self.units.values().any(|u| has(&u)) {
                        wanted.push((end.app.clone(), unit.machine.clone(), unit.name.clone()));
                    }
                }
            }
        }
        for (app, machine, principal) in wanted {
            // The application was just found.
            let _ = self.add_unit(&app, &machine, &principal);
        }
    }

    /// A subordinate whose relation is over goes too.
    pub(crate) fn destroy_orphan_subordinate(&mut self, unit: &str, relation: u32) {
        let Some(name) =
            self.units.get(unit).filter(|unit| !unit.principal.is_empty()).map(|u| u.name.clone())
        else {
            return;
        };
        let other = self.units[&name].principal.clone();
        let still = |r: &u32| {
            *r != relation
                && self.relations[r].life == Life::Alive
                && self.relations[r].end_of(app_of(&name)).is_some()
                && self.relations[r].end_of(app_of(&other)).is_some()
        };
        if !self.relations.keys().any(still) {
            // It was just found.
            let _ = self.remove_unit(&name);
        }
    }
}
