//! What mends a rung, by kind of machine (PURE).

use super::{Checked, Missing, Seen, missing};
use crate::gpu::facts::{Facts, Machine, brand};
use crate::gpu::generate::Origin;
use crate::gpu::inventory::State;
use crate::oci::devices::Vendor;
use std::path::{Path, PathBuf};

/// The line above commands for whoever has the kernel.
pub fn place(facts: &Facts) -> String {
    format!("# on {}", if facts.in_container() { "the host" } else { "this machine" })
}

/// Commands for whoever has the kernel: a container can't run them.
pub fn with_kernel(facts: &Facts, commands: &[&str]) -> Vec<String> {
    let host = facts.in_container().then(|| place(facts));
    host.into_iter().chain(commands.iter().map(|c| (*c).to_owned())).collect()
}

/// What a restart restarts.
pub fn whole(facts: &Facts) -> &'static str {
    match facts.machine {
        Machine::Lxd { .. } | Machine::Container { .. } => "the host",
        Machine::Wsl => "WSL",
        _ => "the machine",
    }
}

/// The command for it.
pub fn reboot(facts: &Facts) -> &'static str {
    if facts.machine == Machine::Wsl { "wsl --shutdown # on Windows" } else { "sudo reboot" }
}

/// The container's name in commands.
pub fn container(facts: &Facts) -> String {
    match &facts.machine {
        Machine::Lxd { name: Some(name), .. } | Machine::Vm { lxd: Some(name) } => name.clone(),
        _ => "CONTAINER".into(),
    }
}

/// What the charm's LXD profile calls a node: a device of that name takes the place of the profile's, and one of another
/// name would stand beside it.
fn lxd_name(node: &Path) -> String {
    node.file_name().unwrap_or_default().to_string_lossy().to_lowercase()
}

/// `lxc config device add` for a node of the host. Tasks are no root, so everybody may open it. `uid=0`, LXD's default, sets it
/// apart from the profile's, for LXD does nothing about a device that is like one it has, also where it has missed the node's
/// coming: of several changes in the host's `/dev` that it reads at once it acts on the first (5.0 to 6, driver_fanotify.go).
pub fn lxc_node(facts: &Facts, node: &Path) -> String {
    let (path, name, to) = (node.display(), lxd_name(node), container(facts));
    format!(
        "lxc config device add {to} {name} unix-char source={path} path={path} mode=0666 uid=0 required=false"
    )
}

/// The message and the commands for nodes that the container lacks, or that its host lacks.
pub fn nodes(facts: &Facts, vendor: Vendor, nodes: &[PathBuf], make: &str) -> Missing {
    let first = nodes.first().map(|n| n.display().to_string()).unwrap_or_default();
    let maker = brand(vendor);
    match &facts.machine {
        Machine::Lxd { .. } => {
            let mut fix = vec!["# on the LXD host; the charm's lxd-profile.yaml does the same".to_owned()];
            fix.extend(nodes.iter().map(|n| lxc_node(facts, n)));
            let to = container(facts);
            fix.push(format!("# of what LXD says exists already, first: lxc config device remove {to} NAME"));
            fix.push(format!("# where the host has no {first} either: {make}"));
            let message = format!(
                "{maker} GPU not passed on, {first} is missing: on the LXD host run the lxc commands of gpu-diagnose"
            );
            missing(message, fix)
        }
        Machine::Container { manager } => missing(
            format!("{maker} GPU not passed on, {first} is missing: give it to this container ({manager})"),
            nodes.iter().map(|n| format!("--device {}", n.display())).collect(),
        ),
        _ => missing(format!("{first} is missing: run {make}"), vec![make.to_owned()]),
    }
}

/// There is none on the bus. `None`: of any vendor.
pub fn no_gpu(facts: &Facts, vendor: Option<Vendor>) -> String {
    let what = vendor.map_or("GPU of NVIDIA, AMD or Intel".to_owned(), |v| format!("{} GPU", brand(v)));
    let cure = "use another machine, or set compute-runtime=none";
    match &facts.machine {
        Machine::Vm { .. } => {
            format!(
                "No {what} in this virtual machine: pass one on from its host, or set compute-runtime=none"
            )
        }
        Machine::Lxd { .. } | Machine::Container { .. } => {
            format!("No {what} in the host of this container: {cure}")
        }
        _ => format!("No {what} in this machine: {cure}"),
    }
}

pub fn absent(facts: &Facts, vendor: Vendor) -> Missing {
    let fix = match &facts.machine {
        // A gpu device takes one GPU into a virtual machine, and only as that starts.
        Machine::Vm { lxd: Some(name) } => vec![
            "# on the LXD host; ADDRESS is that of one GPU, as lspci shows it".into(),
            "lspci -D | grep -E 'VGA|3D|Display|accelerators'".into(),
            format!("lxc stop {name}"),
            format!("lxc config device add {name} gpu gpu pci=ADDRESS"),
            format!("lxc start {name}"),
        ],
        _ => vec![],
    };
    missing(no_gpu(facts, Some(vendor)), fix)
}

