//! Which packages: from what is needed and what the sources have (PURE).

use super::read::Offers;
use crate::parse::DriverBranch;
use std::collections::BTreeSet;

/// Packages for one call of apt.
#[derive(Debug, PartialEq, Eq)]
pub struct Choice {
    /// `name` or `name=version`.
    pub packages: Vec<String>,
    /// Every package of NVIDIA's has to be of this version, dependencies too.
    pub version: Option<String>,
}

/// Libraries, and what goes with them, under the names of one maker: Ubuntu's for servers and for desktops, and NVIDIA's,
/// whose newer packages have no number. The first is needed, the others are welcome.
fn families(version: &str) -> [Vec<String>; 3] {
    let branch = version.split('.').next().unwrap_or_default();
    let ubuntu = |kind: &str| {
        vec![format!("libnvidia-compute-{branch}{kind}"), format!("nvidia-utils-{branch}{kind}")]
    };
    [ubuntu("-server"), ubuntu(""), vec!["libnvidia-compute".into()]]
}

/// The names to ask the sources for.
pub fn library_names(version: &str) -> Vec<String> {
    families(version).concat()
}

/// What a mirror has to have, for people.
pub fn library_words(version: &str) -> String {
    let [_, desktop, _] = families(version);
    format!("{} {version} (or the same with -server)", desktop.join(" and "))
}

/// Packages of exactly the loaded module's version; `None`: no source has them.
pub fn libraries(version: &str, offers: &Offers) -> Option<Choice> {
    // Of `550.163.01-0ubuntu0.24.04.1` the part before the revision is the driver's.
    let of = |name: &String| {
        let fits = |offer: &&String| {
            offer.rsplit_once('-').is_some_and(|(driver, _)| without_epoch(driver) == version)
        };
        offers.get(name)?.iter().find(fits).map(|offer| format!("{name}={offer}"))
    };
    families(version).iter().find_map(|family| {
        let (first, rest) = family.split_first()?;
        let packages = std::iter::once(of(first)?).chain(rest.iter().filter_map(of)).collect();
        Some(Choice { packages, version: Some(version.to_owned()) })
    })
}

fn without_epoch(version: &str) -> &str {
    version.split_once(':').map_or(version, |(_, rest)| rest)
}

/// The kernel that runs.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    /// `6.8.0-45-generic`
    pub release: String,
    /// Flavours whose newest kernel the machine follows: `generic`, `generic-hwe-24.04`, `aws`.
    pub flavours: Vec<String>,
}

/// How the names of packages begin that drivers are chosen from.
pub const DRIVER_NAMES: [&str; 3] = ["nvidia-headless-no-dkms-", "linux-modules-nvidia-", "nvidia-utils-"];

/// Which GPUs a driver is for, by the PCI ids of their chips.
mod chips {
    /// Turing is the first that NVIDIA's open kernel module drives.
    pub const OPEN: u16 = 0x1e00;
    /// Blackwell is the first that only the open one does.
    pub const ONLY_OPEN: u16 = 0x2900;
    /// Maxwell, Pascal and Volta end with branch 580, what is before them with 470.
    pub const LAST: [(u16, u32); 2] = [(0x1340, 470), (OPEN, 580)];
}

/// Ubuntu's signed modules for this kernel with their libraries, as `ubuntu-drivers install --gpgpu` takes them.
///
/// # Errors
/// What no source has.
pub fn driver(
    branch: Option<DriverBranch>,
    devices: &[u16],
    kernel: &Kernel,
    names: &BTreeSet<String>,
) -> Result<Choice, String> {
    let oldest = devices.iter().min().copied().unwrap_or(chips::OPEN);
    let newest = devices.iter().max().copied().unwrap_or(chips::OPEN);
    let kinds: &[bool] = match (oldest >= chips::OPEN, newest >= chips::ONLY_OPEN) {
        (true, true) => &[true],
        (true, false) => &[true, false],
        (false, _) => &[false],
    };
    let last = chips::LAST.iter().find(|(chip, _)| oldest < *chip).map(|(_, branch)| *branch);
    let candidates: Vec<DriverBranch> = match branch {
        Some(DriverBranch { open: false, .. }) if kinds == [true] => {
            branch.map(|b| b.opened(true)).into_iter().collect()
        }
        Some(branch) => vec![branch],
        None => {
            let mut numbers: Vec<u32> = names.iter().filter_map(|name| server_branch(name)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers.retain(|number| last.is_none_or(|last| *number <= last));
            let of = |number: u32| {
                kinds.iter().map(move |open| DriverBranch { number, server: true, open: *open })
            };
            numbers.into_iter().rev().flat_map(of).collect()
        }
    };
    candidates.into_iter().find_map(|branch| packages(branch, kernel, names)).ok_or_else(|| {
        let which = branch.map_or("NNN-server".to_owned(), |branch| branch.to_string());
        format!("linux-modules-nvidia-{which}-{} and nvidia-headless-no-dkms-{which}", kernel.release)
    })
}

/// The branch of a driver's package, as its name ends: of `nvidia-headless-no-dkms-550-server`.
pub fn branch_of(name: &str) -> Option<DriverBranch> {
    name.strip_prefix(DRIVER_NAMES[0])?.parse().ok()
}

/// `nvidia-headless-no-dkms-550-server`
fn server_branch(name: &str) -> Option<u32> {
    let rest = name.strip_prefix(DRIVER_NAMES[0])?;
    let (number, kind) = rest.split_once('-')?;
    number.parse().ok().filter(|_| kind == "server" || kind == "server-open")
}

fn packages(branch: DriverBranch, kernel: &Kernel, names: &BTreeSet<String>) -> Option<Choice> {
    let there = |name: &String| names.contains(name);
    let headless = Some(format!("nvidia-headless-no-dkms-{branch}")).filter(there)?;
    let modules = |kernel: &str| Some(format!("linux-modules-nvidia-{branch}-{kernel}")).filter(there);
    // The one for the kernel that runs, and the one that goes with its upgrades.
    let mut chosen: Vec<String> = modules(&kernel.release).into_iter().collect();
    chosen.extend(kernel.flavours.iter().filter_map(|flavour| modules(flavour)));
    if chosen.is_empty() {
        return None;
    }
    chosen.insert(0, headless);
    chosen.extend(Some(format!("nvidia-utils-{}", branch.opened(false))).filter(there));
    Some(Choice { packages: chosen, version: None })
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
