//! The world as plain data: what `observe` saw, and all that `plan` and `status` may know.

use crate::config::{Config, Problem};
use crate::gpu::decide::Report;
use crate::gpu::trial::Outcome;
use crate::host::fs::Owner;
use crate::install::{Installed, ResourceStamp};
use crate::juju::memory::Memory;
use crate::juju::tools::Bag;
use crate::oci::devices::Devices;
use crate::oci::folders::Found;
use crate::oci::lease::shown::Shown;
use crate::packages::Ledger;
use crate::parse::{Moment, UnitName, Version};
pub use crate::role::{Role, Worker};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

/// One observation.
#[derive(Clone, Debug)]
pub struct World {
    /// This unit.
    pub unit: UnitName,
    /// When this was seen.
    pub now: Moment,
    /// Name and UUID of the model.
    pub model: (String, String),
    /// The newest options without a problem, by which everything runs; `None` if there never were any.
    pub config: Option<Config>,
    /// What is wrong with the options as they are now.
    pub problems: Vec<Problem>,
    /// Whether this unit leads its application.
    pub leader: bool,
    /// Relations, secrets, addresses; shared with the hook's session, since there may be a thousand units in it.
    pub memory: Rc<Memory>,
    /// What this unit has told Juju, this hook's writes included.
    pub record: Record,
    /// The same as it was when the hook began: what others may have seen.
    pub committed: Record,
    /// The machine.
    pub machine: Machine,
    /// What could not be done in this hook, as sentences for the operator.
    pub troubles: BTreeMap<Concern, String>,
    /// GPUs were looked at in this hook.
    pub looked: bool,
    /// Services that were (re)started by this hook and given their time.
    pub started: BTreeSet<Role>,
}

/// What this unit has written to Juju. Kept in Juju's own state of the unit, so that it is committed, or lost,
/// together with the writes it tells of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// This unit's bags by relation id.
    pub unit_bags: BTreeMap<String, Bag>,
    /// The application's bags by relation id, as this unit wrote them when it led.
    pub app_bags: BTreeMap<String, Bag>,
    /// Open ports, as `8080/tcp`.
    pub ports: BTreeSet<String>,
    /// The version that Juju shows.
    pub version: Option<String>,
    /// Identities of the work dirs under which the workers registered.
    pub work_dirs: BTreeMap<Worker, String>,
}

/// Something that can fail for a reason that only the operator, or time, can mend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Concern {
    /// Getting or unpacking a version.
    Install,
    /// The web node coming up.
    Web,
    /// The worker coming up.
    Worker,
    /// The worker without tags coming up.
    Untagged,
    /// A worker leaving.
    Leave,
    /// Workers of units that are gone being taken off the list.
    Prune,
    /// Ports.
    Ports,
    /// Volumes of a worker.
    Volumes,
    /// The database schema.
    Migration,
    /// Looking at GPUs.
    Gpus,
    /// Packages that GPUs need.
    Packages,
}

/// The machine as it is.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Which unit of this charm the machine belongs to, and its model's UUID.
    pub claim: Option<String>,
    /// The system user `concourse`.
    pub user: Option<Owner>,
    /// The managed files, by path; absent ones are not in it.
    pub files: BTreeMap<String, FileOnDisk>,
    /// Installed versions of Concourse.
    pub installed: Vec<Installed>,
    /// The version that the services start.
    pub current: Option<Version>,
    /// The version to go back to.
    pub previous: Option<Version>,
    /// Whether the current version has been seen working.
    pub proven: bool,
    /// A version that did not come up, and why.
    pub failed: Option<Failed>,
    /// Versions from whose directory some process runs.
    pub in_use: BTreeSet<Version>,
    /// The resource, if one with content is attached.
    pub resource: Option<ResourceStamp>,
    /// A version asked for by an action.
    pub override_version: Option<Override>,
    /// Processor architecture, as release archives name it.
    pub arch: String,
    /// Which charm the installed programs came with, empty if they are not all there; `None`: nothing of them is.
    pub programs: Option<String>,
    /// Folders that steps see.
    pub folders: Found,
    /// What was seen of GPUs at the last look.
    pub gpus: Option<Report>,
    /// What containers get of them; read for actions only.
    pub devices: Option<Devices>,
    /// What the last test of them in a container has seen; read for actions only.
    pub gpu_test: Option<Outcome>,
    /// Who has them, where each task has its own, or why nobody can say; read for actions only.
    pub leases: Option<Result<Shown, String>>,
    /// Its name; read for actions only.
    pub hostname: String,
    /// systemd looks again when something about them changes.
    pub gpus_watched: bool,
    /// It does so for some of it at least.
    pub gpus_watched_at_all: bool,
    /// Something about the GPUs themselves was changed, and is to be undone.
    pub gpus_persist: bool,
    /// Packages that the charm has added.
    pub packages: Ledger,
    /// Why NVIDIA's toolkit was not to be had, if it was not.
    pub no_toolkit: Option<NoToolkit>,
    /// `ubuntu 24.04`; empty where it is not told.
    pub system: String,
    /// Tells one boot from another.
    pub boot: String,
    /// The services.
    pub services: BTreeMap<Role, Service>,
    /// What the web node answered.
    pub web: Option<WebInfo>,
    /// The workers that hold a connection to a TSA.
    pub connected: BTreeSet<Worker>,
    /// The workers that do not run and have left containers or their shims.
    pub containers: BTreeSet<Worker>,
    /// An operator drained the unit.
    pub drained: bool,
    /// How workers keep volumes, once it was found out.
    pub volumes: BTreeMap<Worker, Volumes>,
    /// Identities of the work dirs.
    pub work_dirs: BTreeMap<Worker, String>,
    /// Another program has the port of Concourse's DNS proxy; looked at only where that is wanted.
    pub dns_port_taken: bool,
    /// Leftovers of this charm on a machine that it is about to leave.
    pub leftovers: Vec<String>,
    /// There are parts of downloads or of versions.
    pub half_installed: bool,
    /// What a killed hook did not get to move into its place, private keys among it.
    pub unfinished: Vec<String>,
}

