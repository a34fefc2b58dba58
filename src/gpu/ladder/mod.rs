//! From the device on the bus to a container that sees it: each rung with what is missing and what mends it (PURE).

mod drivers;
mod fixes;
mod nvidia;
mod others;

use super::facts::{Facts, Machine, brand};
use super::generate::Prepared;
use super::inventory::Inventory;
use super::said::Answer;
use super::wanted::{VENDORS, Wanted};
use crate::oci::devices::Vendor;
use serde::{Deserialize, Serialize};

/// Everything that a ladder is made of.
pub struct Seen<'a> {
    /// What was read.
    pub facts: &'a Facts,
    /// What NVML said.
    pub answer: &'a Answer,
    /// The GPUs.
    pub inventory: &'a Inventory,
    /// What containers would get.
    pub prepared: &'a Prepared,
}

/// One vendor's ladder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ladder {
    /// Whose.
    pub vendor: Vendor,
    /// From the bottom up.
    pub rungs: Vec<Rung>,
}

/// A rung.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rung {
    /// What it is about.
    pub name: String,
    /// Whether it holds.
    #[serde(flatten)]
    pub state: State,
}

/// Whether a rung holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum State {
    /// It does.
    Ok {
        /// What was seen.
        seen: String,
    },
    /// It doesn't.
    Missing(Missing),
    /// One below it doesn't hold.
    NotReached,
}

/// What is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// One sentence that says what to do.
    pub message: String,
    /// Commands, to be pasted as they are; lines with `#` say where.
    pub fix: Vec<String>,
}

type Checked = Result<String, Missing>;

fn missing(message: impl Into<String>, fix: Vec<String>) -> Missing {
    Missing { message: message.into(), fix }
}

/// The rungs' names, from the bottom up.
const RUNGS: [&str; 9] = [
    "GPU in the machine",
    "kernel driver",
    "device nodes",
    "nodes open",
    "vendor library",
    "library matches the driver",
    "compute node",
    "device data",
    "a container sees it",
];

/// The rungs that packages may mend: NVIDIA's kernel driver,
pub const DRIVER: &str = RUNGS[1];
/// its libraries,
pub const LIBRARY: &str = RUNGS[4];
/// and those of the loaded driver's version.
pub const MATCH: &str = RUNGS[5];

/// Whether a rung is the host's and LXD's affair in a container: the driver and the nodes.
pub fn is_passed_on(rung: &str) -> bool {
    RUNGS[1..3].contains(&rung)
}

/// Climbs until a rung is missing.
fn climb(vendor: Vendor, checks: [&dyn Fn() -> Checked; 8]) -> Ladder {
    let mut rungs = vec![];
    let mut broken = false;
    for (name, check) in RUNGS.iter().zip(checks) {
        let state = match broken {
            true => State::NotReached,
            false => check().map_or_else(State::Missing, |seen| State::Ok { seen }),
        };
        broken |= matches!(state, State::Missing(_));
        rungs.push(Rung { name: (*name).to_owned(), state });
    }
    // Only a container can tell; see `told`.
    rungs.push(Rung { name: RUNGS[8].into(), state: State::NotReached });
    Ladder { vendor, rungs }
}

/// The ladders of the vendors that are wanted and of which there is a trace; without any trace, one that says so.
pub fn ladders(seen: &Seen, wanted: &Wanted) -> Vec<Ladder> {
    let mut found = vec![];
    for vendor in VENDORS.into_iter().filter(|v| wanted.has(*v) && trace(seen.facts, *v)) {
        found.push(ladder(seen, vendor));
    }
    if found.is_empty()
        && let Some(vendor) = VENDORS.into_iter().find(|v| wanted.has(*v))
    {
        let mut first = ladder(seen, vendor);
        if wanted.vendors.len() > 1
            && let Some(Rung { state: State::Missing(missing), .. }) = first.rungs.first_mut()
        {
            missing.message = fixes::no_gpu(seen.facts, None);
        }
        found.push(first);
    }
    found
}

fn ladder(seen: &Seen, vendor: Vendor) -> Ladder {
    match vendor {
        Vendor::Nvidia => nvidia::ladder(seen),
        Vendor::Amd => others::amd(seen),
        Vendor::Intel => others::intel(seen),
    }
}

/// Whether anything speaks of a GPU of this vendor.
fn trace(facts: &Facts, vendor: Vendor) -> bool {
    let of_nvidia = || {
        let module = facts.nvidia.version.is_some() || facts.modules.contains("nvgpu");
        let node = ["/dev/nvidiactl", "/dev/dxg"].iter().any(|n| facts.node(n).is_some());
        module || node || matches!(facts.machine, Machine::Wsl | Machine::Jetson)
    };
    facts.of(vendor).next().is_some()
        || facts.specs(vendor).next().is_some()
        || (vendor == Vendor::Nvidia && of_nvidia())
}

impl Ladder {
    /// The lowest rung that does not hold.
    pub fn missing(&self) -> Option<(&str, &Missing)> {
        self.rungs.iter().find_map(|rung| match &rung.state {
            State::Missing(missing) => Some((rung.name.as_str(), missing)),
            _ => None,
        })
    }

    /// With what a test container told: what it saw, or why it saw nothing.
    pub fn told(mut self, result: Result<String, String>) -> Self {
        if self.missing().is_none()
            && let Some(last) = self.rungs.last_mut()
        {
            last.state = match result {
                Ok(seen) => State::Ok { seen },
                Err(why) => {
                    State::Missing(missing(format!("A container did not see the GPU: {why}"), vec![]))
                }
            };
        }
        self
    }
}

/// The sentence for the status, if no unit can be used: the first missing rung of the ladder that is highest, since
/// that vendor's GPUs are nearest to working.
pub fn blocked(ladders: &[Ladder], prepared: &Prepared) -> Option<String> {
    if !prepared.devices.units.is_empty() {
        return None;
    }
    let height = |ladder: &&Ladder| {
        let missing = ladder.rungs.iter().position(|r| matches!(r.state, State::Missing(_)));
        (missing.unwrap_or(0), std::cmp::Reverse(ladder.vendor))
    };
    let (_, missing) = ladders.iter().max_by_key(height)?.missing()?;
    Some(missing.message.clone())
}

/// All ladders as text, for `gpu-diagnose`.
pub fn text(ladders: &[Ladder]) -> String {
    let mut lines = vec![];
    for ladder in ladders {
        lines.push(brand(ladder.vendor).to_owned());
        for rung in &ladder.rungs {
            let name = &rung.name;
            match &rung.state {
                State::Ok { seen } => lines.push(format!("  ok       {name}: {seen}")),
                State::NotReached if *name == RUNGS[8] && ladder.missing().is_none() => {
                    lines.push(format!("  -        {name}: not tried yet; the action gpu-test tells"));
                }
                State::NotReached => lines.push(format!("  -        {name}")),
                State::Missing(missing) => {
                    lines.push(format!("  MISSING  {name}: {}", missing.message));
                    lines.extend(missing.fix.iter().map(|line| format!("             {line}")));
                }
            }
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}
