//! The ladder of NVIDIA (PURE).

use super::{Checked, Ladder, Seen, climb, drivers, fixes, missing};
use crate::gpu::facts::{Facts, Machine, Pci};
use crate::gpu::said::{Answer, Reason};
use crate::oci::devices::Vendor;
use std::path::{Path, PathBuf};

const LOAD: &str = "sudo nvidia-modprobe -c 0 -u";

pub fn ladder(seen: &Seen) -> Ladder {
    let facts = seen.facts;
    climb(
        Vendor::Nvidia,
        [
            &|| present(facts),
            &|| driver(facts),
            &|| nodes(facts),
            &|| open(seen),
            &|| library(seen),
            &|| matches(seen),
            &|| compute(seen),
            &|| fixes::data(seen, Vendor::Nvidia, drivers::spec(facts)),
        ],
    )
}

/// Whether the machine has a driver that isn't NVIDIA's module on a PCI bus.
fn other_kind(facts: &Facts) -> bool {
    matches!(facts.machine, Machine::Wsl | Machine::Jetson)
}

/// Only a spec speaks of GPUs: they are simulated, or what they hang on is not visible here.
fn by_spec(facts: &Facts) -> bool {
    !other_kind(facts)
        && facts.of(Vendor::Nvidia).next().is_none()
        && facts.nvidia.version.is_none()
        && facts.specs(Vendor::Nvidia).next().is_some()
}

/// Whether the driver has such a node for all GPUs together; one that is simulated has what its spec names.
fn has(facts: &Facts, node: &Path) -> bool {
    !by_spec(facts) || facts.specs(Vendor::Nvidia).any(|spec| spec.nodes.iter().any(|named| named == node))
}

fn present(facts: &Facts) -> Checked {
    let all: Vec<&Pci> = facts.of(Vendor::Nvidia).collect();
    match facts.machine {
        Machine::Wsl if facts.node("/dev/dxg").is_none() => {
            return Err(missing(
                "WSL shows no GPU, /dev/dxg is missing: update WSL and the GPU's driver on Windows (wsl --update)",
                drivers::windows(),
            ));
        }
        Machine::Wsl => return Ok("Windows' GPUs behind /dev/dxg".into()),
        Machine::Jetson => return Ok("the GPU of a Jetson".into()),
        _ => {}
    }
    match all.as_slice() {
        [] if by_spec(facts) => Ok("named by a CDI spec".into()),
        // A bus that can't be seen at all says nothing.
        [] if facts.nvidia.version.is_some() => {
            Ok(format!("{} by the kernel module's word", facts.nvidia.gpus.len()))
        }
        [] => Err(fixes::absent(facts, Vendor::Nvidia)),
        all if all.iter().all(|p| p.lost) => Err(fixes::lost(facts, &all[0].address)),
        all => {
            let model = |p: &Pci| facts.nvidia.gpus.get(&p.address)?.model.clone();
            let named = all.iter().map(|p| Pci { name: p.name.clone().or_else(|| model(p)), ..(*p).clone() });
            Ok(named.map(|p| p.shown()).collect::<Vec<_>>().join(", "))
        }
    }
}

fn driver(facts: &Facts) -> Checked {
    if by_spec(facts) {
        return Ok("not visible here".into());
    }
    if other_kind(facts) {
        return Ok(if facts.machine == Machine::Wsl { "dxgkrnl" } else { "nvgpu" }.into());
    }
    let gpus: Vec<&Pci> = facts.of(Vendor::Nvidia).filter(|p| !p.lost).collect();
    let bound = gpus.is_empty() || gpus.iter().any(|p| p.driver.as_deref() == Some("nvidia"));
    if let Some(version) = facts.nvidia.version.as_ref().filter(|_| bound) {
        return Ok(format!("nvidia {version}"));
    }
    // One that waits for a driver is nearer to working than one that somebody else has.
    if gpus.iter().all(|p| p.driver.is_some())
        && let Some(taken) = fixes::vfio(facts, Vendor::Nvidia)
    {
        return Err(taken);
    }
    let nouveau = gpus.iter().any(|p| p.driver.as_deref() == Some("nouveau"));
    Err(drivers::driver(facts, nouveau))
}

