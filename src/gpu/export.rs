//! `export-gpu-config`: this machine's GPUs in the words of other schedulers (PURE).

use super::facts::word;
use super::inventory::Inventory;
use super::tags::{gib, gpu_of, model};
use super::wanted::VENDORS;
use crate::oci::devices::{Devices, Unit, Vendor};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Formats of the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `gres.conf` and the node's line of `slurm.conf`.
    Slurm,
    /// Device reservations of a service.
    DockerCompose,
    /// Node labels.
    Kubernetes,
}

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "slurm" => Ok(Self::Slurm),
            "docker-compose" => Ok(Self::DockerCompose),
            "kubernetes" => Ok(Self::Kubernetes),
            _ => Err(format!("format {text:?} is none of slurm, docker-compose and kubernetes")),
        }
    }
}

/// The text; `host` is the name of the machine there.
pub fn export(format: Format, host: &str, devices: &Devices, inventory: &Inventory) -> String {
    let lines = match format {
        Format::Slurm => slurm(host, devices),
        Format::DockerCompose => compose(devices),
        Format::Kubernetes => kubernetes(host, devices, inventory),
    };
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Nodes that are a unit's own; those that all units share (`/dev/nvidiactl`, `/dev/kfd`) Slurm leaves open.
fn own(unit: &Unit) -> Vec<&PathBuf> {
    let nodes: Vec<&PathBuf> = unit.edits.nodes.iter().map(|n| &n.host).collect();
    let of_nvidia: Vec<&PathBuf> =
        nodes.iter().copied().filter(|n| n.to_string_lossy().starts_with("/dev/nvidia")).collect();
    if of_nvidia.is_empty() { nodes } else { of_nvidia }
}

/// The product as Slurm's `AutoDetect` would name it, without the characters that separate words of a `Gres`.
fn slurm_type(unit: &Unit) -> String {
    let name = unit.model.as_deref().unwrap_or_default().replace(" MIG ", " ").to_lowercase();
    let fits = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.+-".contains(*c);
    let words = name.split_whitespace().map(|w| w.chars().filter(fits).collect::<String>());
    let kind = words.filter(|w| !w.is_empty()).collect::<Vec<_>>().join("_");
    if kind.is_empty() { word(unit.vendor).to_owned() } else { kind }
}

/// gres.conf(5): MIG devices are several files each.
fn slurm(host: &str, devices: &Devices) -> Vec<String> {
    let mut counts: Vec<(String, usize)> = vec![];
    let mut lines = vec!["# gres.conf".to_owned()];
    for unit in &devices.units {
        let kind = slurm_type(unit);
        let files: Vec<String> = own(unit).iter().map(|n| n.display().to_string()).collect();
        let key = if files.len() > 1 { "MultipleFiles" } else { "File" };
        lines.push(format!("NodeName={host} Name=gpu Type={kind} {key}={}", files.join(",")));
        match counts.iter_mut().find(|(k, _)| *k == kind) {
            Some((_, count)) => *count += 1,
            None => counts.push((kind, 1)),
        }
    }
    let gres: Vec<String> = counts.iter().map(|(kind, count)| format!("gpu:{kind}:{count}")).collect();
    lines.push("# slurm.conf: add Gres to the line of the node".into());
    lines.push("GresTypes=gpu".into());
    lines.push(match gres.is_empty() {
        true => format!("NodeName={host}"),
        false => format!("NodeName={host} Gres={}", gres.join(",")),
    });
    lines
}

/// What Docker's driver of NVIDIA calls a unit; `None`: it takes a Jetson's and Windows' GPUs only as all there are.
fn docker_id(unit: &Unit) -> Option<&str> {
    if ["nvidia-tegra", "nvidia-wsl"].contains(&unit.id.as_str()) {
        return None;
    }
    let index = || unit.names.iter().find(|name| name.bytes().all(|b| b.is_ascii_digit() || b == b':'));
    let uuid = unit.id.starts_with("GPU-") || unit.id.starts_with("MIG-");
    Some(if uuid { &unit.id } else { index().unwrap_or(&unit.id) })
}

/// Docker's driver of NVIDIA takes ids; GPUs of others are plain devices with the groups that own them.
fn compose(devices: &Devices) -> Vec<String> {
    let of = |vendor: Vendor| devices.units.iter().filter(move |u| u.vendor == vendor);
    let mut lines = vec!["# compose.yaml: a service with this machine's GPUs".to_owned()];
    lines.extend(["services:".to_owned(), "  gpu:".to_owned()]);
    let start = lines.len();
    if of(Vendor::Nvidia).next().is_some() {
        lines.extend(
            ["deploy:", "  resources:", "    reservations:", "      devices:"].map(|l| format!("    {l}")),
        );
        lines.push("            - driver: nvidia".into());
        match of(Vendor::Nvidia).map(docker_id).collect::<Option<Vec<&str>>>() {
            Some(ids) => {
                lines.push("              device_ids:".into());
                lines.extend(ids.iter().map(|id| format!("                - {id:?}")));
            }
            None => lines.push("              count: all".into()),
        }
        lines.push("              capabilities: [gpu]".into());
    }
    let mut nodes = vec![];
    let mut groups = std::collections::BTreeSet::new();
    for vendor in [Vendor::Amd, Vendor::Intel].into_iter().filter(|v| of(*v).next().is_some()) {
        let driver = devices.vendors.get(&vendor).map(|d| &d.edits);
        for edits in driver.into_iter().chain(of(vendor).map(|u| &u.edits)) {
            nodes.extend(edits.nodes.iter().map(|n| n.host.display().to_string()));
            groups.extend(edits.gids.iter().copied());
        }
    }
    if !nodes.is_empty() {
        lines.push("    devices:".into());
        lines.extend(nodes.iter().map(|n| format!("      - {n}:{n}")));
    }
    if !groups.is_empty() {
        lines.push("    group_add:".into());
        lines.extend(groups.iter().map(|g| format!("      - \"{g}\"")));
    }
    if lines.len() == start {
        lines.push("    # this machine has no GPU that works".into());
    }
    lines
}

/// Labels as NVIDIA's GPU feature discovery, AMD's node labeller and Intel's rules name them.
fn kubernetes(host: &str, devices: &Devices, inventory: &Inventory) -> Vec<String> {
    let mut labels = BTreeMap::new();
    for vendor in VENDORS {
        let units: Vec<&Unit> = devices.units.iter().filter(|u| u.vendor == vendor).collect();
        match vendor {
            _ if units.is_empty() => {}
            Vendor::Nvidia => nvidia_labels(devices, &units, &mut labels),
            Vendor::Amd | Vendor::Intel => other_labels(vendor, inventory, &units, &mut labels),
        }
    }
    let mut lines = vec![format!("# kubectl label --overwrite node {host} …")];
    lines.extend(labels.into_iter().map(|(name, value)| format!("{name}={}", value_of(&value))));
    lines
}

fn nvidia_labels(devices: &Devices, units: &[&Unit], labels: &mut BTreeMap<String, String>) {
    let mut set = |name: &str, value: String| _ = labels.insert(format!("nvidia.com/{name}"), value);
    let driver = devices.vendors.get(&Vendor::Nvidia);
    let dotted = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
    if let Some(version) = driver.and_then(|d| d.version.as_deref()) {
        let parts = dotted(version);
        for (name, at) in [("major", 0), ("minor", 1), ("rev", 2)] {
            set(&format!("cuda.driver.{name}"), parts.get(at).cloned().unwrap_or_default());
        }
    }
    for (name, at) in [("major", 0), ("minor", 1)] {
        let cuda = driver.and_then(|d| d.cuda.as_deref()).map(dotted);
        if let Some(part) = cuda.and_then(|parts| parts.get(at).cloned()) {
            set(&format!("cuda.runtime.{name}"), part);
        }
        let capability = units[0].compute_capability.as_deref().map(dotted);
        if let Some(part) = capability.and_then(|parts| parts.get(at).cloned()) {
            set(&format!("gpu.compute.{name}"), part);
        }
    }
    if let Some(family) = units[0].compute_capability.as_deref().and_then(family) {
        set("gpu.family", family.into());
    }
    if let (Some(product), _) = model(units[0]) {
        set("gpu.product", product);
    }
    let whole: Vec<&&Unit> = units.iter().filter(|u| model(u).1.is_none()).collect();
    set("gpu.count", whole.len().to_string());
    if let Some(memory) = whole.first().and_then(|u| u.memory_mib) {
        set("gpu.memory", memory.to_string());
    }
    let mut profiles: BTreeMap<String, (usize, Option<u64>)> = BTreeMap::new();
    for unit in units {
        if let Some(profile) = model(unit).1 {
            profiles.entry(profile).or_insert((0, unit.memory_mib)).0 += 1;
        }
    }
    if !profiles.is_empty() {
        set("mig.strategy", "mixed".into());
    }
    for (profile, (count, memory)) in profiles {
        // As NVIDIA's device plugin names the resource: a key has no `+`.
        let profile = value_of(&profile.replace('+', "."));
        set(&format!("mig-{profile}.count"), count.to_string());
        if let Some(memory) = memory {
            set(&format!("mig-{profile}.memory"), memory.to_string());
        }
    }
}

/// Architectures, as NVIDIA's own table has them.
fn family(capability: &str) -> Option<&'static str> {
    let (major, minor) = capability.split_once('.')?;
    Some(match (major, minor) {
        ("3", _) => "kepler",
        ("5", _) => "maxwell",
        ("6", _) => "pascal",
        ("7", "5") => "turing",
        ("7", _) => "volta",
        ("8", "9") => "ada-lovelace",
        ("8", _) => "ampere",
        ("9", _) => "hopper",
        ("10" | "12", _) => "blackwell",
        _ => return None,
    })
}