pub fn lost(facts: &Facts, address: &str) -> Missing {
    let whole = whole(facts);
    missing(
        format!(
            "GPU {address} has fallen off the bus: restart {whole}; if it stays away, switch it off and on"
        ),
        with_kernel(facts, &["sudo journalctl -k | grep -iE 'NVRM|Xid|amdgpu|AER'", reboot(facts)]),
    )
}

/// The GPU of a vendor that was given to a virtual machine.
pub fn vfio(facts: &Facts, vendor: Vendor) -> Option<Missing> {
    let gpu = facts.of(vendor).find(|p| !p.lost && p.driver.as_deref() == Some("vfio-pci"))?;
    let (address, whole) = (&gpu.address, whole(facts));
    let id = format!("{:04x}:{:04x}", gpu.vendor, gpu.device);
    // Most give the ids to vfio-pci as it loads; some an address to driverctl.
    let places = "/proc/cmdline /etc/default/grub /etc/default/grub.d /etc/modprobe.d /etc/initramfs-tools";
    let look = format!("grep -rs vfio {places} # take {id} out where it stands");
    let unset = format!("sudo driverctl unset-override {address} # where driverctl binds it");
    Some(missing(
        format!(
            "GPU {address} is kept for virtual machines (vfio-pci): free it as gpu-diagnose says and restart {whole}"
        ),
        with_kernel(facts, &[&look, &unset, "sudo update-initramfs -u && sudo update-grub", "sudo reboot"]),
    ))
}

/// Nodes that tasks can't open: they run as another user.
pub fn closed(facts: &Facts, nodes: &[&Path]) -> Missing {
    let first = nodes.first().map(|n| n.display().to_string()).unwrap_or_default();
    let fix = match &facts.machine {
        Machine::Lxd { .. } => {
            let to = container(facts);
            let mut lines = vec!["# on the LXD host".to_owned()];
            for node in nodes {
                let name = lxd_name(node);
                lines.push(format!(
                    "lxc config device set {to} {name} mode=0666 || {}",
                    lxc_node(facts, node)
                ));
            }
            lines
        }
        _ => nodes.iter().map(|n| format!("sudo chmod 0666 {}", n.display())).collect(),
    };
    missing(format!("Tasks can't open {first}: make it readable and writable for all, see gpu-diagnose"), fix)
}

/// Nodes that only root may open, with a group that no task could be put into.
pub fn open(facts: &Facts, nodes: &[PathBuf]) -> Checked {
    let for_root = |path: &&PathBuf| {
        facts.node(path).is_some_and(|s| s.mode & 0o006 != 0o006 && (s.gid == 0 || s.mode & 0o060 != 0o060))
    };
    let bad: Vec<&Path> = nodes.iter().filter(for_root).map(PathBuf::as_path).collect();
    match bad.is_empty() {
        true => Ok(format!("{} of them", nodes.len())),
        false => Err(closed(facts, &bad)),
    }
}

/// The data that the wrapper gets.
pub fn data(seen: &Seen, vendor: Vendor, fix: Vec<String>) -> Checked {
    let prepared = seen.prepared;
    let units = prepared.devices.units.iter().filter(|u| u.vendor == vendor).count();
    let stale = prepared.stale.get(&vendor);
    match prepared.origin.get(&vendor) {
        Some(Origin::Spec) => Ok(format!("{units} from a CDI spec")),
        Some(Origin::Own) => Ok(match stale {
            Some(why) => format!("{units} found without the CDI spec: {why}"),
            None => format!("{units} found without a CDI spec"),
        }),
        None if sick(seen, vendor).is_some() => {
            let why = short(&sick(seen, vendor).unwrap_or_default());
            Err(missing(format!("No {} GPU works, see gpu-info: {why}", brand(vendor)), vec![]))
        }
        None => {
            let why = stale.cloned().or_else(|| prepared.problems.first().cloned());
            let why = why.unwrap_or_else(|| "there is no CDI spec".into());
            let message = format!("No device data for {}, see gpu-diagnose: {}", brand(vendor), short(&why));
            Err(missing(message, fix))
        }
    }
}

/// Why no GPU of the vendor can be used though its driver works.
fn sick(seen: &Seen, vendor: Vendor) -> Option<String> {
    let mut own = seen.inventory.gpus.iter().filter(|g| g.vendor == vendor).peekable();
    own.peek()?;
    let why = own.try_fold(None, |first: Option<String>, gpu| match &gpu.state {
        State::Sick(why) => Some(first.or_else(|| Some(why.clone()))),
        State::Elsewhere(_) => Some(first),
        State::Ready | State::Ailing(_) => None,
    });
    why.flatten()
}

/// At most so much of a reason that a status stays readable.
pub fn short(text: &str) -> String {
    let cut: String = text.chars().take(100).collect();
    if cut.len() < text.len() { format!("{cut}…") } else { cut }
}