/// Nodes of GPUs that there should be.
fn gpu_nodes(facts: &Facts) -> Vec<PathBuf> {
    let numbered = |minor: u32| PathBuf::from(format!("/dev/nvidia{minor}"));
    let mut found: Vec<PathBuf> =
        facts.nvidia.gpus.values().filter(|g| !g.excluded).filter_map(|g| g.minor).map(numbered).collect();
    let is_gpu = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.strip_prefix("nvidia").is_some_and(|n| n.parse::<u32>().is_ok())
    };
    found.extend(facts.specs(Vendor::Nvidia).flat_map(|c| c.nodes.clone()).filter(is_gpu));
    found.sort();
    found.dedup();
    found
}

fn nodes(facts: &Facts) -> Checked {
    if facts.machine == Machine::Wsl {
        return Ok("/dev/dxg".into());
    }
    if facts.machine == Machine::Jetson {
        let tegra = |p: &&PathBuf| p.to_string_lossy().contains("/nvhost-") || p.ends_with("nvmap");
        return match facts.nodes.keys().filter(tegra).count() {
            0 => Err(fixes::nodes(facts, Vendor::Nvidia, &["/dev/nvhost-gpu".into()], "sudo modprobe nvgpu")),
            n => Ok(format!("{n} of Tegra")),
        };
    }
    let mut wanted = gpu_nodes(facts);
    if wanted.is_empty() {
        wanted.push("/dev/nvidia0".into());
    }
    let here = wanted.iter().filter(|n| facts.node(n).is_some()).count();
    let control = Path::new("/dev/nvidiactl");
    let mut lacking: Vec<PathBuf> = if here == 0 { wanted.clone() } else { vec![] };
    if facts.node(control).is_none() && has(facts, control) {
        lacking.push(control.into());
    }
    if lacking.is_empty() {
        return Ok(format!("{here} of {} GPUs", wanted.len()));
    }
    let uvm = uvm().into_iter().filter(|n| facts.in_container() && facts.node(n).is_none() && has(facts, n));
    lacking.extend(uvm);
    Err(fixes::nodes(facts, Vendor::Nvidia, &lacking, LOAD))
}

fn uvm() -> [PathBuf; 2] {
    ["/dev/nvidia-uvm".into(), "/dev/nvidia-uvm-tools".into()]
}

fn open(seen: &Seen) -> Checked {
    let facts = seen.facts;
    if let Answer::Said(said) = seen.answer
        && let Some((node, why)) = said.closed.iter().next()
    {
        let mut made = fixes::closed(facts, &[node]);
        made.message =
            format!("{} can't be opened ({}): see gpu-diagnose", node.display(), fixes::short(why));
        return Err(made);
    }
    if let Answer::Failed { reason: Reason::NoPermission, .. } = seen.answer {
        return Err(fixes::closed(facts, &[Path::new("/dev/nvidiactl")]));
    }
    let mut all = vec![PathBuf::from("/dev/nvidiactl"), "/dev/nvidia-uvm".into(), "/dev/dxg".into()];
    all.extend(gpu_nodes(facts));
    all.retain(|n| facts.node(n).is_some());
    fixes::open(facts, &all)
}

