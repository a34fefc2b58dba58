//! What kind of machine it is.

use super::Look;
use crate::gpu::facts::Machine;
use std::collections::BTreeSet;

/// Makers of virtual machines, as the firmware names them; Xen and KVM are in `/sys/hypervisor` or the CPU's flags too.
const HYPERVISORS: [&str; 8] =
    ["QEMU", "VMware", "Xen", "innotek", "Google Compute Engine", "OpenStack", "Parallels", "KVM"];

pub fn kind(look: &Look) -> Machine {
    match manager(look).as_deref() {
        Some("lxc") => return Machine::Lxd { name: name(look), privileged: privileged(look) },
        Some("wsl") | None => {}
        Some(manager) => return Machine::Container { manager: manager.into() },
    }
    let kernel = look.text("/proc/version").unwrap_or_default().to_lowercase();
    if kernel.contains("microsoft") && (look.exists("/dev/dxg") || kernel.contains("wsl")) {
        return Machine::Wsl;
    }
    let tree = look.text("/proc/device-tree/compatible").unwrap_or_default();
    if tree.contains("nvidia,tegra") || look.exists("/etc/nv_tegra_release") {
        return Machine::Jetson;
    }
    if virtual_machine(look) {
        // An agent of LXD makes this directory in its virtual machines.
        return Machine::Vm { lxd: name(look).filter(|_| look.exists("/dev/lxd")) };
    }
    Machine::BareMetal
}

/// What systemd found, or what the first process was told by who made the container.
fn manager(look: &Look) -> Option<String> {
    let told = || {
        let environment = look.bytes("/proc/1/environ")?;
        let mut variables = environment.split(|b| *b == 0);
        let value = variables.find_map(|v| v.strip_prefix(b"container="))?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    look.text("/run/systemd/container").or_else(told).filter(|m| !m.is_empty())
}

fn name(look: &Look) -> Option<String> {
    let name = look.text("/proc/sys/kernel/hostname").or_else(|| look.text("/etc/hostname"))?;
    let word = |c: char| c.is_ascii_alphanumeric() || c == '-';
    // It goes into commands that people paste.
    let name = name.split('.').next().unwrap_or_default();
    (!name.is_empty() && name.len() <= 63 && name.chars().all(word)).then(|| name.to_owned())
}

/// Root of an unprivileged container is another user of the host.
fn privileged(look: &Look) -> bool {
    let map = look.text("/proc/self/uid_map").unwrap_or_default();
    let first: Vec<&str> = map.lines().next().unwrap_or_default().split_whitespace().collect();
    matches!(first.as_slice(), ["0", "0", _])
}

fn virtual_machine(look: &Look) -> bool {
    let dmi = |name: &str| look.text(format!("/sys/class/dmi/id/{name}")).unwrap_or_default();
    let (maker, product) = (dmi("sys_vendor"), dmi("product_name"));
    // Amazon's real machines have its name too.
    let cloud = maker == "Amazon EC2" && !product.contains("metal");
    let microsoft = maker == "Microsoft Corporation" && product == "Virtual Machine";
    let known = HYPERVISORS.iter().any(|h| maker.contains(h) || product.contains(h));
    let flag = || {
        let cpu = look.text("/proc/cpuinfo").unwrap_or_default();
        let flags = cpu.lines().find(|l| l.starts_with("flags")).unwrap_or_default();
        flags.split_whitespace().any(|f| f == "hypervisor")
    };
    cloud || microsoft || known || look.exists("/sys/hypervisor/type") || flag()
}

/// The variable holds four bytes of attributes, then the value.
pub fn secure_boot(look: &Look) -> Option<bool> {
    let path = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    look.bytes(path)?.get(4).map(|value| *value == 1)
}

pub fn system(look: &Look) -> Option<String> {
    let text = look.text("/etc/os-release").or_else(|| look.text("/usr/lib/os-release"))?;
    let value = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='));
        line.map(|v| v.trim_matches('"').to_owned())
    };
    Some(format!("{} {}", value("ID")?, value("VERSION_ID").unwrap_or_default()).trim().to_owned())
}

pub fn modules(look: &Look) -> BTreeSet<String> {
    let known = ["nvidia", "nvidia_uvm", "nouveau", "amdgpu", "i915", "xe", "nvgpu"];
    known.into_iter().filter(|m| look.exists(format!("/sys/module/{m}"))).map(str::to_owned).collect()
}
