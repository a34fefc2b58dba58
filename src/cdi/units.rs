//! Which devices there are, each once, whatever number of names it has (PURE).

use super::edits::{Lstat, complete};
use super::spec::{self, ContainerEdits, Device, Spec};
use crate::oci::devices::{Devices, Driver, Edits, FORMAT, Node, Unit, Vendor};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A file of a CDI directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// Of its directory: the greater one wins.
    pub priority: usize,
    /// Its text, or why there is none.
    pub text: Result<String, String>,
}

/// What is decided elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Whether containers get `/dev/dri/cardN` too, for display; `renderDN` they get anyway.
    pub cards: bool,
    /// Per vendor, what the driver itself says.
    pub drivers: BTreeMap<Vendor, DriverFacts>,
    /// By any name of a unit, what the driver says of it.
    pub units: BTreeMap<String, UnitFacts>,
}

/// What no CDI spec tells of a driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverFacts {
    /// See [`Driver::version`]; `None`: as the names of the driver's files say.
    pub version: Option<String>,
    /// See [`Driver::cuda`].
    pub cuda: Option<String>,
}

/// What no CDI spec tells of a unit. Fields are those of [`Unit`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitFacts {
    /// For a unit without a UUID: its address, so that it is still known when indexes move.
    pub id: Option<String>,
    /// See [`Unit::model`].
    pub model: Option<String>,
    /// See [`Unit::memory_mib`].
    pub memory_mib: Option<u64>,
    /// See [`Unit::compute_capability`].
    pub compute_capability: Option<String>,
    /// See [`Unit::brand`].
    pub brand: Option<String>,
    /// See [`Unit::hsa_override`].
    pub hsa_override: Option<String>,
    /// See [`Unit::numa_node`].
    pub numa_node: Option<u32>,
    /// See [`Unit::nvlink`].
    pub nvlink: Option<u32>,
}

/// What the files hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// All units, and their drivers.
    pub devices: Devices,
    /// A sentence for the operator on each thing that was left out.
    pub problems: Vec<String>,
}

const KINDS: [(&str, Vendor); 3] =
    [("nvidia.com/gpu", Vendor::Nvidia), ("amd.com/gpu", Vendor::Amd), ("intel.com/gpu", Vendor::Intel)];

/// Reads all files. One that can't be read loses its own devices only.
pub fn gather(sources: &[Source], wanted: &Wanted, lstat: Lstat) -> Found {
    let mut problems = vec![];
    let mut specs = vec![];
    for source in sources {
        match source.text.clone().and_then(|text| spec::parse(&text)) {
            Ok(spec) => specs.push((source, spec)),
            Err(why) => problems.push(format!("{} {why}", source.path.display())),
        }
    }
    let mut devices = Devices { format: FORMAT, vendors: BTreeMap::new(), units: vec![] };
    for (kind, vendor) in KINDS {
        let named = win(kind, &specs, &mut problems);
        let mut units: Vec<Unit> = vec![];
        let mut driver: Option<Driver> = None;
        let mut shared = BTreeMap::new();
        for (path, spec, device) in named {
            let own: &Edits = shared.entry(path).or_insert_with(|| {
                let (edits, missing) = complete(&spec.container_edits, wanted.cards, lstat);
                problems.extend(missing.iter().map(|m| format!("{} {m}: it is left out", path.display())));
                edits
            });
            let (mut edits, missing) = complete(&device.container_edits, wanted.cards, lstat);
            if let Some(problem) = missing.first() {
                let name = &device.name;
                problems.push(format!("{} {problem}: {kind}={name} is left out", path.display()));
                continue;
            }
            let facts = wanted.drivers.get(&vendor).cloned().unwrap_or_default();
            let driver = driver.get_or_insert_with(|| Driver {
                version: facts.version.or_else(|| version(&spec.container_edits)),
                cuda: facts.cuda,
                edits: own.clone(),
            });
            add_missing(&mut edits, own, &driver.edits);
            merge(&mut units, &device.name, vendor, edits);
        }
        units = without_split(units);
        for unit in &mut units {
            identify(unit, wanted);
        }
        units.sort_by_key(index);
        if let Some(driver) = driver.filter(|_| !units.is_empty()) {
            devices.vendors.insert(vendor, driver);
        }
        devices.units.extend(units);
    }
    Found { devices, problems }
}

