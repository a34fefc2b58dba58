//! What a plan is made of. A step leaves no choice to whoever executes it, and doing it twice does no harm.

use crate::gpu::trial::Asked;
use crate::install::Order;
use crate::juju::tools::Bag;
use crate::packages;
use crate::parse::Version;
use crate::world::{Concern, Failed, Override, Role, Volumes, Worker};
use std::fmt;
use std::time::Duration;

/// Who a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOwner {
    /// root:root
    Root,
    /// root, and the group of the web node's user.
    RootConcourse,
    /// The web node's user.
    Concourse,
}

/// A file as it should be.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// Absolute path.
    pub path: String,
    /// All of its text.
    pub text: String,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub owner: FileOwner,
}

/// The word of a status, and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// How bad it is.
    pub level: Level,
    /// What to tell the operator.
    pub message: String,
}

/// Juju's status words, the worse the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It works.
    Active,
    /// Another unit or party has to act.
    Waiting,
    /// The charm is working.
    Maintenance,
    /// The operator has to act.
    Blocked,
}

impl Level {
    /// Juju's word.
    pub fn word(self) -> &'static str {
        match self {
            Level::Active => "active",
            Level::Waiting => "waiting",
            Level::Maintenance => "maintenance",
            Level::Blocked => "blocked",
        }
    }
}

/// What goes into a shared secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// The key files of this machine.
    KeyFiles,
    /// A new random password.
    NewPassword,
}

/// Which keys to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// For SSH, with the public half beside it.
    Ssh,
    /// For signing.
    Rsa,
}

/// How a worker leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// Away for a while; the web node keeps its volumes in mind.
    Land,
    /// Away for good.
    Retire,
}

