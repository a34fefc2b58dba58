//! What the rules have to know of a unit's hardware (PURE).

use crate::oci::devices::{Unit, Vendor};

/// Same maker and over NVLink; same maker, same NUMA node.
pub fn groups(unit: &Unit) -> [Option<u64>; 2] {
    let vendor = match unit.vendor {
        Vendor::Nvidia => 0,
        Vendor::Amd => 1,
        Vendor::Intel => 2,
    };
    let of = |number: u32| vendor << 40 | u64::from(number);
    [unit.nvlink.map(of), Some(unit.numa_node.map_or(vendor << 40 | 1 << 32, of))]
}

/// Names of the nodes by which a unit is told from others: NVIDIA's GPU and the two of a MIG device, another maker's
/// `renderD128`. Nodes of drivers, and those that draw, specs of some makers give along, and others don't.
pub fn nodes(unit: &Unit) -> Vec<String> {
    let own: &[&str] = match unit.vendor {
        Vendor::Nvidia => &["nvidia", "nvidia-cap"],
        Vendor::Amd | Vendor::Intel => &["renderD"],
    };
    let name = |path: &std::path::Path| Some(path.file_name()?.to_str()?.to_owned());
    let is_own = |name: &String| {
        let number = |word: &str| {
            name.strip_prefix(word).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        };
        own.iter().any(|word| number(word))
    };
    let mut found: Vec<String> =
        unit.edits.nodes.iter().filter_map(|node| name(&node.host)).filter(is_own).collect();
    found.sort();
    found.dedup();
    found
}

/// Whether units of these nodes are one and the same, or one is the whole of which the other is a part. Two MIG devices of a
/// GPU share its node, and each has some of its own.
pub fn overlap(one: &[String], other: &[String]) -> bool {
    let within = |small: &[String], large: &[String]| small.iter().all(|node| large.contains(node));
    !one.is_empty() && !other.is_empty() && (within(one, other) || within(other, one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci::devices::{Edits, Node};

    fn unit(vendor: Vendor, nodes: &[&str]) -> Unit {
        let node = |path: &&str| Node {
            path: path.into(),
            host: path.into(),
            kind: 'c',
            major: 1,
            minor: 1,
            mode: 0,
            uid: 0,
            gid: 0,
            permissions: "rwm".into(),
        };
        let edits = Edits { nodes: nodes.iter().map(node).collect(), ..Edits::default() };
        Unit { edits, ..Unit::new(vendor, "", &[]) }
    }

    #[test]
    fn a_gpu_and_its_parts_overlap() {
        let nvidia = |paths: &[&str]| nodes(&unit(Vendor::Nvidia, paths));
        let whole = nvidia(&["/dev/nvidia0", "/dev/nvidiactl", "/dev/dri/renderD128", "/dev/nvidia-modeset"]);
        let other = nvidia(&["/dev/nvidia1"]);
        let caps = |a: &str, b: &str| nvidia(&["/dev/nvidia0", a, b, "/dev/nvidia-uvm"]);
        let first = caps("/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13");
        let second = caps("/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22");
        assert_eq!(whole, ["nvidia0"]);
        assert_eq!(first, ["nvidia-cap12", "nvidia-cap13", "nvidia0"]);
        assert!(overlap(&whole, &first) && overlap(&second, &whole) && overlap(&first, &first));
        assert!(!overlap(&first, &second) && !overlap(&other, &first) && !overlap(&other, &whole));
        let amd = |paths: &[&str]| nodes(&unit(Vendor::Amd, paths));
        let one = amd(&["/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD128"]);
        assert!(!overlap(&one, &amd(&["/dev/kfd", "/dev/dri/renderD129"])));
        // Nobody knows: no reason to keep anybody waiting.
        assert!(!overlap(&nvidia(&[]), &whole) && !overlap(&[], &[]));
    }
}
