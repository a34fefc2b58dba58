//! What containers get of each GPU: from a CDI spec that fits the machine, otherwise from what was found (PURE).

use super::facts::{Cdi, Facts, Machine, is_library, word};
use super::inventory::{Gpu, Inventory, Part};
use super::wanted::{VENDORS, Wanted};
use crate::cdi::edits::complete;
use crate::cdi::spec::{ContainerEdits, DeviceNode, Hook, Mount};
use crate::cdi::units::{self, DriverFacts, Source, UnitFacts, gather};
use crate::oci::devices::{Devices, Driver, FORMAT, Unit, Vendor};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Devices, and where they are from.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// All units that work, of the vendors that are wanted.
    pub devices: Devices,
    /// By vendor, where its data are from.
    pub origin: BTreeMap<Vendor, Origin>,
    /// By vendor, why its CDI specs were passed over.
    pub stale: BTreeMap<Vendor, String>,
    /// A sentence for the operator on each thing that was left out of a CDI spec.
    pub problems: Vec<String>,
}

/// Where data are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// CDI specs.
    Spec,
    /// Found here.
    Own,
}

/// Makes the data of all vendors that are wanted.
pub fn prepare(facts: &Facts, inventory: &Inventory, wanted: &Wanted) -> Prepared {
    let ours = |c: &&Cdi| match &c.kind {
        Some(_) => wanted.vendors.iter().any(|v| facts.specs(*v).any(|spec| spec == *c)),
        // What can't be read may be anyone's.
        None => !wanted.vendors.is_empty(),
    };
    let whole = facts.cdi.iter().filter(|c| c.gone.is_empty()).filter(ours);
    let sources: Vec<Source> = whole.map(|c| c.source.clone()).collect();
    let found = gather(&sources, &known(inventory), &|path| facts.node(path).copied());
    let devices = Devices { format: FORMAT, vendors: BTreeMap::new(), units: vec![] };
    let mut prepared =
        Prepared { devices, origin: BTreeMap::new(), stale: BTreeMap::new(), problems: found.problems };
    for vendor in VENDORS.into_iter().filter(|v| wanted.has(*v)) {
        let spec = found.devices.vendors.get(&vendor).cloned();
        let of_spec: Vec<Unit> = found.devices.units.iter().filter(|u| u.vendor == vendor).cloned().collect();
        let own = own(facts, inventory, vendor);
        let (origin, mut driver, mut units): (_, Driver, Vec<Unit>) = match (spec, own) {
            (Some(driver), own) if vendor == Vendor::Nvidia => {
                match (stale(facts, inventory, &driver, &of_spec), own) {
                    (None, _) => (Origin::Spec, driver, of_spec),
                    (Some(why), own) => {
                        prepared.stale.insert(vendor, why);
                        let Some((driver, units)) = own else { continue };
                        (Origin::Own, driver, units)
                    }
                }
            }
            (_, Some((driver, units))) => {
                prepared.stale.extend(gone(facts, vendor).map(|why| (vendor, why)));
                (Origin::Own, driver, units)
            }
            (Some(driver), None) => (Origin::Spec, driver, of_spec),
            (None, None) => {
                prepared.stale.extend(gone(facts, vendor).map(|why| (vendor, why)));
                continue;
            }
        };
        units.retain(|unit| !inventory.gpus.iter().any(|gpu| !gpu.usable() && is(gpu, unit)));
        if !units.is_empty() {
            let info = inventory.drivers.get(&vendor).cloned().unwrap_or_default();
            driver.version = info.version.or(driver.version.filter(|_| has_versions(facts)));
            driver.cuda = info.cuda.or(driver.cuda);
            prepared.origin.insert(vendor, origin);
            prepared.devices.vendors.insert(vendor, driver);
            prepared.devices.units.extend(units);
        }
    }
    prepared
}

