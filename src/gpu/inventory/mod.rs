//! The GPUs of a machine, with all that is known of each (PURE).

mod nvidia;
mod others;

use super::facts::{Facts, Machine, Pci, word};
use super::said::Answer;
use super::wanted;
use crate::oci::devices::Vendor;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// All GPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    /// What kind of machine it is.
    pub machine: Machine,
    /// By vendor, its driver.
    pub drivers: BTreeMap<Vendor, DriverInfo>,
    /// GPUs and partitions, by vendor and then in the order of their indexes; those without one last.
    pub gpus: Vec<Gpu>,
    /// Names that CDI specs have for GPUs, whether those are there or not.
    pub named: BTreeSet<String>,
}

/// A driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverInfo {
    /// `580.65.06`; the drivers of AMD and Intel have the kernel's version.
    pub version: Option<String>,
    /// The newest CUDA that it runs: `13.0`.
    pub cuda: Option<String>,
}

/// A GPU, or what AMD's driver keeps apart of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Who made it.
    pub vendor: Vendor,
    /// Among those of its vendor that can be used here; as `nvidia-smi` counts.
    pub index: Option<u32>,
    /// Unique and lasting: NVIDIA's UUID, AMD's serial number, or the address (`intel-0000:03:00.0`).
    pub id: String,
    /// PCI address.
    pub address: Option<String>,
    /// Class and product on the PCI bus: `0302-2335`.
    pub pci_id: Option<String>,
    /// `NVIDIA H200`
    pub model: Option<String>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// NVIDIA: compute capability `9.0`.
    pub capability: Option<String>,
    /// NVIDIA: see [`super::said::SaidGpu::brand`].
    pub brand: Option<String>,
    /// AMD: `gfx942`.
    pub gfx: Option<String>,
    /// AMD: `HSA_OVERRIDE_GFX_VERSION` that most images need for this chip.
    pub hsa_override: Option<String>,
    /// AMD: how the chip is split: `CPX`.
    pub partition: Option<String>,
    /// NUMA node.
    pub numa: Option<u32>,
    /// NVIDIA: GPUs with the same number reach each other over NVLink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvlink: Option<u32>,
    /// Kernel driver.
    pub driver: Option<String>,
    /// NVIDIA: whether the driver stays loaded between uses.
    pub persistence: Option<bool>,
    /// Whether tasks can have it.
    pub state: State,
    /// NVIDIA: whether it is in MIG mode; then only its parts can be used.
    pub mig: bool,
    /// NVIDIA: its MIG devices.
    pub parts: Vec<Part>,
    /// Its own nodes.
    pub nodes: Vec<PathBuf>,
}

/// A MIG device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// `MIG-…`
    pub id: String,
    /// `0:1`
    pub name: String,
    /// `1g.10gb`
    pub profile: Option<String>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// GPU instance and compute instance.
    pub instance: Option<(u32, u32)>,
    /// The nodes that open it, besides its GPU's; `None`: which ones isn't known.
    pub caps: Option<Vec<PathBuf>>,
}

/// Whether a GPU can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", content = "why", rename_all = "kebab-case")]
pub enum State {
    /// It can.
    Ready,
    /// It can, but someone should look after it.
    Ailing(String),
    /// It is broken.
    Sick(String),
    /// It is in the machine, and nothing here can use it: no driver, or given to someone else.
    Elsewhere(String),
}

impl Gpu {
    /// Whether tasks can have it.
    pub fn usable(&self) -> bool {
        matches!(self.state, State::Ready | State::Ailing(_))
    }
}

/// Puts together what is known.
pub fn inventory(facts: &Facts, answer: &Answer) -> Inventory {
    let mut gpus = match facts.machine {
        Machine::Wsl => nvidia::wsl(facts, answer),
        Machine::Jetson => nvidia::jetson(facts),
        _ => nvidia::gpus(facts, answer),
    };
    gpus.extend(others::amd(facts));
    gpus.extend(others::intel(facts));
    for vendor in wanted::VENDORS {
        let unnumbered = |g: &&mut Gpu| g.vendor == vendor && g.usable() && g.index.is_none();
        for (index, gpu) in (0..).zip(gpus.iter_mut().filter(unnumbered)) {
            gpu.index = Some(index);
        }
    }
    gpus.sort_by_key(|g| (g.vendor, g.index.unwrap_or(u32::MAX), g.address.clone()));
    let mut drivers = BTreeMap::new();
    for vendor in gpus.iter().filter(|g| g.usable()).map(|g| g.vendor) {
        drivers.entry(vendor).or_insert_with(|| match (vendor, answer) {
            (Vendor::Nvidia, Answer::Said(said)) => DriverInfo {
                version: facts.nvidia.version.clone().or_else(|| said.driver.clone()),
                cuda: said.cuda.clone(),
            },
            (Vendor::Nvidia, _) => DriverInfo { version: facts.nvidia.version.clone(), cuda: None },
            _ => DriverInfo::default(),
        });
    }
    let named = wanted::VENDORS.into_iter().flat_map(|v| facts.specs(v)).flat_map(|c| c.devices.clone());
    Inventory { machine: facts.machine.clone(), drivers, gpus, named: named.collect() }
}

fn blank(vendor: Vendor, id: String) -> Gpu {
    Gpu {
        vendor,
        index: None,
        id,
        address: None,
        pci_id: None,
        model: None,
        memory_mib: None,
        capability: None,
        brand: None,
        gfx: None,
        hsa_override: None,
        partition: None,
        numa: None,
        nvlink: None,
        driver: None,
        persistence: None,
        state: State::Ready,
        mig: false,
        parts: vec![],
        nodes: vec![],
    }
}

fn on_bus(vendor: Vendor, pci: &Pci) -> Gpu {
    Gpu {
        address: Some(pci.address.clone()),
        pci_id: (pci.device != 0).then(|| format!("{:04x}-{:04x}", pci.class >> 8, pci.device)),
        model: pci.name.clone(),
        memory_mib: pci.memory.map(|b| b >> 20),
        numa: pci.numa,
        driver: pci.driver.clone(),
        ..blank(vendor, format!("{}-{}", word(vendor), pci.address))
    }
}
