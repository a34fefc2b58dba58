//! What units bring into a container: their edits of the device data, each looked at as the worker has it now.

use super::devices::{Devices, Driver, Edits, Node, Unit, Vendor};
use super::edit::Additions;
use super::exec::Equipment;
use super::request::VISIBLE;
use super::{Refusal, report, said};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// By which ROCm takes a GPU for one of another chip.
const HSA_OVERRIDE: &str = "HSA_OVERRIDE_GFX_VERSION";

/// Adds what the chosen units and, once, their drivers need.
///
/// # Errors
/// The worker is not as its device data has it; the sentence is for the author of the pipeline.
pub fn give(
    env: &[(String, String)],
    devices: &Devices,
    chosen: &[&Unit],
    additions: &mut Additions,
) -> Result<(), Refusal> {
    if chosen.is_empty() {
        return Ok(());
    }
    let none = Driver::default();
    let driver = |vendor: Vendor| devices.vendors.get(&vendor).unwrap_or(&none);
    let mut equipment = Equipment::default();
    let mut vendors: Vec<Vendor> = vec![];
    for unit in chosen {
        if !vendors.contains(&unit.vendor) {
            vendors.push(unit.vendor);
            gather(&driver(unit.vendor).edits, additions, &mut equipment)?;
        }
        gather(&unit.edits, additions, &mut equipment)?;
        equipment.units.push(unit.id.clone());
    }
    for (vendor, name) in VISIBLE.iter().filter(|(vendor, _)| vendors.contains(vendor)) {
        let ids = chosen.iter().filter(|unit| unit.vendor == *vendor).map(|unit| unit.id.as_str());
        equipment.env.insert((*name).into(), ids.collect::<Vec<_>>().join(","));
    }
    match hsa_override(chosen) {
        Ok(Some(version)) => drop(equipment.defaults.insert(HSA_OVERRIDE.into(), version.into())),
        Ok(None) => {}
        Err(differing) if !env.iter().any(|(name, _)| name == HSA_OVERRIDE) => report::journal(&differing),
        // The task knows better.
        Err(_) => {}
    }
    additions.equipment = Some(equipment);
    Ok(())
}

/// What all chosen GPUs of AMD need alike: ROCm reads the one variable for each of them, so that what helps one would
/// break another, which runs code for its own chip.
fn hsa_override<'a>(chosen: &[&'a Unit]) -> Result<Option<&'a str>, String> {
    let amd: Vec<&Unit> = chosen.iter().copied().filter(|unit| unit.vendor == Vendor::Amd).collect();
    let Some(first) = amd.first() else { return Ok(None) };
    if amd.iter().all(|unit| unit.hsa_override == first.hsa_override) {
        return Ok(first.hsa_override.as_deref());
    }
    let needs = |unit: &&Unit| format!("{} {}", unit.id, unit.hsa_override.as_deref().unwrap_or("none"));
    let needs: Vec<String> = amd.iter().map(needs).collect();
    Err(format!(
        "a task got GPUs that need different values of {HSA_OVERRIDE} ({}), so it got none: let tasks ask for GPUs of \
         one kind with GPU_MODEL or AMD_VISIBLE_DEVICES, or set the variable in their params",
        needs.join(", ")
    ))
}

fn gather(edits: &Edits, additions: &mut Additions, equipment: &mut Equipment) -> Result<(), Refusal> {
    for node in &edits.nodes {
        additions.nodes.push(live(node)?);
    }
    for mount in &edits.mounts {
        // runc's own message for this names nothing.
        fs::metadata(&mount.host).map_err(|e| gone(&mount.host, &said(&e)))?;
        additions.mounts.push(mount.clone());
    }
    for hook in &edits.hooks {
        fs::metadata(&hook.path).map_err(|e| gone(&hook.path, &said(&e)))?;
        additions.hooks.push(hook.clone());
    }
    equipment.env.extend(edits.env.clone());
    for gid in &edits.gids {
        if !equipment.gids.contains(gid) {
            equipment.gids.push(*gid);
        }
    }
    Ok(())
}

/// The node as it is now: a driver that was loaded again may have other numbers, and a rule for the old ones would open
/// something else.
fn live(node: &Node) -> Result<Node, Refusal> {
    let found = fs::metadata(&node.host).map_err(|e| gone(&node.host, &said(&e)))?;
    let kind = match found.file_type() {
        kind if kind.is_char_device() => 'c',
        kind if kind.is_block_device() => 'b',
        _ => return Err(gone(&node.host, "it is no device")),
    };
    let (major, minor) = (nix::sys::stat::major(found.rdev()), nix::sys::stat::minor(found.rdev()));
    let number = |n: u64| u32::try_from(n).map_err(|_| gone(&node.host, "its number is out of range"));
    Ok(Node { kind, major: number(major)?, minor: number(minor)?, ..node.clone() })
}

fn gone(path: &Path, why: &str) -> Refusal {
    Refusal::new(format!(
        "the worker's {} is not as its list of GPUs has it ({why}): tell its operator; set GPU_COUNT: 0 in \
         the task's params to run without",
        path.display()
    ))
}