/// Each device of a kind from the directory of greatest priority. Two files of one directory that both have it: neither.
fn win<'a>(
    kind: &str,
    specs: &'a [(&'a Source, Spec)],
    problems: &mut Vec<String>,
) -> Vec<(&'a Path, &'a Spec, &'a Device)> {
    let of_kind = || specs.iter().filter(|(_, spec)| spec.kind == kind);
    let holders = |name: &str| -> Vec<&'a Source> {
        let has = of_kind().filter(|(_, spec)| spec.devices.iter().any(|d| d.name == name));
        let has: Vec<&Source> = has.map(|(source, _)| *source).collect();
        let top = has.iter().map(|s| s.priority).max();
        has.into_iter().filter(|s| Some(s.priority) == top).collect()
    };
    let mut won = vec![];
    let mut conflicts: BTreeMap<Vec<String>, BTreeSet<&str>> = BTreeMap::new();
    for (source, spec) in of_kind() {
        for device in spec.devices.iter().filter(|d| d.name != "all") {
            let holders = holders(&device.name);
            if holders.len() > 1 {
                let files = holders.iter().map(|s| s.path.display().to_string()).collect();
                conflicts.entry(files).or_default().insert(&device.name);
            } else if holders[0].path == source.path {
                won.push((source.path.as_path(), spec, device));
            }
        }
    }
    for (files, names) in conflicts {
        let names: Vec<&str> = names.into_iter().collect();
        problems.push(format!(
            "{kind} {} stand in {}: they can't be given until all but one of the files are deleted",
            names.join(", "),
            files.join(" and ")
        ));
    }
    won
}

/// What a spec gives each container, where the vendor's first one doesn't give it already.
fn add_missing(edits: &mut Edits, own: &Edits, given: &Edits) {
    fn fresh<T: PartialEq + Clone>(own: &[T], given: &[T]) -> Vec<T> {
        own.iter().filter(|x| !given.contains(x)).cloned().collect()
    }
    edits.nodes.splice(0..0, fresh(&own.nodes, &given.nodes));
    edits.mounts.splice(0..0, fresh(&own.mounts, &given.mounts));
    edits.hooks.splice(0..0, fresh(&own.hooks, &given.hooks));
    edits.gids.splice(0..0, fresh(&own.gids, &given.gids));
    for (name, value) in &own.env {
        if given.env.get(name) != Some(value) {
            edits.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// Equal nodes are one device: the spec names it by index and by UUID.
fn merge(units: &mut Vec<Unit>, name: &str, vendor: Vendor, edits: Edits) {
    let key = |edits: &Edits| edits.nodes.iter().map(|n| n.host.clone()).collect::<BTreeSet<_>>();
    let same = units.iter_mut().find(|u| !u.edits.nodes.is_empty() && key(&u.edits) == key(&edits));
    match same {
        Some(unit) => unit.names.push(name.into()),
        None => units.push(Unit { edits, ..Unit::new(vendor, "", &[name]) }),
    }
}

fn is_mig(unit: &Unit) -> bool {
    unit.names.iter().any(|n| n.starts_with("MIG-") || n.contains(':'))
}

/// A GPU that is split can't be used whole.
fn without_split(units: Vec<Unit>) -> Vec<Unit> {
    fn is_gpu(node: &Node) -> bool {
        let name = node.host.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        name.strip_prefix("nvidia").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    }
    let gpus = |unit: &Unit| -> BTreeSet<PathBuf> {
        unit.edits.nodes.iter().filter(|n| is_gpu(n)).map(|n| n.host.clone()).collect()
    };
    let split: BTreeSet<PathBuf> = units.iter().filter(|u| is_mig(u)).flat_map(gpus).collect();
    units.into_iter().filter(|u| is_mig(u) || gpus(u).is_disjoint(&split)).collect()
}

fn identify(unit: &mut Unit, wanted: &Wanted) {
    let facts = unit.names.iter().find_map(|name| wanted.units.get(name)).cloned().unwrap_or_default();
    let uuid = |name: &String| name.starts_with("GPU-") || name.starts_with("MIG-");
    let vendor = match unit.vendor {
        Vendor::Nvidia => "nvidia",
        Vendor::Amd => "amd",
        Vendor::Intel => "intel",
    };
    let id = unit.names.iter().find(|n| uuid(n)).cloned().or(facts.id);
    unit.id = id.unwrap_or_else(|| format!("{vendor}-{}", unit.names[0]));
    unit.names.retain(|name| *name != unit.id);
    unit.model = facts.model;
    unit.memory_mib = facts.memory_mib;
    unit.compute_capability = facts.compute_capability;
    unit.brand = facts.brand;
    unit.hsa_override = facts.hsa_override;
    unit.numa_node = facts.numa_node;
    unit.nvlink = facts.nvlink;
}

/// `0:1` as numbers; units without an index come last, by id.
fn index(unit: &Unit) -> (Vec<u64>, String) {
    let number = |name: &String| name.split(':').map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>();
    let found = unit.names.iter().find_map(number);
    (found.unwrap_or_else(|| vec![u64::MAX]), unit.id.clone())
}

/// From `libcuda.so.550.163.01`.
fn version(edits: &ContainerEdits) -> Option<String> {
    let names = edits.mounts.iter().filter_map(|m| m.host_path.file_name()?.to_str());
    let version =
        |name: &str| name.strip_prefix("libcuda.so.").filter(|v| v.contains('.')).map(str::to_owned);
    names.filter_map(version).next()
}
