//! GPUs of AMD and Intel: all that is known of them stands in sysfs (PURE).

use super::{Gpu, State, on_bus};
use crate::gpu::facts::{Facts, Kfd, Pci};
use crate::gpu::hsa;
use crate::oci::devices::Vendor;
use std::path::{Path, PathBuf};

/// Partitions as the compute driver lists them, and what is on the bus without it.
pub fn amd(facts: &Facts) -> Vec<Gpu> {
    let mut found = vec![];
    for pci in facts.of(Vendor::Amd) {
        let parts: Vec<&Kfd> = facts.kfd.iter().filter(|k| k.address == pci.address).collect();
        for (at, part) in parts.iter().enumerate() {
            let mut gpu = on_bus(Vendor::Amd, pci);
            let split = parts.len() > 1;
            let same = parts.iter().filter(|p| p.unique_id == part.unique_id).count() > 1;
            gpu.id = match part.unique_id {
                0 if split => format!("{}:{at}", gpu.id),
                0 => gpu.id,
                id if same => format!("GPU-{id:016x}:{at}"),
                id => format!("GPU-{id:016x}"),
            };
            gpu.gfx = Some(part.gfx.clone());
            gpu.hsa_override = hsa::version(&part.gfx).map(str::to_owned);
            gpu.partition = pci.partition.clone().filter(|_| split);
            // Of processor graphics the compute driver tells the memory that it may use; both know a card's.
            gpu.memory_mib = part.memory.map(|b| b >> 20).or(gpu.memory_mib);
            let node = PathBuf::from(format!("/dev/dri/renderD{}", part.render));
            gpu.nodes.extend(Some(node).filter(|n| facts.node(n).is_some()));
            gpu.state = amd_state(facts, &gpu, pci);
            found.push(gpu);
        }
        if parts.is_empty() {
            let mut gpu = on_bus(Vendor::Amd, pci);
            let why = match pci.driver.as_deref() {
                Some("amdgpu") => "the compute driver (kfd) does not list it".to_owned(),
                Some(other) => format!("the driver {other} has it"),
                None => "no driver has it".to_owned(),
            };
            gpu.state = State::Elsewhere(why);
            found.push(gpu);
        }
    }
    found
}

fn amd_state(facts: &Facts, gpu: &Gpu, pci: &Pci) -> State {
    if pci.lost {
        State::Sick("it has fallen off the bus".into())
    } else if gpu.nodes.is_empty() {
        State::Elsewhere("its renderD node is not in /dev/dri".into())
    } else if facts.node("/dev/kfd").is_none() {
        State::Elsewhere("/dev/kfd is not there".into())
    } else {
        State::Ready
    }
}

pub fn intel(facts: &Facts) -> Vec<Gpu> {
    let gpu = |pci: &Pci| {
        let mut gpu = on_bus(Vendor::Intel, pci);
        let node = facts.render(&pci.address).map(|name| Path::new("/dev/dri").join(name));
        gpu.nodes.extend(node.filter(|n| facts.node(n).is_some()));
        gpu.state = match pci.driver.as_deref() {
            _ if pci.lost => State::Sick("it has fallen off the bus".into()),
            Some("i915" | "xe") if gpu.nodes.is_empty() => {
                State::Elsewhere("its renderD node is not in /dev/dri".into())
            }
            Some("i915" | "xe") => State::Ready,
            Some(other) => State::Elsewhere(format!("the driver {other} has it")),
            None => State::Elsewhere("no driver has it".into()),
        };
        gpu
    };
    facts.of(Vendor::Intel).map(gpu).collect()
}
