//! Executes steps. There are no decisions here: what a step does not say is asked of the plan, not made up.

mod containers;
mod gpus;
mod keys;
mod packages;
mod programs;
mod quiet;
mod services;
mod still;
mod volumes;
mod web;

use crate::event::{Context, bare_secret_id};
use crate::host::cmd::cmd;
use crate::host::fs::{self, Owner, Root};
use crate::install;
use crate::juju::{self, tools};
use crate::observe::{RECORD, Session};
use crate::parse::Version;
use crate::paths;
use crate::step::{File, FileOwner, Step};
use crate::world::{Concern, Failed, Role, Worker, World};
use anyhow::Result;
use serde::Serialize;
use std::path::Path;
use std::rc::Rc;

/// Why a step could not be done although nothing is wrong with the charm: one sentence for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble(pub String);

/// An expected "no" inside, the unexpected outside.
pub type Outcome = Result<std::result::Result<(), Trouble>>;

/// What steps are executed with.
pub struct Applier<'a> {
    /// The file system.
    pub root: &'a Root,
    /// The dispatch.
    pub context: &'a Context,
    /// What the hook carries along.
    pub session: &'a mut Session,
    /// The world that the plan was made for.
    pub world: &'a World,
}

impl Applier<'_> {
    /// Executes one step.
    ///
    /// # Errors
    /// The unexpected; the hook fails and Juju runs it again.
    pub fn apply(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Say(status) => tools::status_set(status.level.word(), &status.message)?,
            Step::CreateUser => create_user()?,
            Step::RemoveUser => drop(cmd("userdel").arg("concourse").run()?),
            Step::InstallPrograms(stamp) => {
                programs::install(self.root, Path::new(&self.context.charm_dir), stamp)?;
            }
            Step::TestGpus(asked) => gpus::test(self.root, asked)?,
            Step::LookAtGpus => {
                self.session.looked = true;
                return gpus::look();
            }
            Step::RestoreGpus => gpus::restore(self.root)?,
            Step::InstallPackages(order) => {
                // Who was started without them is started again with what they bring.
                self.session.started.retain(|role| *role == Role::Web);
                return packages::install(self.root, self.world, order);
            }
            Step::RemovePackages(purposes) => return packages::remove(self.root, purposes),
            Step::WatchGpus(on) => gpus::watch(*on)?,
            Step::Write(file) => self.write(file)?,
            Step::Remove(path) => fs::remove(&self.root.path(path))?,
            Step::RemoveEmptyDir(path) => {
                // Not empty is not ours; absent is what was wanted.
                let _ = std::fs::remove_dir(self.root.path(path));
            }
            Step::Install(order) => return self.install(order),
            Step::RemoveVersion(version) => drop(install::remove_version(self.root, version)?),
            Step::TidyInstallations => install::clean_leftovers(self.root)?,
            Step::Switch { to, previous } => self.switch(to, previous.as_ref())?,
            Step::MarkFailed(failed) => self.mark_failed(failed)?,
            Step::MarkWanted(wish) => self.write_json(paths::OVERRIDE, wish)?,
            Step::GenerateKey(kind, path) => keys::generate(self.root, *kind, path)?,
            Step::ShareSecret { label, relation, content } => {
                let id = tools::secret_add(
                    label,
                    "Shared by the web nodes",
                    &keys::content(self.root, *content)?,
                )?;
                self.publish(relation, true, &tools::Bag::from([((*label).to_owned(), id)]))?;
            }
            Step::ReplaceSecret { id, content } => {
                let content = keys::content(self.root, *content)?;
                tools::secret_set(id, &content)?;
                // Reading it back would give the revision that this unit is used to.
                let id = bare_secret_id(id).to_owned();
                self.session.replaced.insert(id.clone());
                Rc::make_mut(&mut self.session.memory).secrets.insert(id, content);
            }
            Step::ProbeVolumes(worker, candidates) => {
                match volumes::probe(self.root, worker.paths().work_dir, candidates)? {
                    Ok(found) => self.write_json(worker.paths().volumes, &found)?,
                    Err(trouble) => return Ok(Err(trouble)),
                }
            }
            Step::InitWorkDir(worker) => self.init_work_dir(*worker)?,
            Step::RemoveWorkDir(worker) => self.remove_work_dir(*worker)?,
            Step::ForgetWorker(worker) => return web::forget_worker(self.root, self.world, *worker),
            Step::DaemonReload => drop(cmd("systemctl").arg("daemon-reload").run()?),
            Step::Enable(role, on) => {
                drop(
                    cmd("systemctl")
                        .args([if *on { "enable" } else { "disable" }, "--quiet", role.unit()])
                        .run()?,
                );
            }
            Step::Restart(role, patience) => {
                self.session.started.insert(*role);
                return services::restart(
                    self.root,
                    self.world,
                    *role,
                    *patience,
                    &mut Rc::make_mut(&mut self.session.memory).links,
                );
            }
            Step::Reload(role) => drop(cmd("systemctl").args(["reload", role.unit()]).run()?),
            Step::Stop(role) => services::stop(*role)?,
            Step::Pause(workers) => services::pause(self.root, workers)?,
            Step::Leave(workers, how, patience) => {
                services::leave(self.root, workers, *how, *patience, &self.session.memory.links)?;
            }
            Step::EndContainers(workers) => containers::end(self.root, workers)?,
            Step::MigrateDown { with, to } => return web::migrate_down(with, to),
            Step::Migrate(schema) => return web::migrate(*schema),
            Step::Prune(names) => return self.prune(names),
            Step::Publish { relation, app, values } => self.publish(relation, *app, values)?,
            Step::Wake(after) => juju::exec::later(&self.world.unit.to_string(), *after)?,
            Step::OpenPort(port) => return self.port(port, true),
            Step::ClosePort(port) => return self.port(port, false),
            Step::TellVersion(version) => {
                tools::application_version_set(version)?;
                self.session.record.version = Some(version.clone());
                self.keep_record()?;
            }
        }
        Ok(Ok(()))
    }

    fn write(&self, file: &File) -> Result<()> {
        let user = self.world.machine.user.clone();
        let root = Owner { uid: 0, gid: 0 };
        let owner = match (file.owner, user) {
            (FileOwner::Root, _) | (_, None) => root,
            (FileOwner::RootConcourse, Some(user)) => Owner { uid: 0, gid: user.gid },
            (FileOwner::Concourse, Some(user)) => user,
        };
        fs::write_atomic(&self.root.path(&file.path), file.text.as_bytes(), file.mode, Some(&owner))
    }

    fn write_json(&self, path: &str, value: &impl Serialize) -> Result<()> {
        fs::write_atomic(&self.root.path(path), &serde_json::to_vec(value)?, 0o644, None)
    }

    fn install(&mut self, order: &install::Order) -> Outcome {
        let mut say = |message: &str| drop(tools::status_set("maintenance", message));
        Ok(install::install(self.root, order, &mut say)?
            .map(drop)
            .map_err(|refusal| Trouble(refusal.to_string())))
    }

    fn switch(&self, to: &Version, previous: Option<&Version>) -> Result<()> {
        let target = |version: &Version| format!("versions/{version}");
        if let Some(previous) = previous {
            fs::swap_symlink(&self.root.path(paths::PREVIOUS), Path::new(&target(previous)))?;
        }
        fs::swap_symlink(&self.root.path(paths::CURRENT), Path::new(&target(to)))
    }

    /// What was started and troubled by the version that is left is not the fault of the one to go back to.
    fn mark_failed(&mut self, failed: &Failed) -> Result<()> {
        self.session.started.clear();
        self.session.troubles.retain(|c, _| !matches!(c, Concern::Web | Concern::Worker | Concern::Untagged));
        let proven = self.world.machine.previous.as_ref().map(|v| format!("{v}\n")).unwrap_or_default();
        fs::write_atomic(&self.root.path(paths::PROVEN), proven.as_bytes(), 0o644, None)?;
        self.write_json(paths::FAILED, failed)
    }

    fn init_work_dir(&mut self, worker: Worker) -> Result<()> {
        let id = keys::random_text(16)?;
        fs::write_atomic(&self.root.path(worker.paths().work_dir_id), id.as_bytes(), 0o644, None)?;
        self.session.record.work_dirs.insert(worker, id);
        self.keep_record()
    }

    fn remove_work_dir(&mut self, worker: Worker) -> Result<()> {
        let own = worker.paths();
        for path in [own.work_dir, own.containerd, own.volumes] {
            fs::remove(&self.root.path(path))?;
        }
        fs::remove(&self.root.path(worker.role().started_record()))?;
        self.session.record.work_dirs.remove(&worker);
        self.keep_record()
    }

    fn prune(&mut self, names: &[String]) -> Outcome {
        let outcome = web::prune(self.world, names)?;
        if outcome.is_ok() {
            Rc::make_mut(&mut self.session.memory).departed.retain(|name| !names.contains(name));
        }
        Ok(outcome)
    }

    fn publish(&mut self, relation: &str, app: bool, values: &tools::Bag) -> Result<()> {
        tools::relation_set(relation, app, values)?;
        let record = &mut self.session.record;
        let bags = if app { &mut record.app_bags } else { &mut record.unit_bags };
        let bag = bags.entry(relation.to_owned()).or_default();
        bag.extend(values.clone());
        bag.retain(|_, value| !value.is_empty());
        self.keep_record()
    }

    fn port(&mut self, port: &str, open: bool) -> Outcome {
        if let Err(refused) = tools::ports(open, port) {
            return Ok(Err(Trouble(format!(
                "Port {port}: {refused:#}; choose another port or another machine"
            ))));
        }
        let ports = &mut self.session.record.ports;
        if open {
            ports.insert(port.to_owned());
        } else {
            ports.remove(port);
        }
        self.keep_record()?;
        Ok(Ok(()))
    }

    /// Juju drops the record together with the writes it tells of, should the hook fail.
    fn keep_record(&self) -> Result<()> {
        tools::state_set(RECORD, &serde_json::to_string(&self.session.record)?)
    }
}

fn create_user() -> Result<()> {
    let args = [
        "--system",
        "--user-group",
        "--no-create-home",
        "--home-dir",
        paths::VAR,
        "--shell",
        "/usr/sbin/nologin",
    ];
    cmd("useradd").args(args).arg("concourse").run().map(drop)
}
