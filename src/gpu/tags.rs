//! Tags of a worker's registration (PURE).
//!
//! | tag | when |
//! |---|---|
//! | `gpu` | it has one |
//! | `gpu-type=nvidia` | of each vendor: `nvidia`, `amd`, `intel` |
//! | `gpu-count=2` | units that tasks can have, MIG devices and partitions each for themselves |
//! | `gpu-devices=0,1` | their indexes, in one tag; with two vendors `nvidia-0,amd-0` |
//! | `cuda`, `cuda-version=13.0` | NVIDIA, and the newest CUDA that the driver runs |
//! | `rocm` | AMD |
//! | `sm_90`, `gfx942` | compute capability; AMD's chip |
//! | `gpu-model=NVIDIA-H200` | product, blanks as `-` |
//! | `gpu-memory=80GiB` | memory of a unit, rounded |
//! | `mig-profile=1g.10gb` | MIG devices |
//! | `gpu-access=shared` | the option |
//!
//! Concourse compares tags as whole words, so a step names what it needs and nothing is more or less than another.
//! `CONCOURSE_TAG` splits at commas; give each tag by `--tag`.

use super::facts::word;
use super::inventory::{Gpu, Inventory};
use super::wanted::VENDORS;
use crate::oci::devices::{Devices, Unit, Vendor};
use crate::oci::policy::Access;

/// The tags for these units, each once.
pub fn tags(devices: &Devices, inventory: &Inventory, access: Access) -> Vec<String> {
    let units = &devices.units;
    if units.is_empty() {
        return vec![];
    }
    let vendors: Vec<Vendor> = VENDORS.into_iter().filter(|v| units.iter().any(|u| u.vendor == *v)).collect();
    let mut tags = vec!["gpu".to_owned()];
    tags.extend(vendors.iter().map(|v| format!("gpu-type={}", word(*v))));
    tags.push(format!("gpu-count={}", units.len()));
    let names: Vec<String> = units.iter().map(|u| short(u, vendors.len() > 1)).collect();
    tags.push(format!("gpu-devices={}", names.join(",")));
    for vendor in &vendors {
        tags.extend(match vendor {
            Vendor::Nvidia => Some("cuda".to_owned()),
            Vendor::Amd => Some("rocm".to_owned()),
            Vendor::Intel => None,
        });
        let cuda = devices.vendors.get(vendor).and_then(|d| d.cuda.as_ref());
        tags.extend(cuda.map(|v| format!("cuda-version={v}")));
    }
    for unit in units {
        let gpu = gpu_of(inventory, unit);
        tags.extend(unit.compute_capability.as_ref().map(|c| format!("sm_{}", c.replace('.', ""))));
        tags.extend(gpu.and_then(|g| g.gfx.clone()));
        let (model, profile) = model(unit);
        tags.extend(model.map(|m| format!("gpu-model={m}")));
        tags.extend(unit.memory_mib.map(|m| format!("gpu-memory={}GiB", gib(m))));
        tags.extend(profile.map(|p| format!("mig-profile={p}")));
    }
    // In the option's own words.
    let access = serde_json::to_value(access).ok().and_then(|word| word.as_str().map(str::to_owned));
    tags.extend(access.map(|word| format!("gpu-access={word}")));
    let mut seen = std::collections::BTreeSet::new();
    tags.retain(|tag| seen.insert(tag.clone()));
    tags.into_iter().map(|tag| one_word(&tag)).collect()
}

/// The GPU that a unit is, or is a part of.
pub fn gpu_of<'a>(inventory: &'a Inventory, unit: &Unit) -> Option<&'a Gpu> {
    let index = |gpu: &Gpu| gpu.index.map(|i| i.to_string());
    inventory.gpus.iter().filter(|g| g.vendor == unit.vendor).find(|gpu| {
        let part = gpu.parts.iter().any(|p| p.id == unit.id || unit.names.contains(&p.name));
        gpu.id == unit.id || part || (gpu.usable() && index(gpu).is_some_and(|i| unit.names.contains(&i)))
    })
}

/// Index of a unit, or its id.
fn short(unit: &Unit, with_vendor: bool) -> String {
    let name = unit.names.first().unwrap_or(&unit.id);
    if with_vendor && name != &unit.id { format!("{}-{name}", word(unit.vendor)) } else { name.clone() }
}

/// Product and MIG profile, as labels have them.
pub fn model(unit: &Unit) -> (Option<String>, Option<String>) {
    let dashed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join("-");
    match unit.model.as_deref().map(|m| m.split_once(" MIG ").map_or((m, None), |(m, p)| (m, Some(p)))) {
        Some((model, profile)) => (Some(dashed(model)), profile.map(dashed)),
        None => (None, None),
    }
}

/// Rounded, and not less than one.
pub fn gib(mib: u64) -> u64 {
    ((mib >> 10) + (mib >> 9 & 1)).max(1)
}

/// Names come from devices and lists; a tag goes into commands and files.
fn one_word(tag: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.,=:+".contains(c);
    tag.chars().map(|c| if fits(c) { c } else { '-' }).collect()
}