fn is(gpu: &Gpu, unit: &Unit) -> bool {
    gpu.vendor == unit.vendor && (gpu.id == unit.id || gpu.nodes.iter().any(|n| own_node(n) && has(unit, n)))
}

/// One that no other GPU has.
fn own_node(node: &Path) -> bool {
    node != Path::new("/dev/dxg") && !node.to_string_lossy().contains("/nvhost-")
}

fn has(unit: &Unit, node: &Path) -> bool {
    unit.edits.nodes.iter().any(|n| n.host == node)
}

/// A spec whose files aren't all there is of another driver.
fn gone(facts: &Facts, vendor: Vendor) -> Option<String> {
    let (spec, gone) = facts.specs(vendor).find_map(|c| Some((&c.source.path, c.gone.first()?)))?;
    Some(format!("{} names {}, which is not there", spec.display(), gone.display()))
}

/// Why a spec is not the machine's: it is of another driver, or GPUs or MIG devices came after it.
fn stale(facts: &Facts, inventory: &Inventory, driver: &Driver, units: &[Unit]) -> Option<String> {
    if let (Some(spec), Some(module)) = (&driver.version, &facts.nvidia.version)
        && has_versions(facts)
        && spec != module
    {
        return Some(format!("the CDI spec is of driver {spec}, and {module} runs"));
    }
    let lacks = |id: &str, name: Option<&str>| {
        !units.iter().any(|u| u.id == id || u.names.iter().any(|n| n == id || Some(n.as_str()) == name))
    };
    let usable = inventory.gpus.iter().filter(|g| g.vendor == Vendor::Nvidia && g.usable());
    for gpu in usable.filter(|_| has_versions(facts)) {
        let index = gpu.index.map(|i| i.to_string());
        let missing = match gpu.mig {
            true => gpu.parts.iter().find(|p| lacks(&p.id, Some(&p.name))).map(|p| p.id.clone()),
            false => lacks(&gpu.id, index.as_deref()).then(|| gpu.id.clone()),
        };
        if let Some(id) = missing {
            return Some(format!("the CDI spec lacks {id}"));
        }
    }
    None
}

/// The library of WSL and Jetson is called `libcuda.so.1.1` whatever the driver, and their specs name no GPUs.
fn has_versions(facts: &Facts) -> bool {
    !matches!(facts.machine, Machine::Wsl | Machine::Jetson)
}

/// What the inventory adds to a spec.
fn known(inventory: &Inventory) -> units::Wanted {
    let mut wanted = units::Wanted::default();
    for (vendor, info) in &inventory.drivers {
        wanted.drivers.insert(*vendor, DriverFacts { version: None, cuda: info.cuda.clone() });
    }
    // Names of units are looked up without their vendor: an index of NVIDIA's is not one of AMD's.
    let nvidia = |gpu: &&Gpu| gpu.vendor == Vendor::Nvidia;
    for gpu in inventory.gpus.iter().filter(nvidia) {
        let names = gpu.index.map(|i| i.to_string()).into_iter().chain([gpu.id.clone()]);
        wanted.units.extend(names.map(|name| (name, unit_facts(gpu, None))));
        for part in &gpu.parts {
            let names = [part.id.clone(), part.name.clone()];
            wanted.units.extend(names.map(|name| (name, unit_facts(gpu, Some(part)))));
        }
    }
    wanted
}

fn unit_facts(gpu: &Gpu, part: Option<&Part>) -> UnitFacts {
    UnitFacts {
        id: Some(part.map_or(&gpu.id, |p| &p.id).clone()),
        model: model(gpu, part),
        memory_mib: part.map_or(gpu.memory_mib, |p| p.memory_mib),
        compute_capability: gpu.capability.clone(),
        brand: gpu.brand.clone(),
        hsa_override: gpu.hsa_override.clone(),
        numa_node: gpu.numa,
        nvlink: gpu.nvlink.filter(|_| part.is_none()),
    }
}

