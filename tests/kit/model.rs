//! A machine and a Juju small enough to be obviously right: what each step leaves behind.

use super::unit::KEYS;
use super::unit::memory;
use concourse_ci_machine::event::Goal;
use concourse_ci_machine::gpu::decide::Report;
use concourse_ci_machine::gpu::lacks::Lacks;
use concourse_ci_machine::gpu::trial::Outcome;
use concourse_ci_machine::gpu::wanted::Wanted;
use concourse_ci_machine::host::fs::Owner;
use concourse_ci_machine::install::{Installed, Origin};
use concourse_ci_machine::packages::{Entry, Purpose, What};
use concourse_ci_machine::parse::Version;
use concourse_ci_machine::paths;
use concourse_ci_machine::plan::plan;
use concourse_ci_machine::step::{FileOwner, SecretSource, Step};
use concourse_ci_machine::view::gpu::told;
use concourse_ci_machine::world::{Concern, FileOnDisk, Machine, Role, WebInfo, Worker, World};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// How the outside behaves.
#[derive(Clone, Default)]
pub struct Model {
    /// Versions that do not come up.
    pub broken: BTreeSet<Version>,
    /// Services that come up with no version but 8.2.5.
    pub deaf: BTreeSet<Role>,
    /// Why packages can be neither installed nor removed.
    pub no_packages: Option<String>,
    /// Stop after so many steps, as kill -9 would.
    pub cut: Option<usize>,
}

const USER: Owner = Owner { uid: 998, gid: 997 };

