//! What mends NVIDIA's driver: the kernel's part, and the libraries that must fit it (PURE).

use super::{Missing, fixes, missing};
use crate::gpu::facts::{Facts, Machine};

/// No driver of NVIDIA's has the GPU.
pub fn driver(facts: &Facts, nouveau: bool) -> Missing {
    let install = vec![
        fixes::place(facts),
        "sudo apt-get install ubuntu-drivers-common".to_owned(),
        "sudo ubuntu-drivers install --gpgpu".to_owned(),
        "sudo reboot".to_owned(),
    ];
    let own = !facts.in_container();
    let message = match (own, nouveau) {
        (false, true) => {
            "nouveau has the GPU on the host of this container: install NVIDIA's driver there and restart it"
        }
        (false, false) => {
            "The host of this container has no NVIDIA driver: run sudo ubuntu-drivers install --gpgpu there, and restart it"
        }
        (true, true) => {
            "nouveau has the GPU and can't compute: set install-drivers=true, or install NVIDIA's driver, and restart"
        }
        (true, false) if facts.modules.contains("nvidia") => {
            "NVIDIA's driver is loaded and has taken no GPU: it is too old or too new for this one, see journalctl -k"
        }
        // A module that isn't signed can't be told from none at all without trying to load it.
        (true, false) if facts.secure_boot == Some(true) => {
            return missing(
                "No NVIDIA driver is loaded, and Secure Boot takes signed ones only: set install-drivers=true, or see gpu-diagnose",
                secure_boot(install),
            );
        }
        (true, false) => {
            "No NVIDIA driver: set install-drivers=true, or run sudo ubuntu-drivers install --gpgpu, and restart"
        }
    };
    missing(message, install)
}

/// Ubuntu signs its prebuilt modules; those that DKMS built need a key that the firmware knows.
fn secure_boot(install: Vec<String>) -> Vec<String> {
    let mut fix = vec![
        "# Ubuntu's prebuilt modules are signed".to_owned(),
        "sudo modprobe nvidia # Key was rejected by service: it is not signed".to_owned(),
    ];
    fix.extend(install);
    fix.push(
        "# a driver that DKMS built: enrol its key, and confirm it on the console at the restart".into(),
    );
    fix.push("sudo mokutil --import /var/lib/shim-signed/mok/MOK.der".into());
    fix
}

/// Commands that install what programs need of the driver: of the loaded module's version, and where that can't be
/// seen, with the driver.
pub fn libraries(facts: &Facts) -> Vec<String> {
    if facts.machine == Machine::Wsl {
        return windows();
    }
    let Some(version) = &facts.nvidia.version else {
        return vec![fixes::place(facts), "sudo ubuntu-drivers install --gpgpu".into()];
    };
    let branch = version.split('.').next().unwrap_or_default();
    // Ubuntu has each branch for desktops and for servers; one of the two has the module's version.
    let packages = |kind: &str| {
        let pin = |p: &str| format!("'{p}-{branch}{kind}={version}-*'");
        format!("sudo apt-get install {} {}", pin("libnvidia-compute"), pin("nvidia-utils"))
    };
    vec![
        "# the charm does this itself, unless something of yours is in the way".into(),
        "sudo apt-get update".into(),
        format!("{} || {}", packages("-server"), packages("")),
    ]
}

/// Windows has WSL's driver, and brings the libraries with it.
pub fn windows() -> Vec<String> {
    vec![
        "# on Windows: update the GPU's driver, then WSL, and start it again".into(),
        "wsl --update".into(),
        "wsl --shutdown".into(),
    ]
}

/// What NVIDIA's module said of GPUs.
pub const LOG: &str = "sudo journalctl -k | grep -E 'NVRM|Xid'";

/// Where the reason stands.
pub fn look(facts: &Facts) -> Vec<String> {
    std::iter::once("nvidia-smi".to_owned()).chain(fixes::with_kernel(facts, &[LOG])).collect()
}

/// MIG mode without a device. Of profiles, 0 alone is the same with all GPUs: the whole one.
pub fn no_instances(facts: &Facts) -> Missing {
    let on = if facts.in_container() { "on the host " } else { "" };
    missing(
        format!(
            "MIG mode is on and no MIG device is made: {on}run sudo nvidia-smi mig -cgi 0 -C for one, or see gpu-diagnose"
        ),
        fixes::with_kernel(
            facts,
            &[
                "sudo nvidia-smi mig -lgip # the profiles of this GPU, with their ids",
                "sudo nvidia-smi mig -cgi 0 -C # one device, as large as the GPU; several ids, with commas, are several",
                "sudo nvidia-smi -mig 0 # or whole GPUs again",
            ],
        ),
    )
}

/// Two versions: in a container the host's decides, elsewhere a restart loads the one that was installed.
pub fn mismatch(facts: &Facts, module: &str, found: &[&String]) -> Missing {
    if facts.machine == Machine::Wsl {
        let message = "NVIDIA's libraries are not of the driver that Windows runs: update the driver on Windows, and restart WSL";
        return missing(message, windows());
    }
    let has = found.first().map_or("others", |v| v.as_str());
    if facts.libraries_must_follow(module, found) {
        let driver = if facts.in_container() { "the host's driver" } else { "the driver" };
        let message = format!(
            "NVIDIA's libraries are of {has} and {driver} of {module}: the charm installs {module}, or see gpu-diagnose"
        );
        return missing(message, libraries(facts));
    }
    let message = format!(
        "NVIDIA's driver was upgraded, {module} still runs and the libraries are of {has}: restart the machine"
    );
    missing(message, fixes::with_kernel(facts, &["sudo reboot"]))
}

/// The command that makes the nodes of the first MIG device; the others' are like it.
pub fn capabilities(facts: &Facts) -> String {
    let path = facts.nvidia.instances.first().map(|i| {
        let gi = format!("/proc/driver/nvidia/capabilities/gpu{}/mig/gi{}", i.minor, i.gi);
        format!("{gi}/access -f {gi}/ci{}/access", i.ci)
    });
    format!("sudo nvidia-modprobe -f {}", path.unwrap_or_default())
}

/// The command that writes a CDI spec.
pub fn spec(facts: &Facts) -> Vec<String> {
    match facts.machine {
        Machine::Jetson => vec![
            "sudo apt-get install nvidia-container-toolkit-base".into(),
            "sudo nvidia-ctk cdi generate --mode=csv --output=/etc/cdi/nvidia.yaml".into(),
        ],
        Machine::Wsl => vec!["sudo nvidia-ctk cdi generate --mode=wsl --output=/etc/cdi/nvidia.yaml".into()],
        _ => vec!["sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml".into()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_gets_no_driver() {
        let facts = |machine| Facts { machine, ..Facts::default() };
        let install = "sudo ubuntu-drivers install --gpgpu";
        let docker = facts(Machine::Container { manager: "docker".into() });
        assert_eq!(libraries(&docker), ["# on the host", install]);
        assert_eq!(libraries(&facts(Machine::BareMetal)), ["# on this machine", install]);
    }

    #[test]
    fn nothing_of_wsl_is_mended_by_apt() {
        let wsl = Facts { machine: Machine::Wsl, ..Facts::default() };
        let fix = mismatch(&wsl, "another version", &[]).fix;
        assert_eq!(fix, libraries(&wsl));
        assert!(fix.iter().all(|line| line.starts_with('#') || line.starts_with("wsl ")), "{fix:?}");
    }
}