fn other_labels(
    vendor: Vendor,
    inventory: &Inventory,
    units: &[&Unit],
    labels: &mut BTreeMap<String, String>,
) {
    let ids = units.iter().filter_map(|u| gpu_of(inventory, u)?.pci_id.clone());
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for id in ids {
        *counts.entry(id).or_default() += 1;
    }
    if vendor == Vendor::Intel {
        for (id, count) in counts {
            labels.insert(format!("gpu.intel.com/device-id.{id}.count"), count.to_string());
            labels.insert(format!("gpu.intel.com/device-id.{id}.present"), "true".into());
        }
        return;
    }
    // The labeller writes one label where all GPUs are the same, and counts where they differ.
    let vram = units.iter().filter_map(|u| u.memory_mib).map(|m| format!("{}G", gib(m)));
    let product = units.iter().filter_map(|u| u.model.as_deref());
    let product = product.map(|name| name.replace(' ', "_").replace(['(', ')'], ""));
    let id = counts.iter().flat_map(|(id, n)| std::iter::repeat_n(id[5..].to_owned(), *n));
    for (name, values) in
        [("device-id", id.collect::<Vec<_>>()), ("vram", vram.collect()), ("product-name", product.collect())]
    {
        let mut sorted: BTreeMap<String, usize> = BTreeMap::new();
        for value in values {
            *sorted.entry(value).or_default() += 1;
        }
        if sorted.len() == 1
            && let Some(value) = sorted.keys().next()
        {
            labels.insert(format!("amd.com/gpu.{name}"), value.clone());
        }
        for (value, count) in &sorted {
            labels.insert(
                format!("beta.amd.com/{}", value_of(&format!("gpu.{name}.{value}"))),
                count.to_string(),
            );
        }
    }
}

/// What a label's value may hold, and its name after the prefix: 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn value_of(text: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let cut: String = text.chars().map(fits).take(63).collect();
    cut.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}
