//! What a machine says of its GPUs without being asked: plain data, read by [`super::scan`] (PURE).

use crate::cdi::edits::NodeStat;
use crate::cdi::units::Source;
use crate::oci::devices::Vendor;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Everything that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// What kind of machine it is; decides who can mend what.
    pub machine: Machine,
    /// Whether the firmware lets only signed modules in; `None`: no UEFI, or not visible.
    pub secure_boot: Option<bool>,
    /// `ubuntu 24.04`, from `/etc/os-release`.
    pub system: Option<String>,
    /// Those of `nvidia`, `nvidia_uvm`, `nouveau`, `amdgpu`, `i915`, `xe`, `nvgpu` that are loaded. In a container those
    /// of its host.
    pub modules: BTreeSet<String>,
    /// GPUs on the PCI bus. In a container all of its host's.
    pub pci: Vec<Pci>,
    /// NVIDIA's kernel module.
    pub nvidia: NvidiaModule,
    /// Nodes of GPUs in `/dev`, by path, and those that a CDI spec names.
    pub nodes: BTreeMap<PathBuf, NodeStat>,
    /// DRM devices, `card0` and `renderD128`, with the PCI address of their device.
    pub drm: BTreeMap<String, String>,
    /// GPU nodes of AMD's compute driver.
    pub kfd: Vec<Kfd>,
    /// Files of NVIDIA's driver for programs.
    pub files: DriverFiles,
    /// NVIDIA's generator of CDI specs is there.
    pub generator: bool,
    /// All CDI files.
    pub cdi: Vec<Cdi>,
}

/// Kinds of machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Machine {
    /// A computer.
    #[default]
    BareMetal,
    /// A virtual machine.
    Vm {
        /// Its name, where it is LXD's.
        lxd: Option<String>,
    },
    /// A container of LXD, as Juju's localhost cloud makes them.
    Lxd {
        /// Its name; LXD makes it the host name, which someone may have changed.
        name: Option<String>,
        /// Whether its root is the host's.
        privileged: bool,
    },
    /// A container of something else.
    Container {
        /// `docker`, `systemd-nspawn`…
        manager: String,
    },
    /// Windows Subsystem for Linux 2.
    Wsl,
    /// NVIDIA Jetson: the GPU is part of the chip, with a driver of its own.
    Jetson,
}

/// A GPU on the PCI bus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pci {
    /// `0000:07:00.0`
    pub address: String,
    /// Id of the maker.
    pub vendor: u16,
    /// Id of the product.
    pub device: u16,
    /// `0x030200`: base class, sub-class, interface.
    pub class: u32,
    /// Driver that is bound: `nvidia`, `nouveau`, `vfio-pci`…
    pub driver: Option<String>,
    /// NUMA node; `None` where the machine has one only.
    pub numa: Option<u32>,
    /// Memory in bytes, as AMD's and Intel's drivers tell it.
    pub memory: Option<u64>,
    /// Name of the product: the board's own, or of the lists of ids that distributions have.
    pub name: Option<String>,
    /// AMD: `SPX`, `CPX`…, how the chip is split for computing.
    pub partition: Option<String>,
    /// The device answers no more: its configuration reads as all ones.
    pub lost: bool,
}

impl Pci {
    /// Who made it.
    pub fn maker(&self) -> Option<Vendor> {
        match self.vendor {
            0x10de => Some(Vendor::Nvidia),
            0x1002 => Some(Vendor::Amd),
            0x8086 => Some(Vendor::Intel),
            _ => None,
        }
    }

    /// What to call it.
    pub fn shown(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} at {}", self.address),
            None => format!("{:04x}:{:04x} at {}", self.vendor, self.device, self.address),
        }
    }
}

/// What `/proc/driver/nvidia` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvidiaModule {
    /// Version of the loaded kernel module: `550.163.01`.
    pub version: Option<String>,
    /// GPUs that it drives, by address.
    pub gpus: BTreeMap<String, NvidiaGpu>,
    /// Instances of GPUs in MIG mode.
    pub instances: Vec<Instance>,
}

/// One of `/proc/driver/nvidia/gpus`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvidiaGpu {
    /// `NVIDIA A100-SXM4-40GB`
    pub model: Option<String>,
    /// `GPU-…`; not known before the GPU's first use.
    pub uuid: Option<String>,
    /// N of `/dev/nvidiaN`.
    pub minor: Option<u32>,
    /// Kept out by the operator (`NVreg_ExcludedGpus`).
    pub excluded: bool,
}

