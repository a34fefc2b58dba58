//! The ladders of AMD and Intel: their drivers are the kernel's own, their libraries come with the image (PURE).

use super::{Checked, Ladder, Missing, Seen, climb, fixes, missing};
use crate::gpu::facts::{Facts, Machine, Pci, brand};
use crate::oci::devices::Vendor;
use std::path::PathBuf;

/// Ubuntu's newer kernels for a release that is not.
const HWE: &str = "sudo apt-get install linux-generic-hwe-$(lsb_release -rs)";

pub fn amd(seen: &Seen) -> Ladder {
    let facts = seen.facts;
    let compute = || match facts.node("/dev/kfd") {
        Some(_) if facts.kfd.is_empty() => Err(missing(
            "AMD's compute driver lists no GPU: it supports none of these, or the kernel is too old: see gpu-diagnose",
            fixes::with_kernel(facts, &["sudo journalctl -k | grep -i kfd"]),
        )),
        Some(_) => fixes::open(facts, &["/dev/kfd".into()]).map(|_| "/dev/kfd".into()),
        None => Err(kfd(facts)),
    };
    climb(
        Vendor::Amd,
        [
            &|| present(facts, Vendor::Amd),
            &|| driver(facts, Vendor::Amd),
            &|| nodes(facts, Vendor::Amd),
            &|| fixes::open(facts, &given(facts, Vendor::Amd)),
            &|| Ok("ROCm comes with the task's image".into()),
            &|| Ok("any ROCm that knows the chip fits".into()),
            &compute,
            &|| fixes::data(seen, Vendor::Amd, vec![]),
        ],
    )
}

pub fn intel(seen: &Seen) -> Ladder {
    let facts = seen.facts;
    climb(
        Vendor::Intel,
        [
            &|| present(facts, Vendor::Intel),
            &|| driver(facts, Vendor::Intel),
            &|| nodes(facts, Vendor::Intel),
            &|| fixes::open(facts, &given(facts, Vendor::Intel)),
            &|| Ok("Level Zero and OpenCL come with the task's image".into()),
            &|| Ok("any version that knows the chip fits".into()),
            &|| Ok("the render node is all".into()),
            &|| fixes::data(seen, Vendor::Intel, vec![]),
        ],
    )
}

fn kfd(facts: &Facts) -> Missing {
    match facts.machine {
        Machine::Lxd { .. } => {
            let line = fixes::lxc_node(facts, "/dev/kfd".as_ref());
            let to = fixes::container(facts);
            missing(
                format!(
                    "AMD's /dev/kfd is missing: on the LXD host run lxc config device add {to} kfd unix-char path=/dev/kfd mode=0666"
                ),
                vec!["# on the LXD host; a gpu device does not pass it on".into(), line],
            )
        }
        _ => fixes::nodes(facts, Vendor::Amd, &["/dev/kfd".into()], "sudo modprobe amdgpu"),
    }
}

fn present(facts: &Facts, vendor: Vendor) -> Checked {
    let all: Vec<&Pci> = facts.of(vendor).collect();
    match all.as_slice() {
        [] if facts.specs(vendor).next().is_some() => Ok("named by a CDI spec".into()),
        [] => Err(fixes::absent(facts, vendor)),
        all if all.iter().all(|p| p.lost) => Err(fixes::lost(facts, &all[0].address)),
        all => Ok(all.iter().map(|p| p.shown()).collect::<Vec<_>>().join(", ")),
    }
}

fn drivers(vendor: Vendor) -> &'static [&'static str] {
    if vendor == Vendor::Amd { &["amdgpu"] } else { &["i915", "xe"] }
}

fn bound(facts: &Facts, vendor: Vendor) -> Vec<&Pci> {
    let has = |p: &&Pci| p.driver.as_deref().is_some_and(|d| drivers(vendor).contains(&d));
    facts.of(vendor).filter(has).collect()
}

fn driver(facts: &Facts, vendor: Vendor) -> Checked {
    if facts.of(vendor).next().is_none() {
        return Ok("not visible here".into());
    }
    if let Some(gpu) = bound(facts, vendor).first() {
        return Ok(gpu.driver.clone().unwrap_or_default());
    }
    // One that waits for a driver is nearer to working than one that somebody else has.
    if facts.of(vendor).all(|p| p.driver.is_some())
        && let Some(taken) = fixes::vfio(facts, vendor)
    {
        return Err(taken);
    }
    let maker = brand(vendor);
    let (place, host) = if facts.in_container() { ("its host", " on its host") } else { ("the kernel", "") };
    let free = facts.of(vendor).any(|p| p.driver.is_none());
    if let Some(other) = facts.of(vendor).find_map(|p| p.driver.as_deref()).filter(|_| !free) {
        return Err(missing(
            format!(
                "{maker} GPU that {other} drives, and containers need {}: use another machine",
                drivers(vendor).join(" or ")
            ),
            vec![fixes::place(facts), "lspci -k -d ::0300; lspci -k -d ::0380".into()],
        ));
    }
    if let Some(loaded) = drivers(vendor).iter().find(|module| facts.modules.contains(**module)) {
        let log = format!("sudo journalctl -k | grep -iE '{loaded}|firmware'");
        return Err(missing(
            format!(
                "{maker} GPU that {loaded}, though loaded, leaves alone: see the kernel's log, or install a newer kernel or linux-firmware{host}"
            ),
            fixes::with_kernel(facts, &[&log, "sudo apt-get install linux-firmware", HWE, "sudo reboot"]),
        ));
    }
    let names = drivers(vendor).join(" or ");
    let fix = vec![
        fixes::place(facts),
        "# on Ubuntu's server and cloud kernels it is in a package of its own".into(),
        "sudo apt-get install linux-modules-extra-$(uname -r)".into(),
        format!("sudo modprobe {}", drivers(vendor)[0]),
    ];
    Err(missing(
        format!(
            "{maker} GPU without a driver, {place} has no {names} for it: install linux-modules-extra{host}"
        ),
        fix,
    ))
}

/// Render nodes that there should be.
fn renders(facts: &Facts, vendor: Vendor) -> Vec<PathBuf> {
    let mut names = vec![];
    for gpu in bound(facts, vendor) {
        names.extend(facts.render(&gpu.address).map(str::to_owned));
        names.extend(
            facts.kfd.iter().filter(|k| k.address == gpu.address).map(|k| format!("renderD{}", k.render)),
        );
    }
    names.sort();
    names.dedup();
    names.into_iter().map(|n| PathBuf::from("/dev/dri").join(n)).collect()
}

/// Those that are there: a container that has some of its host's GPUs has what it was given.
fn given(facts: &Facts, vendor: Vendor) -> Vec<PathBuf> {
    renders(facts, vendor).into_iter().filter(|n| facts.node(n).is_some()).collect()
}

fn nodes(facts: &Facts, vendor: Vendor) -> Checked {
    let mut wanted = renders(facts, vendor);
    if facts.of(vendor).next().is_none() {
        wanted.extend(facts.specs(vendor).flat_map(|c| c.nodes.clone()));
    }
    let here = wanted.iter().filter(|p| facts.node(p).is_some()).count();
    if here > 0 {
        return Ok(match facts.in_container() && here < wanted.len() {
            true => format!("{here} of the host's {} are passed on", wanted.len()),
            false => format!("{here} in /dev/dri"),
        });
    }
    if wanted.is_empty() {
        wanted.push("/dev/dri/renderD128".into());
    }
    let module = format!("sudo modprobe {}", drivers(vendor)[0]);
    Err(fixes::nodes(facts, vendor, &wanted, &module))
}