impl Model {
    /// Plans and carries out until the plan is empty, then commits.
    ///
    /// # Panics
    /// The world does not come to rest.
    pub fn hook(&mut self, world: &mut World, goal: Goal) -> Vec<String> {
        world.troubles.clear();
        world.started.clear();
        world.looked = false;
        world.committed = world.record.clone();
        let mut plans = vec![];
        for _ in 0..16 {
            let steps = plan(goal, world);
            if steps.is_empty() {
                world.committed = world.record.clone();
                if let Some(told) = told(world).filter(|_| goal == Goal::Run) {
                    put(world, paths::GPU_TOLD, &told, 0o644, Owner { uid: 0, gid: 0 });
                }
                return plans;
            }
            plans.push(steps.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
            for step in &steps {
                if let Some(left) = &mut self.cut {
                    if *left == 0 {
                        // Juju rolls back what the hook wrote to it; the machine keeps what it got.
                        world.record = world.committed.clone();
                        return plans;
                    }
                    *left -= 1;
                }
                if let Err(why) = self.apply(world, step) {
                    world.troubles.insert(step.concern().expect("only steps with a concern fail"), why);
                    break;
                }
            }
        }
        panic!("does not come to rest: {plans:#?}");
    }

    /// Carries out steps, as an action does before its hook.
    ///
    /// # Panics
    /// One of them fails.
    pub fn carry_out(&self, world: &mut World, steps: &[Step]) {
        steps.iter().for_each(|step| self.apply(world, step).expect("nothing is troubled"));
    }

    fn apply(&self, world: &mut World, step: &Step) -> Result<(), String> {
        let wanted = world.file(paths::GPU_WANTED).and_then(|text| serde_json::from_str(text).ok());
        let machine = &mut world.machine;
        match step {
            Step::CreateUser => machine.user = Some(USER),
            Step::RemoveUser => machine.user = None,
            Step::InstallPrograms(stamp) => machine.programs = Some(stamp.clone()),
            Step::WatchGpus(on) => {
                (machine.gpus_watched, machine.gpus_watched_at_all) = (*on, *on);
            }
            Step::TestGpus(_) => machine.gpu_test = Some(Outcome::default()),
            Step::RestoreGpus => machine.gpus_persist = false,
            Step::InstallPackages(order) => {
                if let Some(why) = &self.no_packages {
                    return Err(why.clone());
                }
                let entry =
                    Entry { purpose: order.what.purpose(), held: matches!(order.what, What::Libraries(_)) };
                machine.packages.packages.insert(order.what.to_string(), entry);
                world.started.retain(|role| *role == Role::Web);
                machine.packages.driver_boot =
                    matches!(order.what, What::Driver { .. }).then(|| order.boot.clone());
            }
            Step::RemovePackages(purposes) => {
                if let Some(why) = &self.no_packages {
                    return Err(why.clone());
                }
                machine.packages.packages.retain(|_, entry| !purposes.contains(&entry.purpose));
            }
            Step::LookAtGpus => {
                world.looked = true;
                machine.gpus = Some(report(&wanted, machine));
            }
            Step::Write(file) if file.path == paths::CLAIM => machine.claim = Some(file.text.clone()),
            Step::Write(file) => {
                let owner = match file.owner {
                    FileOwner::Root => Owner { uid: 0, gid: 0 },
                    FileOwner::RootConcourse => Owner { uid: 0, gid: USER.gid },
                    FileOwner::Concourse => USER,
                };
                put(world, &file.path, &file.text, file.mode, owner);
            }
            Step::Remove(path) => {
                remove(world, path);
                if path == paths::PAUSE {
                    self.end_pause(world);
                }
            }
            Step::Install(order) => {
                let version = order.version.clone().unwrap_or(Version::new(8, 2, 5));
                let stamps = machine.resource.iter().cloned().collect();
                machine.installed.push(Installed {
                    version,
                    origin: Origin { url: None, stamps },
                    sha256: String::new(),
                });
            }
            Step::TidyInstallations => machine.half_installed = false,
            Step::RemoveVersion(version) => machine.installed.retain(|i| i.version != *version),
            Step::Switch { to, previous } => {
                machine.current = Some(to.clone());
                machine.previous = previous.clone().or(machine.previous.take());
            }
            Step::MarkFailed(failed) => {
                machine.failed = Some(failed.clone());
                let proven = machine.previous.clone().map(|v| format!("{v}\n")).unwrap_or_default();
                world
                    .troubles
                    .retain(|c, _| !matches!(c, Concern::Web | Concern::Worker | Concern::Untagged));
                world.started.clear();
                put(world, paths::PROVEN, &proven, 0o644, Owner { uid: 0, gid: 0 });
            }
            Step::MarkWanted(wish) => machine.override_version = Some(wish.clone()),
            Step::GenerateKey(_, path) => {
                let told = format!("{:?} {:?}", world.memory.secrets, world.record.unit_bags);
                let keys = if *path == paths::WORKER_KEY { [KEYS[2], KEYS[0]] } else { [KEYS[1], KEYS[0]] };
                let key = keys.into_iter().find(|key| !told.contains(key)).expect("two are enough");
                put(world, path, &format!("private half of {key}"), 0o600, Owner { uid: 0, gid: 0 });
                put(world, &format!("{path}.pub"), key, 0o600, Owner { uid: 0, gid: 0 });
            }
            Step::ShareSecret { label, relation, content } => {
                let id = format!("secret:{label}");
                let content = secret(world, *content);
                memory(world).secrets.insert((*label).to_owned(), content);
                world.record.app_bags.entry(relation.clone()).or_default().insert((*label).to_owned(), id);
            }
            Step::ReplaceSecret { id, content } => {
                let content = secret(world, *content);
                memory(world).secrets.insert(id.trim_start_matches("secret:").to_owned(), content);
            }
            Step::ProbeVolumes(worker, candidates) => {
                machine.volumes.extend(candidates.first().map(|found| (*worker, *found)));
            }
            Step::InitWorkDir(worker) => {
                let id = format!("id-{}", world.record.work_dirs.get(worker).map_or(0, String::len));
                machine.work_dirs.insert(*worker, id.clone());
                world.record.work_dirs.insert(*worker, id);
            }
            Step::RemoveWorkDir(worker) => {
                assert!(!runs(world, *worker), "{worker:?} loses its work dir while it runs");
                for path in [worker.paths().work_dir, worker.paths().volumes] {
                    remove(world, path);
                }
                world.record.work_dirs.remove(worker);
            }
            Step::Enable(role, on) => machine.services.entry(*role).or_default().enabled = *on,
            Step::DaemonReload => machine.services.values_mut().for_each(|s| s.stale = false),
            Step::Restart(role, _) => return self.start(world, *role),
            Step::Reload(role) => {
                let keys = digest(world, &[paths::AUTHORIZED_KEYS], false);
                world.machine.services.entry(*role).or_default().loaded_keys = Some(keys);
            }
            Step::Stop(role) => stop(world, *role),
            Step::Pause(workers) => {
                assert!(world.file(paths::PAUSE).is_some(), "a pause without an end");
                for worker in workers {
                    assert!(runs(world, *worker), "{worker:?} does not run and would be started");
                    stop(world, worker.role());
                    // Where there are GPUs, systemd has them looked at before the start begins.
                    let begun = world.machine.gpus.is_none();
                    world.machine.services.entry(worker.role()).or_default().changing = begun;
                }
            }
            Step::Leave(workers, ..) => workers.iter().for_each(|worker| stop(world, worker.role())),
            Step::Prune(names) => memory(world).departed.retain(|n| !names.contains(n)),
            Step::Publish { relation, app, values } => {
                let bags = if *app { &mut world.record.app_bags } else { &mut world.record.unit_bags };
                let bag = bags.entry(relation.clone()).or_default();
                bag.extend(values.clone());
                bag.retain(|_, v| !v.is_empty());
            }
            Step::OpenPort(port) => drop(world.record.ports.insert(port.clone()).then_some(())),
            Step::ClosePort(port) => drop(world.record.ports.remove(port).then_some(())),
            Step::TellVersion(version) => world.record.version = Some(version.clone()),
            Step::Say(_) | Step::Wake(_) | Step::RemoveEmptyDir(_) | Step::ForgetWorker(_) => {}
            Step::EndContainers(workers) => {
                machine.containers.retain(|worker| !workers.contains(worker));
                assert!(
                    !workers.iter().any(|worker| runs(world, *worker)),
                    "containers of a running worker are ended"
                );
            }
            Step::Migrate(_) | Step::MigrateDown { .. } => {}
        }
        if matches!(step, Step::Write(_)) && world.file(paths::PAUSE).is_none() {
            self.end_pause(world);
        }
        refresh(world);
        Ok(())
    }

    /// Workers that wait in their start go on with it; systemd tries again while a file is missing.
    fn end_pause(&self, world: &mut World) {
        for role in Worker::ALL.map(Worker::role) {
            let ready = inputs(role).iter().all(|path| world.file(path).is_some());
            if world.service(role).changing && ready {
                let started = world.started.clone();
                drop(self.start(world, role));
                world.started = started;
            }
        }
    }

    fn start(&self, world: &mut World, role: Role) -> Result<(), String> {
        world.started.insert(role);
        let inputs = inputs(role);
        let needed: Vec<&&str> = inputs.iter().filter(|path| world.file(path).is_none()).collect();
        assert!(needed.is_empty(), "{role:?} started before {needed:?} was written");
        let (with, keys) = (digest(world, &inputs, true), digest(world, &[paths::AUTHORIZED_KEYS], false));
        let current = world.machine.current.clone().expect("started before anything was installed");
        let service = world.machine.services.entry(role).or_default();
        service.started_with = Some(with);
        service.loaded_keys = (role == Role::Web).then_some(keys);
        let deaf = self.deaf.contains(&role) && current != Version::new(8, 2, 5);
        service.active = !self.broken.contains(&current) && !deaf;
        service.changing = !service.active;
        let up = service.active;
        match worker(role) {
            None => world.machine.web = up.then(|| WebInfo { version: current.to_string() }),
            Some(worker) if up => drop(world.machine.connected.insert(worker)),
            Some(worker) => drop(world.machine.connected.remove(&worker)),
        }
        if up { Ok(()) } else { Err(format!("{role:?} did not come up")) }
    }
}

/// Files that a service is started with.
fn inputs(role: Role) -> Vec<&'static str> {
    match worker(role) {
        None => vec![paths::WEB_UNIT, paths::WEB_ENV, paths::HOST_KEY, paths::SESSION_KEY],
        Some(worker) => {
            let own = worker.paths();
            vec![own.unit, own.dropin, own.env, paths::WORKER_KEY, paths::TSA_KEYS]
        }
    }
}

