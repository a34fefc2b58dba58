//! What packages would mend (PURE).

use super::facts::{Facts, Machine};
use super::generate::{Origin, Prepared};
use super::ladder::{self, Ladder};
use crate::oci::devices::Vendor;
use serde::{Deserialize, Serialize};

/// All that NVIDIA's GPUs lack. Drivers of other makers are part of the kernel, their libraries of the task's image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lacks {
    /// Libraries for programs, of this version: the loaded kernel module's.
    pub libraries: Option<String>,
    /// The kernel driver, for GPUs with these PCI ids.
    pub driver: Option<Vec<u16>>,
    /// NVIDIA's own generator of CDI specs; the charm's own does its work meanwhile.
    pub generator: bool,
}

/// Reads it off the ladder: the rung that is missing is the one that packages may mend.
pub fn lacks(facts: &Facts, prepared: &Prepared, ladders: &[Ladder]) -> Lacks {
    let Some(ladder) = ladders.iter().find(|ladder| ladder.vendor == Vendor::Nvidia) else {
        return Lacks::default();
    };
    let own_kernel = matches!(facts.machine, Machine::BareMetal | Machine::Vm { .. });
    if !own_kernel && !facts.in_container() {
        // On WSL libraries are Windows' affair, on a Jetson those of NVIDIA's own system.
        return Lacks::default();
    }
    let rung = ladder.missing().map(|(rung, _)| rung);
    Lacks {
        libraries: facts.nvidia.version.clone().filter(|version| match rung {
            Some(rung) if rung == ladder::LIBRARY => {
                facts.files.nvml.is_empty() || facts.files.cuda.is_empty()
            }
            Some(rung) if rung == ladder::MATCH => {
                let found: Vec<&String> = facts.files.nvml.values().collect();
                !found.contains(&version) && facts.libraries_must_follow(version, &found)
            }
            _ => false,
        }),
        driver: (own_kernel && rung == Some(ladder::DRIVER)).then(|| driverless(facts)).flatten(),
        // In containers NVIDIA's service that keeps the spec up to date skips itself.
        generator: own_kernel
            && rung.is_none()
            && !facts.generator
            && prepared.origin.get(&Vendor::Nvidia) == Some(&Origin::Own),
    }
}

/// GPUs that wait for a driver: none is loaded, and none of them was given to somebody else.
fn driverless(facts: &Facts) -> Option<Vec<u16>> {
    let mut gpus = facts.of(Vendor::Nvidia).peekable();
    gpus.peek()?;
    let taken = |driver: &Option<String>| driver.as_deref().is_some_and(|driver| driver != "nouveau");
    let ids: Option<Vec<u16>> =
        gpus.map(|gpu| (!taken(&gpu.driver) && !gpu.lost).then_some(gpu.device)).collect();
    ids.filter(|_| !facts.modules.contains("nvidia"))
}