fn library(seen: &Seen) -> Checked {
    let facts = seen.facts;
    if facts.machine == Machine::Jetson || by_spec(facts) {
        return Ok("what the CDI spec names".into());
    }
    let version = facts.nvidia.version.as_deref().unwrap_or("the host's version");
    let library = match facts.machine {
        Machine::Wsl => "libnvidia-ml.so.1 of Windows' driver is missing in /usr/lib/wsl/lib: update the driver on Windows".into(),
        _ if facts.in_container() => format!("NVIDIA's libraries of the host's driver, {version}, are missing: the charm installs them, or see gpu-diagnose"),
        _ => format!("NVIDIA's libraries of driver {version} are missing: the charm installs them, or see gpu-diagnose"),
    };
    if facts.files.nvml.is_empty() || facts.files.cuda.is_empty() {
        // A spec may have them from elsewhere.
        let given = seen.prepared.origin.contains_key(&Vendor::Nvidia);
        return if given {
            Ok("what the CDI spec names".into())
        } else {
            Err(missing(library, drivers::libraries(facts)))
        };
    }
    match seen.answer {
        Answer::Failed { reason: Reason::NoLibrary, text } => Err(missing(
            format!("libnvidia-ml.so.1 can't be loaded: {}", fixes::short(text)),
            drivers::libraries(facts),
        )),
        _ => Ok(facts.files.nvml.keys().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")),
    }
}

fn matches(seen: &Seen) -> Checked {
    let facts = seen.facts;
    match seen.answer {
        Answer::Hung => {
            let (whole, there) = (fixes::whole(facts), if facts.in_container() { " there" } else { "" });
            return Err(missing(
                format!(
                    "NVIDIA's driver does not answer: restart {whole}; journalctl -k{there} has the reason (NVRM, Xid)"
                ),
                fixes::with_kernel(facts, &[drivers::LOG, fixes::reboot(facts)]),
            ));
        }
        Answer::Failed { reason: Reason::Lost, .. } => {
            let lost = facts.of(Vendor::Nvidia).find(|p| p.lost).or_else(|| facts.of(Vendor::Nvidia).next());
            return Err(fixes::lost(facts, lost.map_or("", |p| p.address.as_str())));
        }
        _ => {}
    }
    let refused = matches!(seen.answer, Answer::Failed { reason: Reason::Mismatch, .. });
    let known: Vec<&String> = facts.files.nvml.values().collect();
    let differs = |module: &String| !known.is_empty() && !known.contains(&module);
    match &facts.nvidia.version {
        Some(module) if !other_kind(facts) && (refused || differs(module)) => {
            Err(drivers::mismatch(facts, module, &known))
        }
        _ if refused => Err(drivers::mismatch(facts, "another version", &known)),
        Some(module) => match seen.answer {
            Answer::Failed { text, .. } => Err(missing(
                format!("NVIDIA's driver refuses: {}: see gpu-diagnose", fixes::short(text)),
                drivers::look(facts),
            )),
            _ => Ok(module.clone()),
        },
        None => Ok("nothing to compare".into()),
    }
}

fn compute(seen: &Seen) -> Checked {
    let facts = seen.facts;
    let node = Path::new("/dev/nvidia-uvm");
    if other_kind(facts) || !has(facts, node) {
        return Ok("not needed".into());
    }
    if facts.node(node).is_none() {
        let lacking: Vec<PathBuf> = uvm().into_iter().filter(|n| facts.node(n).is_none()).collect();
        let mut made = fixes::nodes(facts, Vendor::Nvidia, &lacking, "sudo nvidia-modprobe -u -c 0");
        if let Machine::Lxd { .. } = facts.machine {
            let to = fixes::container(facts);
            made.message = format!(
                "CUDA needs /dev/nvidia-uvm: on the LXD host run lxc config device add {to} nvidia-uvm unix-char path=/dev/nvidia-uvm mode=0666"
            );
        }
        return Err(made);
    }
    let usable = seen.inventory.gpus.iter().filter(|g| g.vendor == Vendor::Nvidia && g.usable());
    let (split, whole): (Vec<_>, Vec<_>) = usable.partition(|g| g.mig);
    let here = |n: &PathBuf| facts.node(n).is_some();
    let parts = || split.iter().flat_map(|g| &g.parts);
    // Who has some of the parts has what was passed on.
    let some = parts().any(|p| p.caps.as_ref().is_none_or(|caps| caps.iter().all(here)));
    if !whole.is_empty() || split.is_empty() || some {
        return Ok(node.display().to_string());
    }
    let mut lacking: Vec<PathBuf> =
        parts().filter_map(|p| p.caps.clone()).flatten().filter(|n| !here(n)).collect();
    lacking.sort();
    lacking.dedup();
    if lacking.is_empty() {
        return Err(drivers::no_instances(facts));
    }
    Err(fixes::nodes(facts, Vendor::Nvidia, &lacking, &drivers::capabilities(facts)))
}