fn put(world: &mut World, path: &str, text: &str, mode: u32, owner: Owner) {
    if paths::MANAGED.contains(&path) {
        world.machine.files.insert(path.to_owned(), FileOnDisk { text: text.to_owned(), mode, owner });
    }
}

/// As `concourse-gpu refresh` would say it of a machine with two GPUs. What they lack comes with packages; a driver
/// with the next boot.
fn report(wanted: &Option<Wanted>, machine: &Machine) -> Report {
    let lacked = machine.gpus.as_ref().map(|report| report.lacks.clone()).unwrap_or_default();
    let has = |purpose| machine.packages.has(purpose);
    let loaded = has(Purpose::Driver) && machine.packages.driver_boot.as_ref() != Some(&machine.boot);
    let lacks = Lacks {
        libraries: lacked.libraries.filter(|_| !has(Purpose::Libraries)),
        driver: lacked.driver.filter(|_| !loaded),
        generator: lacked.generator && !has(Purpose::Toolkit),
    };
    let blocked =
        lacks.libraries.as_ref().map(|version| format!("NVIDIA's libraries of {version} are missing"));
    let blocked = blocked
        .or_else(|| lacks.driver.as_ref().map(|_| "No NVIDIA driver: set install-drivers=true".into()));
    if blocked.is_some() {
        return Report { wanted: wanted.clone(), blocked, lacks, ..Report::default() };
    }
    Report {
        lacks,
        wanted: wanted.clone(),
        summary: Some("GPU: 2x NVIDIA".into()),
        tags: ["gpu", "gpu-type=nvidia", "gpu-count=2", "gpu-devices=0,1"].map(str::to_owned).to_vec(),
        ..Report::default()
    }
}

