//! GPUs on the PCI bus, and their DRM devices.

use super::{Look, names};
use crate::gpu::facts::Pci;
use crate::oci::devices::Vendor;
use std::collections::BTreeMap;

/// GPUs of the three makers. Others' (ASPEED's, Matrox's) show a server's console and compute nothing.
pub fn gpus(look: &Look) -> Vec<Pci> {
    let mut found: Vec<Pci> =
        look.names("/sys/bus/pci/devices").iter().filter_map(|address| gpu(look, address)).collect();
    names::add(look, &mut found);
    found
}

fn gpu(look: &Look, address: &str) -> Option<Pci> {
    let at = |name: &str| format!("/sys/bus/pci/devices/{address}/{name}");
    let id = |name: &str| look.number(at(name)).and_then(|n| u16::try_from(n).ok());
    let mut gpu = Pci {
        address: address.to_owned(),
        vendor: id("vendor")?,
        device: id("device")?,
        class: u32::try_from(look.number(at("class"))?).ok()?,
        driver: look.target(at("driver")),
        // -1: one node only.
        numa: look.number(at("numa_node")).and_then(|n| u32::try_from(n).ok()),
        ..Pci::default()
    };
    let vendor = gpu.maker()?;
    // 0x12 is AMD's Instinct, and Intel's NPU, which is no GPU.
    let is_gpu = gpu.class >> 16 == 0x03 || (gpu.class >> 16 == 0x12 && vendor != Vendor::Intel);
    if !is_gpu {
        return None;
    }
    gpu.memory = match vendor {
        Vendor::Amd => look.number(at("mem_info_vram_total")),
        Vendor::Intel => intel_memory(look, address),
        Vendor::Nvidia => None,
    };
    let said = |name: &str| look.text(at(name)).filter(|t| !t.is_empty());
    gpu.name = said("product_name").filter(|_| vendor == Vendor::Amd);
    gpu.partition = said("current_compute_partition");
    // Reading it would wake a device that sleeps.
    let asleep = look.text(at("power/runtime_status")).as_deref() == Some("suspended");
    gpu.lost = !asleep && look.start(at("config"), 4).is_some_and(|id| id == [0xff; 4]);
    Some(gpu)
}

/// Memory of its own, where the driver tells it; processor graphics have none. Of the kernel's own drivers neither does
/// (only by ioctl, which may wake a GPU that sleeps, and hang); those of Intel's packages do: xe for each tile of the
/// chip (`physical_vram_size_bytes`), i915 for the card (`lmem_total_bytes`).
fn intel_memory(look: &Look, address: &str) -> Option<u64> {
    let dir = format!("/sys/bus/pci/devices/{address}");
    let below = |dir: &str, start: &str, file: &str| -> Vec<u64> {
        let found = look.names(dir).into_iter().filter(|name| name.starts_with(start));
        found.filter_map(|name| look.number(format!("{dir}/{name}/{file}"))).collect()
    };
    let tiles = below(&dir, "tile", "physical_vram_size_bytes");
    let cards = below(&format!("{dir}/drm"), "card", "lmem_total_bytes");
    let tiles = (!tiles.is_empty()).then(|| tiles.into_iter().fold(0, u64::saturating_add));
    tiles.or(cards.first().copied())
}

/// `card0` and `renderD128`, each with the address of its PCI device; connectors (`card0-DP-1`) are none.
pub fn drm(look: &Look) -> BTreeMap<String, String> {
    let device = |name: &String| {
        let number = name.strip_prefix("card").or_else(|| name.strip_prefix("renderD"))?;
        number.parse::<u32>().ok()?;
        Some((name.clone(), look.target(format!("/sys/class/drm/{name}/device"))?))
    };
    look.names("/sys/class/drm").iter().filter_map(device).collect()
}