/// A compute instance of a GPU in MIG mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// N of the GPU's `/dev/nvidiaN`.
    pub minor: u32,
    /// GPU instance.
    pub gi: u32,
    /// Compute instance in it.
    pub ci: u32,
    /// N of the `/dev/nvidia-caps/nvidia-capN` that open the two.
    pub caps: [u32; 2],
}

/// A GPU, or a part of one, in `/sys/class/kfd/kfd/topology/nodes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kfd {
    /// Number in the topology.
    pub node: u32,
    /// `gfx942`
    pub gfx: String,
    /// `0000:c1:00.0`
    pub address: String,
    /// N of `renderDN`; each partition has its own.
    pub render: u32,
    /// Serial number of the chip; 0: it has none.
    pub unique_id: u64,
    /// Memory in bytes.
    pub memory: Option<u64>,
}

/// NVIDIA's files for programs: they must be of the kernel module's version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverFiles {
    /// Versions of `libnvidia-ml.so.VERSION` that are there, by path.
    pub nvml: BTreeMap<PathBuf, String>,
    /// Versions of `libcuda.so.VERSION` that are there, by path.
    pub cuda: BTreeMap<PathBuf, String>,
    /// Files of the module's version that a container needs, and sockets.
    pub files: Vec<PathBuf>,
    /// Names by which programs and linkers ask for the libraries: links, by path, with what they say.
    pub links: BTreeMap<PathBuf, String>,
}

/// A CDI file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cdi {
    /// Its text, or why there is none.
    pub source: Source,
    /// `nvidia.com/gpu`; `None`: it can't be read.
    pub kind: Option<String>,
    /// Names of its devices.
    pub devices: Vec<String>,
    /// Device nodes that it names.
    pub nodes: Vec<PathBuf>,
    /// Files to mount that it names and that aren't there.
    pub gone: Vec<PathBuf>,
}

impl Facts {
    /// GPUs of a maker on the PCI bus.
    pub fn of(&self, vendor: Vendor) -> impl Iterator<Item = &Pci> {
        self.pci.iter().filter(move |gpu| gpu.maker() == Some(vendor))
    }

    /// A node in `/dev`.
    pub fn node(&self, path: impl AsRef<Path>) -> Option<&NodeStat> {
        self.nodes.get(path.as_ref())
    }

    /// `renderD128` of a PCI device, if it has one; those of partitions are in [`Facts::kfd`].
    pub fn render(&self, address: &str) -> Option<&str> {
        let mut of = self.drm.iter().filter(|(name, at)| *at == address && name.starts_with("renderD"));
        of.next().map(|(name, _)| name.as_str())
    }

    /// CDI files of a vendor's GPUs.
    pub fn specs(&self, vendor: Vendor) -> impl Iterator<Item = &Cdi> {
        let kind = format!("{}.com/gpu", word(vendor));
        self.cdi.iter().filter(move |c| c.kind.as_ref() == Some(&kind))
    }

    /// Whether only other libraries can bring them and the loaded module together: in a container the module is the
    /// host's, and elsewhere a restart loads the module of libraries that are newer, but none that is older.
    pub fn libraries_must_follow(&self, module: &str, found: &[&String]) -> bool {
        let numbers =
            |version: &str| version.split('.').map(|n| n.parse().unwrap_or(0)).collect::<Vec<u32>>();
        let behind = |version: &&String| numbers(version) < numbers(module);
        self.in_container() || (!found.is_empty() && found.iter().all(behind))
    }

    /// Whether it is in a container that shares the host's kernel, so that drivers are the host's affair.
    pub fn in_container(&self) -> bool {
        matches!(self.machine, Machine::Lxd { .. } | Machine::Container { .. })
    }
}

/// A word for an operator.
pub fn brand(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::Nvidia => "NVIDIA",
        Vendor::Amd => "AMD",
        Vendor::Intel => "Intel",
    }
}

/// The word in options, ids and tags.
pub fn word(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::Nvidia => "nvidia",
        Vendor::Amd => "amd",
        Vendor::Intel => "intel",
    }
}

/// Whether it is a shared library, and not a module of the X server.
pub fn is_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("lib") && name.contains(".so") && !path.components().any(|c| c.as_os_str() == "xorg")
}
