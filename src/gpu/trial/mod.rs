//! `gpu-test`: a container like a task's, through the runtime that tasks go through; what a program in it saw is the result.
//!
//! ```text
//! Asked ─order─> params ─ bundle ─> wrapper, runc ─> container ─ probe ─> Seen ─┐
//! devices.json ─────────────────────────────────────────────────────────────────┴─ judge ─> Outcome
//! ```
//!
//! Covered is all that stands between a task and its GPUs on this worker: the policy, the device data, leases, the
//! wrapper at `create` and at `exec`, the real runc with Concourse's namespaces, capabilities and mounts, the hook that adds
//! the driver, device permissions, and the driver itself. Not covered: containerd and its shim, which hand
//! the bundle on as it is; the filter of system calls, which containerd adds; the network; and the task's own image.

pub mod bundle;
pub mod judge;
pub mod order;
pub mod probe;
pub mod run;

use crate::oci::devices::{Devices, Vendor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What the operator wants tested, in a task's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// As `GPU_COUNT`.
    pub count: Option<String>,
    /// As `NVIDIA_VISIBLE_DEVICES` and `AMD_VISIBLE_DEVICES` together.
    pub devices: Option<String>,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The container saw what it should and nothing else.
    Passed,
    /// It did not.
    #[default]
    Failed,
    /// There was no container: GPUs were in use, or what was asked for can't be.
    NotTried,
}

impl Verdict {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::NotTried => "not tried",
        }
    }
}

/// What came of a test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// When it began: `2026-01-02T03:04:05Z`.
    pub at: String,
    /// The task's params: `GPU_COUNT=all`.
    pub asked: String,
    /// The result.
    pub verdict: Verdict,
    /// Sentences on why it isn't a better one.
    pub reasons: Vec<String>,
    /// Sentences on what was not tested.
    pub notes: Vec<String>,
    /// Units that the container got.
    pub units: Vec<String>,
    /// Whose they are.
    pub vendors: Vec<Vendor>,
    /// Device nodes in the container, each with what opening it said.
    pub nodes: Vec<String>,
    /// What CUDA said.
    pub cuda: Option<String>,
    /// The [`fingerprint`] of the devices that it is about.
    pub of: String,
}

impl Outcome {
    /// One without a container.
    pub fn without(verdict: Verdict, why: impl Into<String>) -> Self {
        Outcome { verdict, reasons: vec![why.into()], ..Outcome::default() }
    }

    /// For the last rung of a vendor's ladder; `None`: it says nothing of that vendor.
    pub fn told(&self, vendor: Vendor) -> Option<Result<String, String>> {
        let about = self.vendors.contains(&vendor);
        match self.verdict {
            Verdict::Passed if about => Some(Ok(format!("tested {} with {}", self.at, self.asked))),
            // One that got no GPU says that of all of them.
            Verdict::Failed if about || self.vendors.is_empty() => {
                Some(Err(format!("tested {}: {}", self.at, self.reasons.join("; "))))
            }
            _ => None,
        }
    }
}

/// What the program in the container saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Device nodes that not every container has.
    pub nodes: Vec<Node>,
    /// Its environment, as far as it is about GPUs.
    pub env: BTreeMap<String, String>,
    /// NVIDIA's driver.
    pub cuda: Cuda,
}

/// A device node in the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Where.
    pub path: PathBuf,
    /// Its numbers.
    pub number: (u64, u64),
    /// Why it does not open.
    pub closed: Option<String>,
}

/// What NVIDIA's driver library said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cuda {
    /// Nobody asked: there are no GPUs of NVIDIA's.
    #[default]
    NotAsked,
    /// It is not in the container, or does not load.
    NoLibrary(String),
    /// `cuInit` or what follows failed.
    Failed(String),
    /// So many devices.
    Devices(i32),
}

/// Tells whether a result is still about the devices that there are now.
pub fn fingerprint(devices: &Devices) -> String {
    let ids = devices.units.iter().map(|unit| unit.id.as_str());
    let versions = devices.vendors.values().filter_map(|driver| driver.version.as_deref());
    ids.chain(versions).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
