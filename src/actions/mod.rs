//! Actions: what each needs, does first, and answers. The reconcile that follows is the one of every hook.

mod check_status;
mod gpus;

use crate::gpu::export::Format;
use crate::gpu::trial::Asked;
use crate::juju::memory::PEERS;
use crate::juju::tools::Bag;
use crate::parse::{Secret, TimeLimit, Version};
use crate::paths;
use crate::plan::worker::{FAREWELL, ending};
use crate::render::web::external_url;
use crate::step::{Farewell, KeyKind, SecretSource, Step};
use crate::view::drain;
use crate::view::pause::{asked, waits};
use crate::view::roles::roles;
use crate::view::secrets::{KEYS, admin_password};
use crate::view::tsa::registration;
use crate::view::version::pinned;
use crate::view::web::{address, missing};
use crate::view::worker::{files, running};
use crate::world::{Concern, Override, Role, Worker, World};
use serde_json::{Map, Value};
use std::time::Duration;

/// An action with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `get-admin-password`
    GetAdminPassword,
    /// `check-status`
    CheckStatus {
        /// Also what is in order.
        verbose: bool,
    },
    /// `restart-services`
    RestartServices {
        /// Without draining the worker.
        force: bool,
    },
    /// `run-migrations`
    RunMigrations(Option<u64>),
    /// `update-concourse-version`
    UpdateVersion(Version),
    /// `drain`
    Drain(Duration),
    /// `resume`
    Resume,
    /// `rotate-keys`
    RotateKeys,
    /// `gpu-info`
    GpuInfo,
    /// `gpu-test`
    GpuTest(Asked),
    /// `gpu-diagnose`
    GpuDiagnose,
    /// `export-gpu-config`
    ExportGpuConfig(Format),
}

/// What the operator gets back.
#[derive(Debug, Default)]
pub struct Answer {
    /// Results.
    pub results: Bag,
    /// Standard output, for what must not be an argument.
    pub output: Option<Secret>,
    /// Why it failed.
    pub failure: Option<String>,
}

impl Answer {
    /// Only a reason.
    pub fn failed(why: String) -> Self {
        Answer { failure: Some(why), ..Answer::default() }
    }

    fn says(results: &[(&str, &str)]) -> Self {
        let results = results.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Answer { results, ..Answer::default() }
    }
}

/// The names of all actions.
pub const NAMES: [&str; 12] = [
    "get-admin-password",
    "check-status",
    "restart-services",
    "run-migrations",
    "update-concourse-version",
    "drain",
    "resume",
    "rotate-keys",
    "gpu-info",
    "gpu-test",
    "gpu-diagnose",
    "export-gpu-config",
];