/// One step.
#[derive(Clone)]
pub enum Step {
    /// Tell what is being done.
    Say(Status),
    /// Make the system user.
    CreateUser,
    /// Remove it.
    RemoveUser,
    /// Install the programs of the charm that is known by this name.
    InstallPrograms(String),
    /// Look at the GPUs, and remember what was seen.
    LookAtGpus,
    /// Make a container with some of them, and remember what it saw.
    TestGpus(Asked),
    /// Let systemd look at them when something changes, or no more.
    WatchGpus(bool),
    /// Undo what was changed about GPUs themselves.
    RestoreGpus,
    /// Install packages that GPUs need.
    InstallPackages(packages::Order),
    /// Remove what was installed for these purposes.
    RemovePackages(Vec<packages::Purpose>),
    /// Write a file as a whole.
    Write(File),
    /// Remove a file, a link or a tree.
    Remove(String),
    /// Remove a directory unless something is in it.
    RemoveEmptyDir(String),
    /// Get and unpack a version.
    Install(Order),
    /// Remove a version that nothing needs.
    RemoveVersion(Version),
    /// Remove what interrupted installations left.
    TidyInstallations,
    /// Let the services start this version from now on.
    Switch {
        /// The new one.
        to: Version,
        /// The one to go back to.
        previous: Option<Version>,
    },
    /// Remember that a version did not come up.
    MarkFailed(Failed),
    /// Remember which version an action asked for.
    MarkWanted(Override),
    /// Make a key pair, if there is none.
    GenerateKey(KeyKind, &'static str),
    /// Make a Juju secret of the application and tell its id to the peers.
    ShareSecret {
        /// Its label, and the key of its id in the peers' bag.
        label: &'static str,
        /// The peer relation.
        relation: String,
        /// Its content.
        content: SecretSource,
    },
    /// Replace the content of a shared secret.
    ReplaceSecret {
        /// The secret.
        id: String,
        /// Its content.
        content: SecretSource,
    },
    /// Find out how volumes can be kept in the work dir, and remember it.
    ProbeVolumes(Worker, Vec<Volumes>),
    /// Give the work dir an identity, and remember it in Juju.
    InitWorkDir(Worker),
    /// Remove the work dir of a worker that is not to come back, and all that tells of it.
    RemoveWorkDir(Worker),
    /// Take the registration of a worker that can't do so itself off the web node's list.
    ForgetWorker(Worker),
    /// Let systemd read its units again.
    DaemonReload,
    /// Start at boot, or no more.
    Enable(Role, bool),
    /// (Re)start and wait until it works, so long at most.
    Restart(Role, Duration),
    /// Let the web node read the authorised keys again.
    Reload(Role),
    /// Stop.
    Stop(Role),
    /// Stop workers, and let them start again by themselves when the pause is over.
    Pause(Vec<Worker>),
    /// Let workers finish their builds, all at the same time and so long at most, and stop them.
    Leave(Vec<Worker>, Farewell, Duration),
    /// End what stopped workers have left running, and with the last worker the network of its containers.
    EndContainers(Vec<Worker>),
    /// Migrate the database to what the given version supports.
    MigrateDown {
        /// The version whose program knows the way.
        with: Version,
        /// The version whose schema is wanted.
        to: Version,
    },
    /// Migrate the database to this schema.
    Migrate(Option<u64>),
    /// Take workers off the web node's list.
    Prune(Vec<String>),
    /// Write changed keys of a databag; an empty value deletes the key.
    Publish {
        /// The relation.
        relation: String,
        /// The application's bag instead of the unit's.
        app: bool,
        /// Keys and values, none of them secret.
        values: Bag,
    },
    /// Let the charm look again after this time, whatever Juju has to tell by then.
    Wake(Duration),
    /// Open a port.
    OpenPort(String),
    /// Close a port.
    ClosePort(String),
    /// Show the version that runs.
    TellVersion(String),
}

impl Step {
    /// What is troubled when this step fails for an expected reason.
    pub fn concern(&self) -> Option<Concern> {
        match self {
            Step::Install(_) => Some(Concern::Install),
            Step::LookAtGpus => Some(Concern::Gpus),
            Step::InstallPackages(_) | Step::RemovePackages(_) => Some(Concern::Packages),
            Step::Restart(Role::Web, _) => Some(Concern::Web),
            Step::Restart(Role::Worker, _) => Some(Concern::Worker),
            Step::Restart(Role::Untagged, _) => Some(Concern::Untagged),
            Step::Leave(..) | Step::ForgetWorker(_) => Some(Concern::Leave),
            Step::Prune(_) => Some(Concern::Prune),
            Step::OpenPort(_) => Some(Concern::Ports),
            Step::ProbeVolumes(..) => Some(Concern::Volumes),
            Step::Migrate(_) | Step::MigrateDown { .. } => Some(Concern::Migration),
            _ => None,
        }
    }
}

/// What goldens and logs show: everything but the text of files.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Say(status) => write!(f, "say {}: {}", status.level.word(), status.message),
            Step::CreateUser => write!(f, "create user"),
            Step::RemoveUser => write!(f, "remove user"),
            Step::InstallPrograms(_) => write!(f, "install programs"),
            Step::LookAtGpus => write!(f, "look at GPUs"),
            Step::TestGpus(_) => write!(f, "test GPUs in a container"),
            Step::WatchGpus(on) => write!(f, "{} GPUs", if *on { "watch" } else { "watch no more" }),
            Step::RestoreGpus => write!(f, "restore GPUs"),
            Step::InstallPackages(order) => write!(f, "install {}", order.what),
            Step::RemovePackages(purposes) => write!(f, "remove packages of {purposes:?}"),
            Step::Write(file) => write!(f, "write {} {:o} {:?}", file.path, file.mode, file.owner),
            Step::Remove(path) => write!(f, "remove {path}"),
            Step::RemoveEmptyDir(path) => write!(f, "remove {path} if empty"),
            Step::Install(order) => match &order.version {
                Some(version) => write!(f, "install {version} from {}", origin(&order.source)),
                None => write!(f, "install from {}", origin(&order.source)),
            },
            Step::RemoveVersion(version) => write!(f, "remove version {version}"),
            Step::TidyInstallations => write!(f, "remove parts of versions"),
            Step::Switch { to, previous: None } => write!(f, "switch to {to}"),
            Step::Switch { to, previous: Some(old) } => write!(f, "switch to {to}, keep {old}"),
            Step::MarkFailed(failed) => write!(f, "mark {} as failed", failed.version),
            Step::MarkWanted(wish) => write!(f, "mark {} as wanted", wish.version),
            Step::GenerateKey(kind, path) => write!(f, "generate {kind:?} key {path}"),
            Step::ShareSecret { label, .. } => write!(f, "share secret {label}"),
            Step::ReplaceSecret { content, .. } => write!(f, "replace secret by {content:?}"),
            Step::ProbeVolumes(worker, _) => write!(f, "probe volumes of {}", worker.role().unit()),
            Step::InitWorkDir(worker) => write!(f, "init work dir of {}", worker.role().unit()),
            Step::RemoveWorkDir(worker) => write!(f, "remove work dir of {}", worker.role().unit()),
            Step::ForgetWorker(worker) => write!(f, "forget {}", worker.role().unit()),
            Step::DaemonReload => write!(f, "daemon-reload"),
            Step::Enable(role, true) => write!(f, "enable {}", role.unit()),
            Step::Enable(role, false) => write!(f, "disable {}", role.unit()),
            Step::Restart(role, _) => write!(f, "restart {}", role.unit()),
            Step::Reload(role) => write!(f, "reload {}", role.unit()),
            Step::Stop(role) => write!(f, "stop {}", role.unit()),
            Step::Pause(workers) => write!(f, "pause {}", units(workers)),
            Step::Leave(workers, Farewell::Land, _) => write!(f, "land {}", units(workers)),
            Step::Leave(workers, Farewell::Retire, _) => write!(f, "retire {}", units(workers)),
            Step::EndContainers(workers) => write!(f, "end containers of {}", units(workers)),
            Step::MigrateDown { with, to } => write!(f, "migrate with {with} down to {to}"),
            Step::Migrate(Some(schema)) => write!(f, "migrate to {schema}"),
            Step::Migrate(None) => write!(f, "migrate"),
            Step::Prune(names) => write!(f, "prune {}", names.join(" ")),
            Step::Publish { relation, app, values } => {
                let side = if *app { " (app)" } else { "" };
                let keys: Vec<&str> = values.keys().map(String::as_str).collect();
                write!(f, "publish {relation}{side}: {}", keys.join(" "))
            }
            Step::Wake(after) => write!(f, "look again in {} s", after.as_secs()),
            Step::OpenPort(port) => write!(f, "open {port}"),
            Step::ClosePort(port) => write!(f, "close {port}"),
            Step::TellVersion(version) => write!(f, "tell version {version}"),
        }
    }
}

fn units(workers: &[Worker]) -> String {
    workers.iter().map(|worker| worker.role().unit()).collect::<Vec<_>>().join(" ")
}

/// An address may carry a password; the plan is logged.
fn origin(source: &crate::install::Source) -> &'static str {
    match source {
        crate::install::Source::Resource(_) => "the resource",
        crate::install::Source::Url(_) => "a URL",
    }
}