fn remove(world: &mut World, path: &str) {
    let machine = &mut world.machine;
    machine.files.retain(|file, _| file != path && !file.starts_with(&format!("{path}/")));
    machine.leftovers.retain(|left| left != path);
    machine.unfinished.retain(|left| left != path);
    for role in Role::ALL.into_iter().filter(|role| role.started_record() == path) {
        machine.services.entry(role).or_default().started_with = None;
    }
    match path {
        paths::FAILED => machine.failed = None,
        paths::OVERRIDE => machine.override_version = None,
        paths::VAR => machine.claim = None,
        paths::WRAPPER_LINK => machine.programs = Some(String::new()),
        paths::PROGRAMS_STAMP => machine.programs = None,
        paths::GPU_RUN => machine.gpus = None,
        _ => {}
    }
    for worker in Worker::ALL {
        if path == worker.paths().volumes {
            machine.volumes.remove(&worker);
        } else if path == worker.paths().work_dir {
            machine.work_dirs.remove(&worker);
        }
    }
}

fn stop(world: &mut World, role: Role) {
    let service = world.machine.services.entry(role).or_default();
    (service.active, service.changing) = (false, false);
    match worker(role) {
        None => world.machine.web = None,
        Some(worker) => drop(world.machine.connected.remove(&worker)),
    }
}

fn worker(role: Role) -> Option<Worker> {
    Worker::ALL.into_iter().find(|worker| worker.role() == role)
}

fn runs(world: &World, worker: Worker) -> bool {
    world.machine.services.get(&worker.role()).is_some_and(|service| service.active)
}

fn secret(world: &World, source: SecretSource) -> concourse_ci_machine::juju::tools::Bag {
    let file = |path: &str| world.file(path).expect("a secret is made of files that are there").to_owned();
    match source {
        SecretSource::KeyFiles => [
            ("tsa-host-key", file(paths::HOST_KEY)),
            ("tsa-public-key", file(paths::HOST_KEY_PUB)),
            ("session-signing-key", file(paths::SESSION_KEY)),
        ]
        .map(|(k, v)| (k.to_owned(), v))
        .into(),
        SecretSource::NewPassword => [("password".to_owned(), "MARKERpassword".to_owned())].into(),
    }
}

/// As the units' `ExecStartPre` does it.
fn digest(world: &World, inputs: &[&str], with_version: bool) -> String {
    let mut all: String = inputs.iter().filter_map(|path| world.file(path)).collect();
    if let (true, Some(current)) = (with_version, world.current()) {
        all.push_str(&format!("versions/{}\n{}\n", current.version, current.sha256));
    }
    Sha256::digest(all).iter().map(|b| format!("{b:02x}")).collect()
}

/// What an observation derives from files.
pub fn refresh(world: &mut World) {
    let proven = world.file(paths::PROVEN).map(|text| text.trim().to_owned());
    world.machine.proven =
        proven.is_some() && proven == world.machine.current.as_ref().map(ToString::to_string);
    world.machine.drained = world.file(paths::DRAINED).is_some();
}