/// As NVML names a part.
fn model(gpu: &Gpu, part: Option<&Part>) -> Option<String> {
    match part.and_then(|p| p.profile.as_ref()) {
        Some(profile) => gpu.model.as_ref().map(|model| format!("{model} MIG {profile}")),
        None => gpu.model.clone(),
    }
}

fn own(facts: &Facts, inventory: &Inventory, vendor: Vendor) -> Option<(Driver, Vec<Unit>)> {
    let driver = match (vendor, &facts.machine) {
        // What a Jetson's containers need is listed in files of NVIDIA's that only NVIDIA's generator reads.
        (Vendor::Nvidia, Machine::Jetson) => return None,
        (Vendor::Nvidia, _) if !has_cuda(facts) => return None,
        (Vendor::Nvidia, _) => nvidia_driver(facts),
        (Vendor::Amd, _) => edits(["/dev/kfd".into()]),
        (Vendor::Intel, _) => ContainerEdits::default(),
    };
    let lstat = |path: &Path| facts.node(path).copied();
    let mut units = vec![];
    for gpu in inventory.gpus.iter().filter(|g| g.vendor == vendor && g.usable()) {
        let parts: Vec<Option<&Part>> =
            if gpu.mig { gpu.parts.iter().map(Some).collect() } else { vec![None] };
        for part in parts {
            let caps = part.map_or(Some(vec![]), |p| p.caps.clone());
            let nodes: Option<Vec<PathBuf>> = caps.map(|caps| [gpu.nodes.clone(), caps].concat());
            // A part whose nodes aren't known or aren't here can't be opened.
            let Some(nodes) = nodes.filter(|n| n.iter().all(|n| facts.node(n).is_some())) else { continue };
            units.push(unit(gpu, part, complete(&edits(nodes), false, &lstat).0));
        }
    }
    if facts.machine == Machine::Wsl && units.len() > 1 {
        // One node for all: who has it has them all.
        units[0].id = "nvidia-wsl".into();
        units.truncate(1);
    }
    let edits = complete(&driver, false, &lstat).0;
    (!units.is_empty()).then_some((Driver { version: None, cuda: None, edits }, units))
}

/// Whether the library that all of CUDA goes through is there, and is the module's.
fn has_cuda(facts: &Facts) -> bool {
    let module = facts.nvidia.version.as_ref();
    facts.machine == Machine::Wsl && !facts.files.cuda.is_empty()
        || facts.files.cuda.values().any(|version| Some(version) == module)
}

fn unit(gpu: &Gpu, part: Option<&Part>, edits: crate::oci::devices::Edits) -> Unit {
    let facts = unit_facts(gpu, part);
    let index = match part {
        Some(part) => Some(part.name.clone()),
        None => gpu.index.map(|i| i.to_string()),
    };
    let address = format!("{}-{}", word(gpu.vendor), gpu.address.as_deref().unwrap_or_default());
    let id = facts.id.unwrap_or_default();
    let address = Some(address).filter(|a| part.is_none() && gpu.partition.is_none() && *a != id);
    Unit {
        names: index.into_iter().chain(address.filter(|_| gpu.address.is_some())).collect(),
        id,
        vendor: gpu.vendor,
        model: facts.model,
        memory_mib: facts.memory_mib,
        compute_capability: facts.compute_capability,
        brand: facts.brand,
        hsa_override: facts.hsa_override,
        numa_node: facts.numa_node,
        nvlink: facts.nvlink,
        edits,
    }
}

fn edits(nodes: impl IntoIterator<Item = PathBuf>) -> ContainerEdits {
    let node = |path| DeviceNode {
        path,
        host_path: None,
        kind: None,
        major: None,
        minor: None,
        file_mode: None,
        permissions: None,
        uid: None,
        gid: None,
    };
    ContainerEdits { device_nodes: nodes.into_iter().map(node).collect(), ..ContainerEdits::default() }
}