impl Action {
    /// Reads an action's name and parameters.
    ///
    /// # Errors
    /// One sentence for the operator.
    pub fn parse(name: &str, params: &Map<String, Value>) -> Result<Self, String> {
        let flag = |key: &str| params.get(key).and_then(Value::as_bool).unwrap_or(false);
        // `juju run … count=1` gives a number.
        let text = |key: &str| match params.get(key)? {
            Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        Ok(match name {
            "get-admin-password" => Action::GetAdminPassword,
            "check-status" => Action::CheckStatus { verbose: flag("verbose") },
            "restart-services" => Action::RestartServices { force: flag("force") },
            "run-migrations" => Action::RunMigrations(match text("target-version") {
                None => None,
                Some(t) => Some(t.parse().map_err(|_| format!("target-version: {t} is not a schema version; use a number as concourse migrate shows it"))?),
            }),
            "update-concourse-version" => {
                let version = text("version").ok_or("version: say which, for example version=8.2.5")?;
                Action::UpdateVersion(version.parse().map_err(|e| format!("version: {e}"))?)
            }
            "drain" => {
                let limit: TimeLimit = text("timeout").as_deref().unwrap_or("10m").parse().map_err(|e| format!("timeout: {e}"))?;
                Action::Drain(limit.duration())
            }
            "resume" => Action::Resume,
            "rotate-keys" => Action::RotateKeys,
            "gpu-info" => Action::GpuInfo,
            "gpu-test" => Action::GpuTest(Asked { count: text("count"), devices: text("devices") }),
            "gpu-diagnose" => Action::GpuDiagnose,
            "export-gpu-config" => Action::ExportGpuConfig(text("format").as_deref().unwrap_or("slurm").parse()?),
            other => return Err(format!("this charm has no action {other}")),
        })
    }

    /// Whether it changes nothing.
    pub fn only_looks(&self) -> bool {
        matches!(self, Action::GetAdminPassword | Action::CheckStatus { .. })
    }
}

/// What the action does before the reconcile.
///
/// # Errors
/// Why it can't be done on this unit.
pub fn steps(action: &Action, world: &World) -> Result<Vec<Step>, String> {
    let roles = roles(world);
    let web_only = || roles.web.then_some(()).ok_or("This unit is no web node: run it on one that is");
    let worker_only = || roles.worker.then_some(()).ok_or("This unit is no worker: run it on one that is");
    match action {
        Action::GetAdminPassword => web_only()?,
        Action::CheckStatus { .. } => {}
        Action::RestartServices { force } => return restart(world, *force),
        Action::RunMigrations(schema) => {
            web_only()?;
            return Ok(vec![Step::Migrate(*schema)]);
        }
        Action::UpdateVersion(version) => return update(world, version),
        Action::Drain(patience) => {
            worker_only()?;
            not_paused(world)?;
            let mut steps = vec![Step::Write(drain::note(world.now, *patience))];
            let workers = running(world);
            if !workers.is_empty() {
                let end = Step::EndContainers(ending(world, &workers));
                steps.extend([Step::Leave(workers, Farewell::Land, *patience), end]);
            }
            return Ok(steps);
        }
        Action::Resume => {
            worker_only()?;
            return Ok(vec![Step::Remove(paths::DRAINED.into())]);
        }
        Action::RotateKeys => return rotate(world),
        Action::GpuTest(asked) => {
            let test = Step::TestGpus(asked.clone());
            return gpus::steps(world).map(|look| look.into_iter().chain([test]).collect());
        }
        Action::GpuInfo | Action::GpuDiagnose | Action::ExportGpuConfig(_) => return gpus::steps(world),
    }
    Ok(vec![])
}

/// A worker without a process can let no builds end.
fn not_paused(world: &World) -> Result<(), String> {
    match roles(world).workers().into_iter().any(|worker| waits(world, worker)) {
        true => Err("The worker waits for its web node to restart: try again in half a minute".into()),
        false => Ok(()),
    }
}

fn restart(world: &World, force: bool) -> Result<Vec<Step>, String> {
    let active = |role: Role| world.service(role).active;
    let workers: Vec<Worker> = Worker::ALL.into_iter().filter(|worker| active(worker.role())).collect();
    not_paused(world)?;
    // What can't be started again is not stopped.
    let lacks =
        [Some(Role::Web).filter(|role| active(*role)).and_then(|_| missing(world))].into_iter().flatten();
    let lacks = lacks.chain(workers.iter().filter_map(|worker| files(world, *worker).err()));
    if let Some(lacks) = lacks.into_iter().next() {
        return Err(format!("Nothing was restarted: {}", lacks.message));
    }
    let mut steps = vec![];
    if !workers.is_empty() && !force {
        steps.push(Step::Leave(workers.clone(), Farewell::Land, FAREWELL));
    }
    // The plan restarts what was not started with what it should have been, files first, and asks workers to pause before.
    let web = Some(Role::Web).filter(|role| active(*role));
    let roles = web.into_iter().chain(workers.into_iter().map(Worker::role));
    steps.extend(roles.map(|role| Step::Remove(role.started_record())));
    if steps.is_empty() {
        Err("No Concourse service runs on this unit: see its status".into())
    } else {
        Ok(steps)
    }
}

fn update(world: &World, version: &Version) -> Result<Vec<Step>, String> {
    if let Some(set) = world.config.as_ref().and_then(|c| c.version.as_ref()).filter(|v| *v != version) {
        let app = world.unit.application();
        return Err(format!(
            "concourse-version is {set}: juju config {app} concourse-version={version} does what you want"
        ));
    }
    let roles = roles(world);
    let follows = registration(world).servers.into_iter().find_map(|tsa| tsa.version);
    if let (false, Some(web)) = (roles.web, follows.filter(|v| v != version)) {
        return Err(format!(
            "This worker follows its web node, which runs {web}: update the web node, or set concourse-version"
        ));
    }
    let mut steps = vec![Step::MarkWanted(Override { version: version.clone(), pinned: pinned() })];
    if world.machine.failed.is_some() {
        steps.push(Step::Remove(paths::FAILED.into()));
    }
    Ok(steps)
}

fn rotate(world: &World) -> Result<Vec<Step>, String> {
    let roles = roles(world);
    let mut steps = vec![];
    let gone = |path: &str| Step::Remove(path.into());
    if roles.web {
        let id = world.peer_app_value(KEYS).ok_or("There are no keys yet: see the unit's status")?;
        if !world.leader {
            return Err("The web nodes share their keys: run it on the leader".into());
        }
        let (relation, read) = world.memory.one(PEERS).ok_or("The peer relation is not there yet")?;
        // What this unit wrote may be newer than what it has read, as Juju does not tell it of its own writes; and what
        // another leader wrote may be newer than both.
        let bags = [Some(&read.app_bag), world.record.app_bags.get(relation)].into_iter().flatten();
        let told = bags.filter_map(|bag| bag.get(KEYS_REVISION)?.parse::<u64>().ok());
        let revision = told.max().unwrap_or(0);
        steps.extend([gone(paths::HOST_KEY), gone(paths::HOST_KEY_PUB), gone(paths::SESSION_KEY)]);
        steps.push(Step::GenerateKey(KeyKind::Ssh, paths::HOST_KEY));
        steps.push(Step::GenerateKey(KeyKind::Rsa, paths::SESSION_KEY));
        steps.push(Step::ReplaceSecret { id: id.to_owned(), content: SecretSource::KeyFiles });
        let values = Bag::from([(KEYS_REVISION.to_owned(), (revision + 1).to_string())]);
        steps.push(Step::Publish { relation: relation.clone(), app: true, values });
    }
    if roles.worker {
        steps.extend([gone(paths::WORKER_KEY), gone(paths::WORKER_KEY_PUB)]);
        steps.push(Step::GenerateKey(KeyKind::Ssh, paths::WORKER_KEY));
    }
    Ok(steps)
}

/// Tells the other units that the content of a shared secret is new: its owners are not told by Juju.
const KEYS_REVISION: &str = "concourse-keys-revision";

/// What to tell the operator about the world as it is after the action.
pub fn answer(action: &Action, world: &World) -> Answer {
    let roles = roles(world);
    // That packages can't be had is no reason not to tell about GPUs.
    let mut troubles = world.troubles.iter().filter(|(concern, _)| **concern != Concern::Packages);
    let trouble = troubles.next().map(|(_, why)| why.clone());
    if let (Some(why), false) = (trouble, action.only_looks()) {
        return Answer::failed(why);
    }
    match action {
        Action::GetAdminPassword => password(world),
        Action::CheckStatus { verbose } => check_status::report(world, *verbose),
        Action::RestartServices { .. } if asked(world).is_some() => Answer::says(&[("message", PAUSING)]),
        Action::RestartServices { .. } if !restarted(world) => {
            Answer::failed("Not everything could be restarted: see the unit's status".into())
        }
        Action::RestartServices { .. } => Answer::says(&[("message", "Restarted")]),
        Action::RunMigrations(_) => Answer::says(&[("message", "Migrated")]),
        Action::UpdateVersion(version) => match &world.machine.current {
            Some(current) if current == version => {
                let mut answer = Answer::says(&[("version", &current.to_string())]);
                let later = asked(world).map(|_| ("message".to_owned(), PAUSING.to_owned()));
                answer.results.extend(later);
                answer
            }
            Some(current) => {
                let why = world
                    .machine
                    .failed
                    .as_ref()
                    .map(|f| f.reason.as_str())
                    .unwrap_or("see the unit's status");
                Answer::failed(format!("{current} still runs: {why}"))
            }
            None => Answer::failed("Concourse is not installed yet: see the unit's status".into()),
        },
        Action::Drain(patience) => {
            let ended = format!("builds that had not ended in {} s were ended", patience.as_secs());
            Answer::says(&[(
                "message",
                &format!("The worker is drained, and {ended}; resume brings it back"),
            )])
        }
        Action::Resume => Answer::says(&[(
            "message",
            if !world.machine.connected.is_empty() { "The worker is back" } else { "The worker starts" },
        )]),
        Action::RotateKeys if asked(world).is_some() => Answer::says(&[("message", PAUSING)]),
        Action::RotateKeys if roles.web => {
            Answer::says(&[("message", "New keys are in use; users log in again")])
        }
        Action::RotateKeys => Answer::says(&[("message", "The worker has a new key")]),
        Action::GpuInfo => gpus::info(world),
        Action::GpuTest(_) => gpus::tested(world),
        Action::GpuDiagnose => gpus::diagnose(world),
        Action::ExportGpuConfig(format) => gpus::exported(world, *format),
    }
}

/// Whether everything that should run was started since its record was taken away.
fn restarted(world: &World) -> bool {
    let roles = roles(world);
    let web = roles.web.then_some(Role::Web);
    let all = web.into_iter().chain(roles.workers().into_iter().map(Worker::role));
    all.into_iter().all(|role| world.service(role).started_with.is_some())
}

/// Hooks do the rest, once the workers' answers are there.
const PAUSING: &str = "The web node restarts as soon as its workers have paused, so that no output of builds is lost: see the unit's status";

fn password(world: &World) -> Answer {
    let (Some(password), Some(config)) = (admin_password(world), &world.config) else {
        return Answer::failed("There is no password yet: see the unit's status".into());
    };
    let url = address(world).map(|a| external_url(config, a)).unwrap_or_default();
    let mut answer = Answer::says(&[("username", &config.admin.to_string()), ("url", &url)]);
    answer.output = Some(Secret::new(format!("{password}\n")));
    answer
}
