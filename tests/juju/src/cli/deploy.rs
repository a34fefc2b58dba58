//! Charms: deploy, refresh, attach-resource, resources.

use super::units::placements;
use super::{Call, CliError, Done, Out, failure, usage};
use crate::charm::Charm;
use crate::model::{Application, Model, Resource};
use crate::time::{civil, now};
use crate::validate::option_value;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

impl Call<'_> {
    pub(super) fn deploy(&self, out: &mut Out) -> Done {
        let given = self.word(0, "no charm or bundle specified")?;
        let path = self.path(given);
        if path.is_dir() {
            return Err(failure(format!(
                "attempting to deploy {given:?}: deploying from directory not supported"
            )));
        }
        if !path.exists() {
            return Err(failure(format!("no charm was found at {given:?}")));
        }
        let charm = load(&path)?;
        if charm.bases.is_empty() {
            return Err(failure(format!(
                "attempting to deploy {given:?}: charm metadata without bases in manifest not valid"
            )));
        }
        let mut model = self.shared.lock();
        let name = self.options.words.get(1).cloned().unwrap_or_else(|| charm.name.clone());
        if !crate::validate::is_charm_name(&name) {
            return Err(failure(format!("invalid application name {name:?}")));
        }
        let revision = next_revision(&mut model, &charm.name);
        out.note(format!("Located local charm {:?}, revision {revision}", charm.name));
        let base =
            charm.bases.iter().find(|base| **base == "ubuntu@24.04").unwrap_or(&charm.bases[0]).clone();
        out.note(format!(
            "Deploying {name:?} from local charm {:?}, revision {revision} on {base}/stable",
            charm.name
        ));
        if !charm.architectures.iter().any(|arch| arch == "amd64") {
            return Err(failure(format!(
                "cannot deploy {name:?}: preparing application args: arch in platform and constraints for application \
                 do not match"
            )));
        }
        let config = self.deploy_config(&charm, &name)?;
        let blob = keep(&mut model, &path)?;
        let subordinate = charm.subordinate;
        model.add_application(Application {
            blob,
            revision,
            config,
            trusted: self.options.flag("trust"),
            ..Application::new(&name, charm)
        })?;
        for given in self.options.all(&["resource"]) {
            self.attach(&mut model, &name, given)?;
        }
        if !subordinate {
            let count = self.options.number(&["num-units", "n"], 1)?;
            for machine in placements(&mut model, self.options.value(&["to"]), count)? {
                model.add_unit(&name, &machine, "")?;
            }
        }
        Ok(0)
    }

    fn deploy_config(&self, charm: &Charm, app: &str) -> Result<BTreeMap<String, Value>, CliError> {
        let mut config = BTreeMap::new();
        for given in self.options.all(&["config"]) {
            let pairs = match given.split_once('=') {
                Some((key, value)) => BTreeMap::from([(key.to_string(), value.to_string())]),
                None => config_file(&self.path(given), app)?,
            };
            for (key, value) in pairs {
                let Some(option) = charm.options.get(&key) else {
                    return Err(failure(format!("cannot deploy {app:?}: unknown option {key:?}")));
                };
                config.insert(key.clone(), option_value(&key, &option.kind, &value)?);
            }
        }
        Ok(config)
    }

    pub(super) fn refresh(&self, out: &mut Out) -> Done {
        let app = self.word(0, "no application specified")?;
        let given = self
            .options
            .value(&["path"])
            .ok_or_else(|| usage("--path is required: only local charms are emulated"))?;
        let path = self.path(given);
        let charm = load(&path)?;
        let mut model = self.shared.lock();
        let Some(known) = model.applications.get(app) else {
            return Err(failure(format!("application {app:?} not found")));
        };
        if known.charm.name != charm.name {
            return Err(failure(format!("cannot refresh {:?} to {:?}", known.charm.name, charm.name)));
        }
        let force = self.options.flag("force-units");
        for unit in model.units_of(app) {
            if unit.local.failed.is_some() && !force {
                let why = format!(
                    "cannot upgrade application {app:?} to charm: unit {:?} is in error; use --force-units",
                    unit.name
                );
                return Err(failure(why));
            }
        }
        let revision = next_revision(&mut model, &charm.name);
        let blob = keep(&mut model, &path)?;
        out.note(format!("Added local charm {:?}, revision {revision}, to the model", charm.name));
        let mut ends: Vec<_> = charm.endpoints.keys().chain(&charm.bindings).cloned().collect();
        ends.push("juju-info".into());
        ends.sort();
        out.note(format!("no change to endpoints in space \"alpha\": {}", ends.join(", ")));
        if let Some(app) = model.applications.get_mut(app) {
            let options = &charm.options;
            app.config.retain(|key, _| options.contains_key(key));
            app.charm = charm;
            app.blob = blob;
            app.revision = revision;
            app.modified += 1;
        }
        for given in self.options.all(&["resource"]) {
            self.attach(&mut model, app, given)?;
        }
        model.add_peer_relations(app);
        for unit in model.units.values_mut().filter(|unit| unit.app == app) {
            unit.force_upgrade = force;
        }
        Ok(0)
    }

    pub(super) fn attach_resource(&self) -> Done {
        let app = self.word(0, "missing application name")?;
        let given = self.word(1, "missing resource name=filepath")?;
        let mut model = self.shared.lock();
        self.attach(&mut model, app, given)?;
        if let Some(app) = model.applications.get_mut(app) {
            app.modified += 1;
        }
        Ok(0)
    }

    fn attach(&self, model: &mut Model, app: &str, given: &str) -> Result<(), CliError> {
        let Some((name, file)) = given.split_once('=') else {
            return Err(usage(format!("expected name=path format for resource, got {given:?}")));
        };
        let Some(known) = model.applications.get(app) else {
            return Err(failure(format!("application {app:?} not found")));
        };
        if !known.charm.resources.contains_key(name) {
            return Err(failure(format!("unrecognized resource {name:?}")));
        }
        let blob = keep(model, &self.path(file))?;
        if let Some(app) = model.applications.get_mut(app) {
            app.resources.insert(name.into(), Resource { blob, at: now() });
        }
        Ok(())
    }

    pub(super) fn resources(&self, out: &mut Out) -> Done {
        let app = self.word(0, "missing application name")?;
        let model = self.shared.lock();
        let Some(app) = model.applications.get(app) else {
            return Err(failure(format!("application {app:?} not found")));
        };
        let mut rows = vec![vec!["Resource".into(), "Supplied by".into(), "Revision".into()]];
        for (name, resource) in &app.resources {
            rows.push(vec![name.clone(), "admin".into(), civil(resource.at).minute()]);
        }
        out.text(super::status::table(&rows, &[]));
        Ok(0)
    }
}

fn load(path: &Path) -> Result<Charm, CliError> {
    Charm::load(path).map_err(|error| failure(format!("{error:#}")))
}

fn next_revision(model: &mut Model, charm: &str) -> u32 {
    let next = model.revisions.entry(charm.into()).or_default();
    *next += 1;
    *next - 1
}

/// Copies a file to where agents can fetch it.
fn keep(model: &mut Model, path: &Path) -> Result<String, CliError> {
    let name = format!("{:06}", model.next_blob);
    fs::copy(path, model.blobs.join(&name))
        .map_err(|error| failure(format!("open {}: {error}", path.display())))?;
    model.next_blob += 1;
    Ok(name)
}

/// Options of one application in a YAML file.
fn config_file(path: &Path, app: &str) -> Result<BTreeMap<String, String>, CliError> {
    let text =
        fs::read_to_string(path).map_err(|error| failure(format!("open {}: {error}", path.display())))?;
    let parsed: Value =
        serde_yaml::from_str(&text).map_err(|error| failure(format!("cannot parse config: {error}")))?;
    let own = parsed.get(app).unwrap_or(&Value::Null);
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), String::from);
    Ok(crate::charm::entries(own).map(|(key, value)| (key.clone(), word(value))).collect())
}