/// NVIDIA's toolkit was tried for, and is not to be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoToolkit {
    /// What would have to change for another try.
    pub circumstances: String,
    /// Why.
    pub why: String,
}

impl Machine {
    /// Whether the toolkit was tried for in the same circumstances.
    pub fn no_toolkit_for(&self, circumstances: &str) -> bool {
        self.no_toolkit.as_ref().is_some_and(|note| note.circumstances == circumstances)
    }
}

/// A managed file as found.
#[derive(Clone, PartialEq, Eq)]
pub struct FileOnDisk {
    /// Its text; may be secret, so `Debug` leaves it out.
    pub text: String,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub owner: Owner,
}

impl fmt::Debug for FileOnDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, {:o}, {}:{}", self.text.len(), self.mode, self.owner.uid, self.owner.gid)
    }
}

/// A version that did not come up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Which.
    pub version: Version,
    /// What was seen.
    pub reason: String,
}

/// A version that the operator asked for by an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// Which.
    pub version: Version,
    /// What the charm pinned then: a charm that pins another version ends the override.
    pub pinned: Version,
}

/// A systemd unit as found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Its main process runs.
    pub active: bool,
    /// It is on its way up or down, or waits to be started again.
    pub changing: bool,
    /// It starts at boot.
    pub enabled: bool,
    /// systemd has read an older text of it.
    pub stale: bool,
    /// Its main process, while it runs.
    pub pid: Option<u32>,
    /// Digest of what the running process was started with; see the unit's `ExecStartPre`.
    pub started_with: Option<String>,
    /// Digest of the authorised keys that the web node has read.
    pub loaded_keys: Option<String>,
}

/// `/api/v1/info`, as far as the charm needs it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct WebInfo {
    /// The running version.
    pub version: String,
}

/// How volumes are kept (proven.md §2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Volumes {
    /// Overlay mounts.
    Overlay,
    /// Overlay mounts, with the kernel's metacopy parameter hidden from Concourse: unprivileged containers.
    OverlayMasked,
    /// btrfs subvolumes.
    Btrfs,
    /// Copies.
    Naive,
}

impl Volumes {
    /// Concourse's name for the driver.
    pub fn driver(self) -> &'static str {
        match self {
            Volumes::Overlay | Volumes::OverlayMasked => "overlay",
            Volumes::Btrfs => "btrfs",
            Volumes::Naive => "naive",
        }
    }
}

impl fmt::Display for Volumes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Volumes::Overlay => "overlay",
            Volumes::OverlayMasked => "overlay, without metacopy, as a user namespace needs it",
            Volumes::Btrfs => "btrfs",
            Volumes::Naive => "naive: each container copies its image",
        })
    }
}

impl World {
    /// Writes that others may not have seen yet are overlaid on what was read: a leader of Juju 3 is not told of
    /// its own writes.
    pub fn peer_app_value(&self, key: &str) -> Option<&str> {
        let (id, relation) = self.memory.one("concourse-peer")?;
        relation
            .app_bag
            .get(key)
            .or_else(|| self.record.app_bags.get(id)?.get(key))
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The version that the services start.
    pub fn current(&self) -> Option<&Installed> {
        let current = self.machine.current.as_ref()?;
        self.machine.installed.iter().find(|installed| installed.version == *current)
    }

    /// The text of a managed file.
    pub fn file(&self, path: &str) -> Option<&str> {
        self.machine.files.get(path).map(|file| file.text.as_str())
    }

    /// A service's state; one that does not exist is not active.
    pub fn service(&self, role: Role) -> Service {
        self.machine.services.get(&role).cloned().unwrap_or_default()
    }
}
