use super::*;

#[test]
fn what_apt_offers() {
    let text = " nvidia-utils-550 | 550.163.01-0ubuntu0.24.04.1 | http://archive.ubuntu.com/ubuntu noble-updates/restricted amd64 Packages
 nvidia-utils-550 | 550.120-0ubuntu0.24.04.1 | http://archive.ubuntu.com/ubuntu noble-security/restricted amd64 Packages
 nvidia-utils-550 | 550.120-0ubuntu0.24.04.1 | http://mirror/ubuntu noble-security/restricted amd64 Packages
";
    assert_eq!(offers(text)["nvidia-utils-550"], ["550.163.01-0ubuntu0.24.04.1", "550.120-0ubuntu0.24.04.1"]);
    assert!(offers("").is_empty());
}

#[test]
fn what_apt_would_do() {
    let text = "NOTE: This is only a simulation!
Remv libnvidia-compute-535 [535.1-1]
Purg nvidia-utils-535 [535.1-1]
Inst libssl3 [3.0.2] (3.0.13 Ubuntu:24.04/noble-updates [amd64]) []
Inst libnvidia-compute-550 (550.163.01-0ubuntu1 Ubuntu:24.04/noble-updates [amd64])
Inst nvidia-utils-550 (550.163.01-0ubuntu1)
Conf libnvidia-compute-550 (550.163.01-0ubuntu1 Ubuntu:24.04/noble-updates [amd64])
";
    let changes = Changes::parse(text);
    let new: Vec<_> = changes.new.iter().map(|(n, v)| format!("{n}={v}")).collect();
    assert_eq!(new, ["libnvidia-compute-550=550.163.01-0ubuntu1", "nvidia-utils-550=550.163.01-0ubuntu1"]);
    assert_eq!(
        changes.touched().collect::<Vec<_>>(),
        ["libssl3", "libnvidia-compute-535", "nvidia-utils-535"]
    );
    assert!(Changes::parse("nothing").is_empty());
    assert!(
        !Changes::parse("Conf libnvidia-compute-550 (550.163.01-0ubuntu1)").is_empty(),
        "half installed before"
    );
}

#[test]
fn what_is_installed() {
    let text = "ii  a 1\nhi  held 2\nrc  gone 3\nun  never \niU  half 4\niF  broken 5\n";
    assert_eq!(installed(text).keys().collect::<Vec<_>>(), ["a", "broken", "half", "held"]);
    let kernels = "ii linux-image-6.8.0-45-generic 1\nii linux-image-generic-hwe-24.04 1\nii linux-image-unsigned-generic 1\nii linux-image-aws 1\n";
    assert_eq!(flavours(&installed(kernels).into_keys().collect()), ["aws", "generic-hwe-24.04"]);
}

#[test]
fn why_apt_fails() {
    let rows: &[(&str, &str)] = &[
        (
            "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4711 (unattended-upgr)\nN: Be aware…",
            "apt, which another program uses (4711 (unattended-upgr)): nothing is to be done",
        ),
        (
            "E: dpkg was interrupted, you must manually run 'sudo dpkg --configure -a' to correct the problem.",
            "dpkg was interrupted: run sudo dpkg --configure -a",
        ),
        (
            "W: GPG error: http://m ./ InRelease: The following signatures couldn't be verified because the public key is not available: NO_PUBKEY F32F\nE: The repository 'http://m ./ InRelease' is not signed.",
            "a source of apt has no good signature (GPG error: http://m ./ InRelease: The following signatures couldn't be verified because the public key is not …): correct its key in /etc/apt",
        ),
        (
            "W: Failed to fetch http://nowhere/InRelease  Temporary failure resolving 'nowhere'\nW: Some index files failed to download.",
            "a source of apt can't be reached (Failed to fetch http://nowhere/InRelease Temporary failure resolving 'nowhere'): set http-proxy and https-proxy, or give the machine sources that it reaches",
        ),
        (
            "E: Failed to fetch http://m/a.deb  404  Not Found [IP: 1.2.3.4 80]",
            "a source of apt is not in order (Failed to fetch http://m/a.deb 404 Not Found [IP: 1.2.3.4 80]): correct the mirror, or try again later",
        ),
        (
            "E: You don't have enough free space in /var/cache/apt/archives/.",
            "the disk is full: make room in /var and /usr",
        ),
        (
            "The following packages have unmet dependencies:\n a : Depends: b but it is not installable\nE: Unable to correct problems, you have held broken packages.",
            "apt can't put it together (Unable to correct problems, you have held broken packages.): give the machine sources that have all of it, or run sudo apt-get install --fix-broken",
        ),
        (
            "E: Sub-process /usr/bin/dpkg returned an error code (1)",
            "apt says Sub-process /usr/bin/dpkg returned an error code (1): see /var/log/apt and journalctl",
        ),
    ];
    for (text, told) in rows {
        let (why, cure) = Failure::parse(text).told();
        assert_eq!(format!("{why}: {cure}"), *told);
    }
    assert!(Failure::parse(&format!("E: {}", "x".repeat(1000))).told().0.len() < 200);
}
