//! Which packages GPUs need, and which the charm has added for nothing any more.

use super::gpu::{report, wanted};
use crate::install::Proxy;
use crate::oci::devices::Vendor;
use crate::packages::{Limits, Order, Purpose, Repository, What, branch_of};
use crate::parse::Secret;
use crate::world::World;
use sha2::{Digest, Sha256};

/// What is to be installed next; `None`: nothing is missing that packages would mend.
pub fn order(world: &World) -> Option<Order> {
    let config = world.config.as_ref()?;
    let lacks = &report(world)?.lacks;
    let driver = lacks.driver.as_ref().filter(|_| config.install_drivers && !waits_for_restart(world));
    let what = match (&lacks.libraries, driver) {
        (Some(version), _) => What::Libraries(version.clone()),
        (None, Some(devices)) => What::Driver { branch: config.driver_branch, devices: devices.clone() },
        (None, None) if lacks.generator && !world.machine.no_toolkit_for(&circumstances(world)) => {
            What::Toolkit
        }
        _ => return None,
    };
    let (system, arch) = (&world.machine.system, &world.machine.arch);
    let repository = match what {
        What::Libraries(_) => Repository::cuda(system, arch),
        What::Toolkit => Some(Repository::toolkit(arch)),
        // Ubuntu's signed modules, and nobody else's, load with Secure Boot.
        What::Driver { .. } => None,
    };
    let boot = world.machine.boot.clone();
    Some(Order { what, proxy: proxy(world), limits: Limits::default(), repository, boot })
}

fn proxy(world: &World) -> Proxy {
    let variables = world.config.iter().flat_map(|config| config.proxy.variables());
    let mut proxy = Proxy::default();
    for (name, value) in variables {
        let value = Some(value.expose().to_owned());
        match name {
            "http_proxy" => proxy.http = value,
            "https_proxy" => proxy.https = value,
            "no_proxy" => proxy.no = value,
            _ => {}
        }
    }
    proxy
}

/// What would have to change for another try to get the toolkit, which nobody waits for: the proxies, or the boot.
pub fn circumstances(world: &World) -> String {
    let variables = world.config.iter().flat_map(|config| config.proxy.variables());
    let all: Vec<(&str, Secret)> = variables.collect();
    let text: String = all.iter().map(|(name, value)| format!("{name}={}\n", value.expose())).collect();
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the ledger has for purposes that the options don't want.
pub fn unwanted(world: &World) -> Vec<Purpose> {
    let nvidia = wanted(world).is_some_and(|wanted| wanted.has(Vendor::Nvidia));
    let drivers = nvidia && world.config.as_ref().is_some_and(|config| config.install_drivers);
    let all = [(Purpose::Libraries, nvidia), (Purpose::Driver, drivers), (Purpose::Toolkit, nvidia)];
    let gone = all.into_iter().filter(|(purpose, wanted)| !wanted && world.machine.packages.has(*purpose));
    gone.map(|(purpose, _)| purpose).collect()
}

/// A driver was installed and did not load: nouveau had the GPU, or another kernel runs.
pub fn waits_for_restart(world: &World) -> bool {
    let ledger = &world.machine.packages;
    ledger.has(Purpose::Driver) && ledger.driver_boot.as_ref() == Some(&world.machine.boot)
}

/// What to do where the charm has installed a driver, and the option asks for another one since: the loaded one stays
/// until a restart, which the charm does not do, and two don't go together.
pub fn other_branch(world: &World) -> Option<String> {
    let wanted = world.config.as_ref().filter(|config| config.install_drivers)?.driver_branch?;
    let ledger = &world.machine.packages.packages;
    let drivers = ledger.iter().filter(|(_, entry)| entry.purpose == Purpose::Driver);
    let installed = drivers.filter_map(|(name, _)| branch_of(name)).next()?;
    // GPUs that only the open module drives get that of the same branch.
    (wanted != installed && wanted.opened(true) != installed).then(|| {
        format!(
            "nvidia-driver-branch={wanted}, and the charm has installed {installed}: to exchange it set \
             compute-runtime=none, restart the machine when its packages are gone, and set it back"
        )
    })
}

/// The sentence for the status, in place of the ladder's, which knows nothing of the charm's packages.
pub fn restart(world: &World) -> Option<String> {
    let lacks_driver = report(world).is_some_and(|report| report.lacks.driver.is_some());
    (lacks_driver && waits_for_restart(world))
        .then(|| "NVIDIA's driver is installed: restart the machine to load it".to_owned())
}
