//! `gpu-device-ids`: which units tasks may have (PURE).

use super::facts::word;
use super::inventory::{Gpu, Inventory, State};
use crate::oci::devices::{Devices, Unit};

/// What was chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Ids of units that are there and work, in the order in which tasks get them.
    pub units: Vec<String>,
    /// A sentence on each that was chosen and can't be given now.
    pub missing: Vec<String>,
}

/// The units that the words name. `None`: all.
///
/// # Errors
/// A word that names nothing of this machine, or two things; the sentence names what there is.
pub fn select(
    words: Option<&[String]>,
    devices: &Devices,
    inventory: &Inventory,
) -> Result<Selection, String> {
    let Some(words) = words else {
        return Ok(Selection {
            units: devices.units.iter().map(|u| u.id.clone()).collect(),
            missing: vec![],
        });
    };
    let mut chosen: Vec<&Unit> = vec![];
    let mut missing = vec![];
    for name in words {
        let found: Vec<&Unit> = devices.units.iter().filter(|u| is(u, name)).collect();
        match found.as_slice() {
            [] => missing.push(absent(name, devices, inventory)?),
            [unit] => chosen.push(unit),
            many => {
                let ids: Vec<&str> = many.iter().map(|u| u.id.as_str()).collect();
                return Err(format!(
                    "gpu-device-ids names {name:?}, which is {} here: write one of these",
                    ids.join(" and ")
                ));
            }
        }
    }
    // In the devices' order, each once.
    let units = devices.units.iter().filter(|u| chosen.iter().any(|c| c.id == u.id)).map(|u| u.id.clone());
    Ok(Selection { units: units.collect(), missing })
}

fn is(unit: &Unit, name: &str) -> bool {
    let same = |n: &String| n.eq_ignore_ascii_case(name) || format!("{}-{n}", word(unit.vendor)) == name;
    unit.id.eq_ignore_ascii_case(name) || unit.names.iter().any(same)
}

/// What is known of a GPU that has no unit.
fn absent(name: &str, devices: &Devices, inventory: &Inventory) -> Result<String, String> {
    let is = |gpu: &&Gpu| {
        let address = gpu.address.as_deref().is_some_and(|a| a.eq_ignore_ascii_case(name));
        gpu.id.eq_ignore_ascii_case(name) || address || gpu.index.is_some_and(|i| i.to_string() == *name)
    };
    match inventory.gpus.iter().find(is) {
        Some(gpu) if gpu.mig && gpu.usable() && !gpu.parts.is_empty() => {
            let parts: Vec<&str> = gpu.parts.iter().map(|p| p.name.as_str()).collect();
            Err(format!(
                "gpu-device-ids names {name:?}, which MIG splits: write its parts, {}",
                parts.join(", ")
            ))
        }
        Some(gpu) => Ok(match &gpu.state {
            State::Sick(why) | State::Elsewhere(why) => format!("GPU {name} can't be used: {why}"),
            State::Ready | State::Ailing(_) => {
                format!("GPU {name} can't be given to containers: see gpu-diagnose")
            }
        }),
        // It was here when the spec was written.
        None if inventory.named.contains(name) => Ok(format!("GPU {name} is gone: see gpu-diagnose")),
        None => {
            let all: Vec<&str> = devices.units.iter().map(shown).collect();
            let more = if all.len() > MOST { ", …" } else { "" };
            let has = all[..all.len().min(MOST)].join(", ");
            let has = if has.is_empty() { "no GPU that can be used".to_owned() } else { has };
            Err(format!(
                "gpu-device-ids names {name:?}, and this machine has {has}{more}: write ids of gpu-info, or all"
            ))
        }
    }
}

/// So many are named in a status.
const MOST: usize = 16;

fn shown(unit: &Unit) -> &str {
    unit.names.first().unwrap_or(&unit.id)
}
