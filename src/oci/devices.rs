//! Device data, made ready ahead of time: what CDI specs say, in the one form that the wrapper reads (PURE).
//!
//! The charm writes it from CDI specs and sysfs; the wrapper only adds to a bundle what stands here.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The format that this program writes, and the only one that it reads.
pub const FORMAT: u32 = 1;

/// All units of a worker, each with what a container needs to use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Devices {
    /// See [`FORMAT`].
    pub format: u32,
    /// By vendor, what each container with a unit of it gets once.
    pub vendors: BTreeMap<Vendor, Driver>,
    /// In the order in which tasks get them.
    pub units: Vec<Unit>,
}

/// Who made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vendor {
    /// `nvidia.com/gpu`
    Nvidia,
    /// `amd.com/gpu`
    Amd,
    /// `intel.com/gpu`
    Intel,
}

/// A vendor's driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// Version of the driver, `580.65.06`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The newest CUDA that it can run, `13.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// What a container gets once, whichever units it gets.
    #[serde(default)]
    pub edits: Edits,
}

/// What can be given to a task: a GPU, or a part of one that the driver keeps apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Unique and lasting: `GPU-<uuid>`, `MIG-<uuid>`, or an address where the vendor has no UUID.
    pub id: String,
    /// Other names by which it may be chosen: index `0`, `0:1`.
    pub names: Vec<String>,
    /// Who made it.
    pub vendor: Vendor,
    /// `NVIDIA H200`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Memory in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// The NUMA node that it is closest to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// NVIDIA: units with the same number reach each other over NVLink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvlink: Option<u32>,
    /// NVIDIA: compute capability, `9.0`, the `arch` of image requirements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<String>,
    /// NVIDIA: `brand` of image requirements, in lower case: `tesla`, `geforce`, `nvidiartx`…
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brand: Option<String>,
    /// AMD: value of `HSA_OVERRIDE_GFX_VERSION` that the chip needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hsa_override: Option<String>,
    /// What a container needs for it.
    pub edits: Edits,
}

impl Unit {
    /// One of which only this is known.
    pub fn new(vendor: Vendor, id: &str, names: &[&str]) -> Self {
        Unit {
            id: id.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            vendor,
            model: None,
            memory_mib: None,
            numa_node: None,
            nvlink: None,
            compute_capability: None,
            brand: None,
            hsa_override: None,
            edits: Edits::default(),
        }
    }
}

/// Additions to a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Edits {
    /// Device nodes, each with its rule of the device cgroup.
    pub nodes: Vec<Node>,
    /// Bind mounts.
    pub mounts: Vec<Mount>,
    /// Environment of each process.
    pub env: BTreeMap<String, String>,
    /// Hooks, in their order.
    pub hooks: Vec<Hook>,
    /// Groups of each process: those that own nodes which are not for everybody.
    pub gids: Vec<u32>,
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// In the container.
    pub path: PathBuf,
    /// On the worker.
    pub host: PathBuf,
    /// `c` or `b`.
    #[serde(rename = "type")]
    pub kind: char,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Permission bits of a node that is made; decimal in JSON, as in CDI.
    pub mode: u32,
    /// Owner of a node that is made.
    pub uid: u32,
    /// Group of a node that is made.
    pub gid: u32,
    /// What the device cgroup lets through: `rwm`.
    pub permissions: String,
}

/// A bind mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// On the worker.
    pub host: PathBuf,
    /// In the container.
    pub path: PathBuf,
    /// As in `mount -o`.
    pub options: Vec<String>,
}

/// A hook of the OCI runtime specification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// `createContainer`…
    pub stage: String,
    /// The program.
    pub path: PathBuf,
    /// Its arguments, its own name first.
    pub args: Vec<String>,
    /// Its environment, `NAME=value`.
    #[serde(default)]
    pub env: Vec<String>,
    /// Seconds that it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u32>,
}
