use super::*;

fn offers(rows: &[(&str, &[&str])]) -> Offers {
    rows.iter()
        .map(|(name, versions)| ((*name).into(), versions.iter().map(|v| (*v).into()).collect()))
        .collect()
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn libraries_are_of_the_loaded_modules_version_or_none() {
    let ubuntu = offers(&[
        ("libnvidia-compute-550-server", &["550.163.01-0ubuntu0.24.04.1", "550.144.03-0ubuntu0.24.04.1"]),
        ("nvidia-utils-550-server", &["550.163.01-0ubuntu0.24.04.1", "550.144.03-0ubuntu0.24.04.1"]),
        ("libnvidia-compute-550", &["550.163.01-0ubuntu0.24.04.2", "550.120-0ubuntu0.24.04.1"]),
        ("nvidia-utils-550", &["550.163.01-0ubuntu0.24.04.2"]),
    ]);
    let chosen =
        |version: &str, offers: &Offers| libraries(version, offers).map(|choice| choice.packages.join(" "));
    let of = |version: &str| chosen(version, &ubuntu);
    let server = "libnvidia-compute-550-server=550.144.03-0ubuntu0.24.04.1 nvidia-utils-550-server=550.144.03-0ubuntu0.24.04.1";
    assert_eq!(of("550.144.03").as_deref(), Some(server), "not the newest");
    assert!(of("550.163.01").unwrap().contains("-server="), "servers' branch first");
    // nvidia-smi is welcome, and not needed.
    assert_eq!(of("550.120").as_deref(), Some("libnvidia-compute-550=550.120-0ubuntu0.24.04.1"));
    assert_eq!(of("550.163"), None, "a part of a version is another version");
    assert_eq!(of("580.65.06"), None);

    let nvidia = offers(&[("libnvidia-compute", &["610.10.01-1ubuntu1", "590.48.01-1ubuntu1"])]);
    assert_eq!(chosen("590.48.01", &nvidia).as_deref(), Some("libnvidia-compute=590.48.01-1ubuntu1"));
    assert_eq!(chosen("590.48", &nvidia), None);
    assert_eq!(library_names("550.163.01").len(), 5);
}

/// Ubuntu 24.04 with its own kernel, the one of 24.10 beside it, and on AWS.
fn archive() -> BTreeSet<String> {
    let mut all = names(&["nvidia-headless-no-dkms-550", "nvidia-headless-no-dkms-common"]);
    for branch in
        ["470-server", "550-server", "580-server", "580-server-open", "595-server", "595-server-open", "550"]
    {
        all.insert(format!("nvidia-headless-no-dkms-{branch}"));
        all.insert(format!("nvidia-utils-{}", branch.trim_end_matches("-open")));
        for kernel in ["6.8.0-45-generic", "generic", "aws"] {
            all.insert(format!("linux-modules-nvidia-{branch}-{kernel}"));
        }
    }
    // The newest branch is not yet built for every kernel.
    all.retain(|name| !(name.starts_with("linux-modules-nvidia-595-server") && name.ends_with("aws")));
    all
}

fn chosen(branch: &str, devices: &[u16], release: &str, flavours: &[&str]) -> String {
    let kernel = Kernel {
        release: release.into(),
        flavours: flavours.iter().map(|flavour| (*flavour).into()).collect(),
    };
    match driver(branch.parse().ok(), devices, &kernel, &archive()) {
        Ok(choice) => choice.packages.join(" "),
        Err(missing) => format!("no {missing}"),
    }
}

const H200: u16 = 0x2335;
const V100: u16 = 0x1db1;
const K80: u16 = 0x102d;
const B200: u16 = 0x2901;

#[test]
fn a_driver_fits_kernel_and_gpus() {
    let generic = |branch: &str, devices: &[u16]| chosen(branch, devices, "6.8.0-45-generic", &["generic"]);
    assert_eq!(
        generic("auto", &[H200]),
        "nvidia-headless-no-dkms-595-server-open linux-modules-nvidia-595-server-open-6.8.0-45-generic \
         linux-modules-nvidia-595-server-open-generic nvidia-utils-595-server"
    );
    // Open modules don't drive Volta, whose last branch is 580, nor does anything new drive Kepler.
    assert!(generic("auto", &[H200, V100]).starts_with("nvidia-headless-no-dkms-580-server linux-"));
    assert!(generic("auto", &[K80]).starts_with("nvidia-headless-no-dkms-470-server linux-"));
    // Closed ones don't drive Blackwell, also where the operator did not think of it.
    assert!(generic("580-server", &[B200]).starts_with("nvidia-headless-no-dkms-580-server-open "));
    assert!(
        generic("550", &[H200])
            .starts_with("nvidia-headless-no-dkms-550 linux-modules-nvidia-550-6.8.0-45-generic ")
    );
    assert_eq!(
        chosen("auto", &[H200], "6.8.0-1018-aws", &["aws"]),
        "nvidia-headless-no-dkms-580-server-open linux-modules-nvidia-580-server-open-aws nvidia-utils-580-server"
    );
    let none = "no linux-modules-nvidia-NNN-server-6.17.1-custom and nvidia-headless-no-dkms-NNN-server";
    assert_eq!(chosen("auto", &[H200], "6.17.1-custom", &[]), none);
    assert!(
        generic("565-server", &[H200]).starts_with("no linux-modules-nvidia-565-server-6.8.0-45-generic")
    );
}
