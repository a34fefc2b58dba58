//! From the operator's words to a task's params, and to what its container should get (PURE).

use super::{Asked, Outcome, Verdict, fingerprint};
use crate::gpu::facts::word;
use crate::oci::devices::{Devices, Unit, Vendor};
use crate::oci::policy::Access;
use crate::oci::request::VISIBLE;
use std::collections::BTreeSet;
use std::fmt;

/// What a task of these params should get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its params.
    pub params: Vec<(String, String)>,
    /// Ids of units, of which it gets some.
    pub units: Vec<String>,
    /// How many of them.
    pub count: usize,
}

impl Order {
    /// What came of it if its container was not seen from inside.
    pub fn failed(&self, devices: &Devices, why: String) -> Outcome {
        let ordered = devices.units.iter().filter(|unit| self.units.contains(&unit.id));
        let vendors: BTreeSet<Vendor> = ordered.map(|unit| unit.vendor).collect();
        Outcome {
            asked: self.to_string(),
            vendors: vendors.into_iter().collect(),
            of: fingerprint(devices),
            ..Outcome::without(Verdict::Failed, why)
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let params: Vec<String> = self.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(&params.join(" "))
    }
}

/// Reads what was asked for. Nothing asked is all; where units are leased, one: all would wait for all tasks.
///
/// # Errors
/// There is nothing like it here; says what there is.
pub fn order(asked: &Asked, access: Access, devices: &Devices) -> Result<Order, String> {
    let (mut params, units) = match asked.devices.as_deref().map(str::trim) {
        None | Some("" | "all") => (vec![], devices.units.iter().collect()),
        Some("none" | "void") => (vec![], vec![]),
        Some(names) => named(names, devices)?,
    };
    let default = match (access, &asked.devices) {
        _ if units.is_empty() => "0",
        (Access::Exclusive, None) => "1",
        _ => "all",
    };
    let word = asked.count.as_deref().map_or(default, str::trim);
    let count = match word {
        "all" => units.len(),
        "none" | "void" => 0,
        number => number
            .parse()
            .map_err(|_| format!("count: {number} is no number of GPUs: write 1, 2… or all or none"))?,
    };
    if count > units.len() {
        let has = shown(&devices.units.iter().collect::<Vec<_>>());
        return Err(format!(
            "count: {count} GPUs are more than there are to choose from; this worker has {has}"
        ));
    }
    params.push(("GPU_COUNT".to_owned(), word.to_owned()));
    Ok(Order { params, units: units.into_iter().map(|unit| unit.id.clone()).collect(), count })
}

type Named<'a> = (Vec<(String, String)>, Vec<&'a Unit>);

/// A variable for each vendor: tasks choose units of one by name, and decline the other's.
fn named<'a>(names: &str, devices: &'a Devices) -> Result<Named<'a>, String> {
    let mut chosen: Vec<&Unit> = vec![];
    for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let is = |unit: &&Unit| {
            let long = |n: &String| n == name || format!("{}-{n}", word(unit.vendor)) == name;
            unit.id == name || unit.names.iter().any(long)
        };
        let found: Vec<&Unit> = devices.units.iter().filter(is).collect();
        match found.as_slice() {
            [unit] if unit.vendor == Vendor::Intel => {
                return Err(format!("devices: tasks can't choose Intel's GPUs by name ({name}): use count"));
            }
            [unit] => chosen.push(unit),
            [] => {
                let has = shown(&devices.units.iter().collect::<Vec<_>>());
                return Err(format!(
                    "devices: there is no GPU {name} that tasks can have; this worker has {has}"
                ));
            }
            many => return Err(format!("devices: {name} is more than one: write one of {}", shown(many))),
        }
    }
    let own = |vendor| {
        let ids = chosen.iter().filter(|unit| unit.vendor == vendor).map(|unit| unit.id.as_str());
        Some(ids.collect::<Vec<_>>().join(",")).filter(|ids| !ids.is_empty())
    };
    let there = |vendor| devices.units.iter().any(|unit| unit.vendor == vendor);
    let params = VISIBLE.iter().filter(|(vendor, _)| there(*vendor)).map(|(vendor, variable)| {
        ((*variable).to_owned(), own(*vendor).unwrap_or_else(|| "none".to_owned()))
    });
    let units = devices.units.iter().filter(|unit| chosen.iter().any(|c| c.id == unit.id));
    Ok((params.collect(), units.collect()))
}

/// `0 (GPU-…), 1 (GPU-…)`
pub fn shown(units: &[&Unit]) -> String {
    let name = |unit: &&Unit| match unit.names.first() {
        Some(name) if *name != unit.id => format!("{name} ({})", unit.id),
        _ => unit.id.clone(),
    };
    let all: Vec<String> = units.iter().map(name).collect();
    if all.is_empty() { "no GPU to give".to_owned() } else { all.join(", ") }
}
