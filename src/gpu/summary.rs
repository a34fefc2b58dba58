//! GPUs in a few words for the status, and in full for `gpu-info` (PURE).

use super::facts::brand;
use super::inventory::{Gpu, Inventory, State};
use super::tags::gpu_of;
use super::wanted::VENDORS;
use crate::oci::devices::{Devices, Unit};
use serde_json::{Value, json};

/// `GPU: 2x NVIDIA, 1x AMD`; MIG devices are `7x NVIDIA MIG`. `None`: no unit.
pub fn summary(devices: &Devices) -> Option<String> {
    let mut parts = vec![];
    for vendor in VENDORS {
        let of = |mig: bool| devices.units.iter().filter(|u| u.vendor == vendor && is_mig(u) == mig).count();
        for (count, kind) in [(of(false), ""), (of(true), " MIG")] {
            if count > 0 {
                parts.push(format!("{count}x {}{kind}", brand(vendor)));
            }
        }
    }
    (!parts.is_empty()).then(|| format!("GPU: {}", parts.join(", ")))
}

fn is_mig(unit: &Unit) -> bool {
    unit.id.starts_with("MIG-")
}

/// What `gpu-info` prints.
pub fn text(devices: &Devices, inventory: &Inventory) -> String {
    let mut lines = vec![];
    for (vendor, driver) in &devices.vendors {
        let version = driver.version.as_ref().map(|v| format!(" driver {v}")).unwrap_or_default();
        let cuda = driver.cuda.as_ref().map(|v| format!(", CUDA up to {v}")).unwrap_or_default();
        if !(version.is_empty() && cuda.is_empty()) {
            lines.push(format!("{}{version}{cuda}", brand(*vendor)));
        }
    }
    for unit in &devices.units {
        let gpu = gpu_of(inventory, unit);
        lines.push(line(unit, gpu));
    }
    for gpu in &inventory.gpus {
        let given = devices.units.iter().any(|u| gpu_of(inventory, u).is_some_and(|g| g.id == gpu.id));
        if !given {
            let maker = brand(gpu.vendor);
            let model = gpu.model.clone().unwrap_or_else(|| format!("{maker} GPU"));
            let why = match &gpu.state {
                State::Sick(why) | State::Elsewhere(why) => why.clone(),
                State::Ready | State::Ailing(_) => "not given to tasks".into(),
            };
            lines.push(format!("-  {}  {model}: {why}", gpu.id));
        }
    }
    if lines.is_empty() {
        lines.push("no GPU".into());
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn line(unit: &Unit, gpu: Option<&Gpu>) -> String {
    let name = unit.names.first().map_or("-", String::as_str);
    let mut parts = vec![unit.model.clone().unwrap_or_else(|| format!("{} GPU", brand(unit.vendor)))];
    parts.extend(unit.memory_mib.map(|m| format!("{m} MiB")));
    parts.extend(unit.compute_capability.as_ref().map(|c| format!("compute capability {c}")));
    if let Some(gpu) = gpu {
        parts.extend(gpu.gfx.clone());
        parts.extend(gpu.partition.clone());
        parts.extend(gpu.address.clone());
        parts.extend(gpu.numa.map(|n| format!("NUMA node {n}")));
        if let State::Ailing(why) = &gpu.state {
            parts.push(format!("WARNING: {why}"));
        }
    }
    parts.extend(unit.hsa_override.as_ref().map(|v| format!("HSA_OVERRIDE_GFX_VERSION={v}")));
    format!("{name}  {}  {}", unit.id, parts.join(", "))
}

/// The same as data.
pub fn data(devices: &Devices, inventory: &Inventory) -> Value {
    let unit = |unit: &Unit| {
        let gpu = gpu_of(inventory, unit);
        json!({
            "id": unit.id,
            "names": unit.names,
            "vendor": unit.vendor,
            "model": unit.model,
            "memory-mib": unit.memory_mib,
            "compute-capability": unit.compute_capability,
            "gfx": gpu.and_then(|g| g.gfx.clone()),
            "hsa-override": unit.hsa_override,
            "address": gpu.and_then(|g| g.address.clone()),
            "numa": gpu.and_then(|g| g.numa),
            "persistence": gpu.and_then(|g| g.persistence),
            "health": gpu.map(|g| &g.state),
        })
    };
    json!({
        "machine": inventory.machine,
        "drivers": inventory.drivers,
        "units": devices.units.iter().map(unit).collect::<Vec<_>>(),
        "others": inventory.gpus.iter().filter(|g| !g.usable()).collect::<Vec<_>>(),
    })
}
