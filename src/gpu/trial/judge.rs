//! Whether a container saw what it should (PURE).

use super::order::{Order, shown};
use super::{Cuda, Node, Outcome, Seen, Verdict, fingerprint};
use crate::oci::devices::{self, Devices, Unit, Vendor};
use crate::oci::exec::Equipment;
use crate::oci::request::VISIBLE;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What came of a container that ran.
#[derive(Clone, Debug)]
pub struct Trial<'a> {
    /// What it was to get.
    pub order: &'a Order,
    /// What there was to give.
    pub devices: &'a Devices,
    /// What the wrapper noted that it gave.
    pub given: &'a Equipment,
    /// The numbers of the nodes on the worker.
    pub numbers: &'a BTreeMap<PathBuf, (u64, u64)>,
    /// What the container saw.
    pub seen: &'a Seen,
}

/// The result.
pub fn judge(trial: &Trial<'_>) -> Outcome {
    let units: Vec<&Unit> =
        trial.devices.units.iter().filter(|unit| trial.given.units.contains(&unit.id)).collect();
    let mut vendors: Vec<Vendor> = units.iter().map(|unit| unit.vendor).collect();
    vendors.dedup();
    let mut reasons = trial.units(&units);
    reasons.extend(trial.nodes(&units, &vendors));
    reasons.extend(trial.environment(&units));
    let (wrong, untried) = trial.cuda(&units);
    reasons.extend(wrong);
    let verdict = if reasons.is_empty() { Verdict::Passed } else { Verdict::Failed };
    Outcome {
        at: String::new(),
        asked: trial.order.to_string(),
        verdict,
        reasons,
        units: units.iter().map(|unit| shown(&[unit])).collect(),
        vendors,
        nodes: trial.seen.nodes.iter().map(line).collect(),
        cuda: match &trial.seen.cuda {
            Cuda::NotAsked => None,
            Cuda::NoLibrary(_) if !untried.is_empty() => None,
            Cuda::NoLibrary(why) | Cuda::Failed(why) => Some(why.clone()),
            Cuda::Devices(1) => Some("1 device".to_owned()),
            Cuda::Devices(n) => Some(format!("{n} devices")),
        },
        notes: untried,
        of: fingerprint(trial.devices),
    }
}

impl Trial<'_> {
    fn units(&self, given: &[&Unit]) -> Vec<String> {
        let mut wrong = vec![];
        if given.len() != self.order.count {
            wrong.push(format!("it was given {} GPUs instead of {}", given.len(), self.order.count));
        }
        let others: Vec<&Unit> =
            given.iter().copied().filter(|unit| !self.order.units.contains(&unit.id)).collect();
        if !others.is_empty() {
            wrong.push(format!("it was given {}, which was not asked for", shown(&others)));
        }
        wrong
    }

    /// Each node of what was given is there, is the worker's own, and opens; and there is no other.
    fn nodes(&self, units: &[&Unit], vendors: &[Vendor]) -> Vec<String> {
        let drivers = vendors.iter().filter_map(|vendor| self.devices.vendors.get(vendor));
        let edits = drivers.map(|driver| &driver.edits).chain(units.iter().map(|unit| &unit.edits));
        let expected: Vec<&devices::Node> = edits.flat_map(|edits| &edits.nodes).collect();
        let mut wrong = vec![];
        for node in &expected {
            let path = node.path.display();
            let Some(found) = self.seen.nodes.iter().find(|seen| seen.path == node.path) else {
                wrong.push(format!("{path} is not in the container"));
                continue;
            };
            match self.numbers.get(&node.host) {
                None => wrong.push(format!("{} is gone from the worker", node.host.display())),
                Some(number) if *number != found.number => {
                    let (here, there) = (numbers(found.number), numbers(*number));
                    wrong.push(format!("{path} is {here} in the container and {there} on the worker"));
                }
                Some(_) => {}
            }
            if let Some(why) = found.closed.as_ref().filter(|_| !is_display(&node.path)) {
                wrong.push(format!("{path} does not open: {why}"));
            }
        }
        let other = |seen: &&Node| !expected.iter().any(|node| node.path == seen.path);
        for node in self.seen.nodes.iter().filter(other) {
            wrong.push(format!("it has {}, which it was not given", node.path.display()));
        }
        wrong
    }

    /// What each process of a task is told of its units.
    fn environment(&self, units: &[&Unit]) -> Vec<String> {
        let mut wrong = vec![];
        for (vendor, variable) in VISIBLE {
            let ids: Vec<&str> =
                units.iter().filter(|unit| unit.vendor == vendor).map(|unit| unit.id.as_str()).collect();
            let says = self.seen.env.get(variable).map(String::as_str).unwrap_or_default();
            if !ids.is_empty() && says != ids.join(",") {
                wrong.push(format!("its {variable} is {says:?} instead of {:?}", ids.join(",")));
            }
        }
        wrong
    }

    /// What is wrong, and what can't be said.
    fn cuda(&self, units: &[&Unit]) -> (Option<String>, Vec<String>) {
        let own: Vec<&&Unit> = units.iter().filter(|unit| unit.vendor == Vendor::Nvidia).collect();
        if own.is_empty() {
            return (None, vec![]);
        }
        let driver = self.devices.vendors.get(&Vendor::Nvidia);
        let has_libraries = driver.is_some_and(|driver| !driver.edits.mounts.is_empty());
        // CUDA shows a process one MIG device, whatever there is.
        let mig = own.iter().any(|unit| unit.id.starts_with("MIG-"));
        let expected = if mig { 1 } else { own.len() };
        match &self.seen.cuda {
            Cuda::NoLibrary(_) if !has_libraries => {
                let note = "CUDA was not tried: the device data has no driver libraries for containers";
                (None, vec![note.to_owned()])
            }
            Cuda::NotAsked => (Some("CUDA was not tried".to_owned()), vec![]),
            Cuda::NoLibrary(why) => (Some(format!("NVIDIA's libcuda.so.1 does not load: {why}")), vec![]),
            Cuda::Failed(why) => (Some(format!("CUDA fails: {why}")), vec![]),
            Cuda::Devices(count) if usize::try_from(*count) != Ok(expected) => {
                (Some(format!("CUDA sees {count} devices instead of {expected}")), vec![])
            }
            Cuda::Devices(_) => (None, vec![]),
        }
    }
}

/// Of what displays need, and computing doesn't, permissions are no matter.
fn is_display(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("card") || name == "nvidia-modeset"
}

fn line(node: &Node) -> String {
    let opens =
        node.closed.as_ref().map_or_else(|| "opens".to_owned(), |why| format!("does not open: {why}"));
    format!("{} {} {opens}", node.path.display(), numbers(node.number))
}

fn numbers((major, minor): (u64, u64)) -> String {
    format!("{major}:{minor}")
}
