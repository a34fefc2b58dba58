//! The topology of AMD's compute driver.

use super::{Look, number};
use crate::gpu::facts::Kfd;

const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";

pub fn kfd(look: &Look) -> Vec<Kfd> {
    let mut numbers: Vec<u32> = look.names(NODES).iter().filter_map(|n| n.parse().ok()).collect();
    numbers.sort_unstable();
    numbers.into_iter().filter_map(|node| gpu(look, node)).collect()
}

/// `None`: a CPU, which is in the topology too, or a GPU that this container may not see (its properties are empty).
fn gpu(look: &Look, node: u32) -> Option<Kfd> {
    let text = look.text(format!("{NODES}/{node}/properties"))?;
    let property =
        |name: &str| text.lines().find_map(|l| number(l.strip_prefix(name)?.strip_prefix(' ')?.trim()));
    let small = |name: &str| property(name).and_then(|n| u32::try_from(n).ok());
    let version = small("gfx_target_version").filter(|v| *v > 0)?;
    property("simd_count").filter(|n| *n > 0)?;
    let location = property("location_id")?;
    let (bus, device, function) = ((location >> 8) & 0xff, (location >> 3) & 0x1f, location & 7);
    let domain = property("domain").unwrap_or(0);
    Some(Kfd {
        node,
        gfx: gfx(version),
        address: format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"),
        render: small("drm_render_minor").filter(|m| *m > 0)?,
        unique_id: property("unique_id").unwrap_or(0),
        memory: memory(look, node),
    })
}

/// Banks of type 1 and 2 are the GPU's own memory.
fn memory(look: &Look, node: u32) -> Option<u64> {
    let banks = format!("{NODES}/{node}/mem_banks");
    let mut total = None;
    for bank in look.names(&banks) {
        let text = look.text(format!("{banks}/{bank}/properties")).unwrap_or_default();
        let property = |name: &str| text.lines().find_map(|l| number(l.strip_prefix(name)?.trim()));
        if let (Some(1 | 2), Some(size)) = (property("heap_type"), property("size_in_bytes")) {
            total = Some(size.saturating_add(total.unwrap_or(0)));
        }
    }
    total
}

/// 90402 is gfx942 and 90010 gfx90a: the last two digits are one hexadecimal one.
fn gfx(version: u32) -> String {
    format!("gfx{}{:x}{:x}", version / 10000, version / 100 % 100, version % 100)
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_chips() {
        for (version, name) in [
            (90402, "gfx942"),
            (90010, "gfx90a"),
            (90400, "gfx940"),
            (90012, "gfx90c"),
            (100300, "gfx1030"),
            (110003, "gfx1103"),
            (120001, "gfx1201"),
            (80003, "gfx803"),
        ] {
            assert_eq!(super::gfx(version), name);
        }
    }
}
