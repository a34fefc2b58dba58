//! `/etc/concourse/runtime.json`: what the charm decided and the wrapper carries out. One type for both sides (PURE).

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The format that this program writes, and the only one that it reads.
pub const FORMAT: u32 = 1;

/// The whole policy. Read anew for each container, so a change needs no restart of the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// See [`FORMAT`].
    pub format: u32,
    /// The real runc: absolute, so that a lookup in PATH can never find the wrapper again.
    pub runc: PathBuf,
    /// Folders of the worker that steps see.
    pub folders: Folders,
    /// GPUs; `None` where the worker has none to give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Gpus>,
}

/// Folders that are mounted at the path that they have on the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Folders {
    /// Which steps see them.
    pub steps: Steps,
    /// The directory whose sub-directories they are: `/srv`.
    pub root: PathBuf,
}

/// Steps of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steps {
    /// No step.
    None,
    /// Tasks.
    Tasks,
    /// Tasks, gets, puts and checks.
    All,
}

/// What is decided about GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpus {
    /// Which tasks get some.
    pub access: Access,
    /// Ids of the units that tasks may have (see [`super::devices::Unit::id`]); `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<Vec<String>>,
    /// Where the [`super::devices::Devices`] are.
    pub devices: PathBuf,
    /// How units are leased, where [`Access::Exclusive`] is set.
    #[serde(default)]
    pub leases: Leases,
}

/// Rules of exclusive access. What is left out is as in [`Leases::default`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Leases {
    /// Directory of the table: in memory, so that it ends with the containers; the worker's own.
    pub dir: PathBuf,
    /// What a task gets that says nothing about GPUs.
    pub default_count: DefaultCount,
    /// How many containers may have the same unit at once; 0 is 1.
    pub replicas: u32,
    /// Seconds that a task waits for units; more than [`Leases::MAX_WAIT`] is that.
    pub wait_s: u64,
    /// Whether tasks may choose units by name (`NVIDIA_VISIBLE_DEVICES: "0"`). `all` and `none` they always may.
    pub names: bool,
    /// See [`BUNDLES`].
    #[serde(skip_serializing_if = "is_usual")]
    pub bundles: Vec<PathBuf>,
}

/// Where the machine's containers have their bundles. A worker's containerd is in `/run/containerd` always, so the second
/// one has a mount namespace of its own in which that is another directory: these are the names by which each of them, and
/// the machine itself, sees its own containers and the other's. Which names there are depends on where one looks.
pub const BUNDLES: [&str; 3] = [
    "/run/containerd/io.containerd.runtime.v2.task/concourse",
    "/run/concourse-ci-machine/containerd-main/io.containerd.runtime.v2.task/concourse",
    "/run/concourse-ci-machine/containerd-untagged/io.containerd.runtime.v2.task/concourse",
];

fn is_usual(bundles: &[PathBuf]) -> bool {
    bundles.iter().eq(BUNDLES.map(PathBuf::from).iter())
}

impl Leases {
    /// Seconds. Concourse gives up after five minutes, and the container that it gave up would still get its units.
    pub const MAX_WAIT: u64 = 270;
}

impl Default for Leases {
    fn default() -> Self {
        let dir = "/run/concourse-gpu".into();
        let bundles = BUNDLES.map(PathBuf::from).into();
        Leases { dir, default_count: DefaultCount::All, replicas: 1, wait_s: 180, names: true, bundles }
    }
}

/// `"none"`, `"all"` or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultCount {
    /// Nothing: only tasks that ask get units.
    None,
    /// All of the worker.
    All,
    /// So many, or all if there are fewer.
    #[serde(untagged)]
    Some(usize),
}

/// Which tasks get GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Every task gets all units, or the smaller choice that it names.
    Shared,
    /// Only tasks that ask.
    Request,
    /// Each task gets units of its own, see [`Leases`].
    Exclusive,
}