/// NVIDIA's driver in the words of NVIDIA's own generator; [`crate::cdi::tree`] makes one mount and one hook of it.
fn nvidia_driver(facts: &Facts) -> ContainerEdits {
    let control = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"];
    let mut made = edits(control.map(PathBuf::from).into_iter().filter(|n| facts.node(n).is_some()));
    let is_socket = |path: &Path| path.starts_with("/run");
    let mount = |path: &PathBuf| {
        let last = if is_socket(path) { "noexec" } else { "ro" };
        let options = ["nosuid", "nodev", "rbind", "rprivate", last].map(str::to_owned).to_vec();
        // Where images have their own, as NVIDIA's generator does it.
        let container_path = match path.strip_prefix("/usr/share/vulkan") {
            Ok(rest) => Path::new("/etc/vulkan").join(rest),
            Err(_) => path.clone(),
        };
        Mount { host_path: path.clone(), container_path, options, kind: None }
    };
    made.mounts = facts.files.files.iter().map(mount).collect();
    let version = facts.nvidia.version.as_deref().unwrap_or_default();
    let told = facts.files.links.iter();
    let mut links: Vec<(String, String)> = told.map(|(l, t)| (t.clone(), l.display().to_string())).collect();
    let mut folders = vec![];
    for path in &facts.files.files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let beside = |link: &str| path.with_file_name(link).display().to_string();
        if is_library(path) {
            folders.extend(path.parent().map(|p| p.display().to_string()));
        }
        let library = name.strip_suffix(&format!(".so.{version}")).filter(|_| !version.is_empty());
        links.extend(match library {
            // Programs ask for it under this name, which packages for developers have.
            Some("libcuda") => Some(("libcuda.so.1".to_owned(), beside("libcuda.so"))),
            Some("libnvidia-opticalflow") => {
                Some(("libnvidia-opticalflow.so.1".to_owned(), beside("libnvidia-opticalflow.so")))
            }
            Some("libGLX_nvidia") => Some((name.to_string(), beside("libGLX_indirect.so.0"))),
            Some("libnvidia-allocator") => {
                Some(("../libnvidia-allocator.so.1".to_owned(), beside("gbm/nvidia-drm_gbm.so")))
            }
            Some("libnvidia-vulkan-producer") => {
                Some((name.to_string(), beside("libnvidia-vulkan-producer.so")))
            }
            Some("libglxserver_nvidia") => Some((name.to_string(), beside("libglxserver_nvidia.so"))),
            _ if path.ends_with("usr/lib/wsl/lib/nvidia-smi") => {
                Some((path.display().to_string(), "/usr/bin/nvidia-smi".to_owned()))
            }
            _ => None,
        });
    }
    folders.sort();
    folders.dedup();
    links.sort();
    links.dedup();
    let links = links.into_iter().flat_map(|(target, link)| ["--link".into(), format!("{target}::{link}")]);
    let folders = folders.into_iter().flat_map(|folder| ["--folder".into(), folder]);
    made.hooks = vec![hook("create-symlinks", links), hook("update-ldcache", folders)];
    if !version.is_empty() {
        let driver = format!("--host-driver-version={version}");
        made.hooks.push(hook("enable-cuda-compat", [driver]));
        made.hooks.push(hook("disable-device-node-modification", []));
        made.hooks.push(hook("update-application-profile", []));
    }
    made.hooks.retain(|h| h.args.len() > 2 || !["create-symlinks", "update-ldcache"].contains(&&*h.args[1]));
    made
}

fn hook(name: &str, args: impl IntoIterator<Item = String>) -> Hook {
    let first = ["nvidia-cdi-hook".to_owned(), name.to_owned()];
    Hook {
        hook_name: "createContainer".into(),
        path: "/usr/bin/nvidia-cdi-hook".into(),
        args: first.into_iter().chain(args).collect(),
        env: vec![],
        timeout: None,
    }
}
