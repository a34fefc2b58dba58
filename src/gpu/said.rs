//! What NVIDIA's management library said, as it travels from the child that asked it: one type for both sides (PURE).

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// How asking ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// Nobody asked: there is no driver or no library.
    #[default]
    NotAsked,
    /// It answered.
    Said(Said),
    /// It refused.
    Failed {
        /// Why, as far as one can tell apart.
        reason: Reason,
        /// Its own words.
        text: String,
    },
    /// It did not answer in time, and the child was killed, or can't be: it waits in the kernel.
    Hung,
}

/// Why NVML can't be used: each has another cure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// `libnvidia-ml.so.1` is not there or can't be loaded.
    NoLibrary,
    /// The kernel module is not loaded, or its nodes aren't passed on.
    NoDriver,
    /// Library and kernel module are of different versions.
    Mismatch,
    /// The nodes can't be opened.
    NoPermission,
    /// A GPU is gone from the bus or needs a reset.
    Lost,
    /// Anything else; often the device cgroup.
    Other,
}

/// Everything that it said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Said {
    /// Version of the driver.
    pub driver: Option<String>,
    /// The newest CUDA that it runs: `13.0`.
    pub cuda: Option<String>,
    /// GPUs, in its order.
    pub gpus: Vec<SaidGpu>,
    /// By index, GPUs that it counts and can't tell about.
    pub silent: BTreeMap<String, String>,
    /// Ids of GPUs whose persistence mode was switched on.
    pub persisted: Vec<String>,
    /// By id, why it can't be switched on.
    pub refused: BTreeMap<String, String>,
    /// By path, why nodes can't be opened; those that can aren't here.
    pub closed: BTreeMap<PathBuf, String>,
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SaidGpu {
    /// As `nvidia-smi` counts.
    pub index: u32,
    /// `GPU-…`
    pub uuid: String,
    /// N of `/dev/nvidiaN`.
    pub minor: Option<u32>,
    /// PCI address, as sysfs writes it.
    pub address: Option<String>,
    /// `NVIDIA H200`
    pub model: Option<String>,
    /// In the words of image requirements: `tesla`, `geforce`…
    pub brand: Option<String>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// Memory in use, in MiB, without what the driver keeps for itself.
    pub used_mib: Option<u64>,
    /// Processes that compute on it; in MIG mode those of all its parts.
    pub processes: Vec<SaidProcess>,
    /// Processes that draw with it, a desktop's.
    pub graphics: Vec<SaidProcess>,
    /// PCI addresses at the other ends of its NVLinks: GPUs, or switches.
    pub links: BTreeSet<String>,
    /// Compute capability: `9.0`.
    pub capability: Option<String>,
    /// NUMA node.
    pub numa: Option<u32>,
    /// Whether the driver stays loaded between uses.
    pub persistence: Option<bool>,
    /// Memory errors since the last start that couldn't be corrected; `None`: memory without ECC.
    pub uncorrected: Option<u64>,
    /// Whether memory waits for a restart to be taken out of use.
    pub retiring: bool,
    /// Whether a row of memory could not be replaced.
    pub remap_failed: bool,
    /// Whether the GPU is in MIG mode.
    pub mig: bool,
    /// Its MIG devices.
    pub parts: Vec<SaidPart>,
}

/// A MIG device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SaidPart {
    /// Which of its GPU's, as in `0:1`.
    pub index: u32,
    /// `MIG-…`
    pub uuid: String,
    /// `1g.10gb`
    pub profile: Option<String>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// Memory in use, in MiB.
    pub used_mib: Option<u64>,
    /// GPU instance.
    pub gi: Option<u32>,
    /// Compute instance.
    pub ci: Option<u32>,
}

/// A process that uses a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SaidProcess {
    /// Its number, as the driver tells it: in a container perhaps the host's.
    pub pid: u32,
    /// Name of its program, if a process of this number can be seen.
    pub name: Option<String>,
    /// The GPU instance that it is on.
    pub gi: Option<u32>,
}
