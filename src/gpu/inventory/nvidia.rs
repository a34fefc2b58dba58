//! NVIDIA's GPUs: on the PCI bus, behind Windows, in the chip of a Jetson (PURE).

use super::{Gpu, Part, State, blank, on_bus};
use crate::gpu::facts::{Facts, Pci};
use crate::gpu::said::{Answer, Said, SaidGpu};
use crate::oci::devices::Vendor;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// GPUs on the bus and those that the module or the library tells of without a bus that can be seen.
pub fn gpus(facts: &Facts, answer: &Answer) -> Vec<Gpu> {
    let none = Said::default();
    let said = if let Answer::Said(said) = answer { said } else { &none };
    let mut addresses: Vec<String> = facts.of(Vendor::Nvidia).map(|p| p.address.clone()).collect();
    addresses.extend(facts.nvidia.gpus.keys().cloned());
    addresses.extend(said.gpus.iter().filter_map(|g| g.address.clone()));
    addresses.sort();
    addresses.dedup();
    let mut gpus: Vec<Gpu> = addresses.iter().map(|address| gpu(facts, address, said)).collect();
    for gpu in &mut gpus {
        gpu.nvlink = gpu.address.as_ref().and_then(|address| linked(address, said));
    }
    gpus
}

/// The smallest index of those that a GPU reaches over NVLink, itself among them: the same for all of these.
fn linked(address: &String, said: &Said) -> Option<u32> {
    // A GPU, or a switch that several GPUs hang on.
    let mut reached = BTreeSet::from([address]);
    loop {
        let known = reached.len();
        for gpu in said.gpus.iter().filter(|gpu| !gpu.links.is_empty()) {
            let ends: BTreeSet<&String> = gpu.links.iter().chain(&gpu.address).collect();
            if !ends.is_disjoint(&reached) {
                reached.extend(ends);
            }
        }
        if reached.len() == known {
            break;
        }
    }
    let there = |gpu: &&SaidGpu| gpu.address.as_ref().is_some_and(|a| reached.contains(a));
    let indexes: Vec<u32> = said.gpus.iter().filter(there).map(|gpu| gpu.index).collect();
    indexes.iter().min().copied().filter(|_| indexes.len() > 1)
}

fn gpu(facts: &Facts, address: &str, said: &Said) -> Gpu {
    let pci = facts.pci.iter().find(|p| p.address == address);
    let module = facts.nvidia.gpus.get(address);
    let told = said.gpus.iter().find(|g| g.address.as_deref() == Some(address));
    let default = Pci { address: address.into(), ..Pci::default() };
    let mut gpu = on_bus(Vendor::Nvidia, pci.unwrap_or(&default));
    let uuid = told.map(|t| t.uuid.clone()).or_else(|| module?.uuid.clone());
    gpu.id = uuid.unwrap_or(gpu.id);
    gpu.model = told.and_then(|t| t.model.clone()).or_else(|| module?.model.clone()).or(gpu.model);
    let minor = module.and_then(|m| m.minor).or_else(|| told?.minor);
    let node = minor.map(|m| PathBuf::from(format!("/dev/nvidia{m}")));
    gpu.nodes.extend(node.filter(|n| facts.node(n).is_some()));
    let render = facts.render(address).map(|name| Path::new("/dev/dri").join(name));
    gpu.nodes.extend(render.filter(|n| !gpu.nodes.is_empty() && facts.node(n).is_some()));
    if let Some(told) = told {
        gpu.index = Some(told.index);
        gpu.memory_mib = told.memory_mib;
        gpu.capability = told.capability.clone();
        gpu.brand = told.brand.clone();
        gpu.persistence = told.persistence;
        gpu.numa = gpu.numa.or(told.numa);
    }
    parts(facts, &mut gpu, minor, told);
    gpu.state = state(facts, &gpu, pci, told, said);
    if !gpu.usable() {
        gpu.index = None;
    }
    gpu
}

fn state(facts: &Facts, gpu: &Gpu, pci: Option<&Pci>, told: Option<&SaidGpu>, said: &Said) -> State {
    let module = gpu.address.as_ref().and_then(|a| facts.nvidia.gpus.get(a));
    if pci.is_some_and(|p| p.lost) || (pci.is_none() && module.is_some() && !facts.pci.is_empty()) {
        return State::Sick("it has fallen off the bus".into());
    }
    match gpu.driver.as_deref() {
        Some("nvidia") => {}
        Some(other) => return State::Elsewhere(format!("the driver {other} has it")),
        None if module.is_none() && told.is_none() => return State::Elsewhere("no driver has it".into()),
        None => {}
    }
    if module.is_some_and(|m| m.excluded) {
        return State::Elsewhere("the driver was told to leave it alone (NVreg_ExcludedGpus)".into());
    }
    if gpu.nodes.is_empty() {
        return State::Elsewhere("its node is not in /dev".into());
    }
    match told {
        None if !said.silent.is_empty() => {
            let why = said.silent.values().next().map(String::as_str).unwrap_or_default();
            State::Sick(format!("the driver can't reach it ({why})"))
        }
        None if !said.gpus.is_empty() => State::Elsewhere("the driver's library does not list it".into()),
        Some(told) if told.remap_failed => {
            State::Sick("a row of its memory is broken and has no spare".into())
        }
        Some(told) if told.retiring => State::Ailing("broken memory waits for a reset of the GPU".into()),
        Some(told) if told.uncorrected.is_some_and(|n| n > 0) => {
            let n = told.uncorrected.unwrap_or(0);
            State::Ailing(format!("its memory had {n} errors that could not be corrected"))
        }
        _ => State::Ready,
    }
}

/// MIG devices: by name as the library tells, otherwise as the module lists them.
fn parts(facts: &Facts, gpu: &mut Gpu, minor: Option<u32>, told: Option<&SaidGpu>) {
    let of: Vec<_> = facts.nvidia.instances.iter().filter(|i| Some(i.minor) == minor).collect();
    gpu.mig = told.map_or(!of.is_empty(), |t| t.mig);
    let caps = |gi: u32, ci: u32| {
        let found = of.iter().find(|i| (i.gi, i.ci) == (gi, ci))?;
        Some(found.caps.map(|n| PathBuf::from(format!("/dev/nvidia-caps/nvidia-cap{n}"))).to_vec())
    };
    gpu.parts = match told {
        Some(told) => told
            .parts
            .iter()
            .map(|part| {
                let instance = part.gi.zip(part.ci);
                Part {
                    id: part.uuid.clone(),
                    name: format!("{}:{}", told.index, part.index),
                    profile: part.profile.clone(),
                    memory_mib: part.memory_mib,
                    instance,
                    caps: instance.and_then(|(gi, ci)| caps(gi, ci)),
                }
            })
            .collect(),
        None => of
            .iter()
            .map(|i| Part {
                // The older form of the name, which needs no library.
                id: format!("MIG-{}/{}/{}", gpu.id, i.gi, i.ci),
                name: format!("{}:{}:{}", i.minor, i.gi, i.ci),
                profile: None,
                memory_mib: None,
                instance: Some((i.gi, i.ci)),
                caps: caps(i.gi, i.ci),
            })
            .collect(),
    };
}

/// All of Windows' GPUs are behind one node.
pub fn wsl(facts: &Facts, answer: &Answer) -> Vec<Gpu> {
    let node = PathBuf::from("/dev/dxg");
    let has = facts.node(&node).is_some();
    let Answer::Said(said) = answer else {
        // Some GPU of NVIDIA's, since Windows lent its driver.
        let some = Gpu {
            driver: Some("dxgkrnl".into()),
            nodes: vec![node],
            ..blank(Vendor::Nvidia, "nvidia-wsl".into())
        };
        return if has && !facts.files.cuda.is_empty() { vec![some] } else { vec![] };
    };
    let gpu = |told: &SaidGpu| Gpu {
        index: Some(told.index).filter(|_| has),
        address: told.address.clone(),
        model: told.model.clone(),
        memory_mib: told.memory_mib,
        capability: told.capability.clone(),
        brand: told.brand.clone(),
        driver: Some("dxgkrnl".into()),
        state: if has { State::Ready } else { State::Elsewhere("/dev/dxg is not there".into()) },
        nodes: if has { vec![node.clone()] } else { vec![] },
        ..blank(Vendor::Nvidia, told.uuid.clone())
    };
    said.gpus.iter().map(gpu).collect()
}

/// The GPU of the chip; what it is called stands in no place that is the same for all of them.
pub fn jetson(facts: &Facts) -> Vec<Gpu> {
    let nodes: Vec<PathBuf> = facts.nodes.keys().filter(|p| is_tegra(p)).cloned().collect();
    let loaded = facts.modules.contains("nvgpu");
    if nodes.is_empty() && !loaded {
        return vec![];
    }
    let state =
        if nodes.is_empty() { State::Elsewhere("its nodes are not in /dev".into()) } else { State::Ready };
    let driver = loaded.then(|| "nvgpu".into());
    let model = Some("NVIDIA Tegra".into());
    vec![Gpu { driver, model, nodes, state, ..blank(Vendor::Nvidia, "nvidia-tegra".into()) }]
}

fn is_tegra(path: &Path) -> bool {
    path.file_name().is_some_and(|n| {
        let name = n.to_string_lossy();
        name == "nvmap" || name.starts_with("nvhost-")
    })
}
