//! Packages for GPUs, with a real apt and dpkg on a directory that stands for a machine. It takes root and a Debian.

#![allow(missing_docs)]

#[path = "packages/kit.rs"]
mod kit;

use concourse_ci_machine::packages::{Purpose, What, passes};
use kit::{Archive, Machine, able, silent_server};
use std::fs;
use std::time::{Duration, Instant};

/// As Ubuntu's are put together, with a newer version than the one that is needed.
fn ubuntu() -> Archive {
    let of = |version: &str| {
        [
            format!("libnvidia-compute-550 {version} nvidia-kernel-common-550 (= {version}), ocl-icd"),
            format!("nvidia-kernel-common-550 {version}"),
            format!("nvidia-utils-550 {version} libnvidia-compute-550 (= {version})"),
        ]
    };
    let all: Vec<String> = ["550.163.01-0ubuntu1", "550.170-0ubuntu1"].iter().flat_map(|v| of(v)).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).chain(["ocl-icd 2.3.1"]).collect();
    Archive::new(&all)
}

const WANTED: [&str; 4] = [
    "libnvidia-compute-550=550.163.01-0ubuntu1*",
    "nvidia-kernel-common-550=550.163.01-0ubuntu1*",
    "nvidia-utils-550=550.163.01-0ubuntu1*",
    "ocl-icd=2.3.1",
];

/// A machine that got its libraries from that archive; `None`: it can't be tried here.
fn with_libraries() -> Option<(Machine, Archive)> {
    let (machine, archive) = able().then(|| (Machine::new(), ubuntu()))?;
    machine.source(&archive.line());
    machine.libraries("550.163.01").unwrap();
    Some((machine, archive))
}

#[test]
fn libraries_come_follow_the_driver_and_go() {
    if !able() {
        return;
    }
    let (machine, archive) = (Machine::new(), ubuntu());
    machine.dpkg(&archive.deb("operators-own 1"));
    machine.source(&archive.line());
    machine.libraries("550.163.01").unwrap();
    let with_own = |mut wanted: Vec<&'static str>| {
        wanted.push("operators-own=1");
        wanted.sort_unstable();
        wanted
    };
    assert_eq!(machine.installed(), with_own(WANTED.to_vec()), "the newest would be 550.170");
    let ledger = machine.ledger();
    assert_eq!(ledger.packages.len(), 4);
    assert!(!ledger.packages["ocl-icd"].held && ledger.packages["nvidia-utils-550"].held);

    // What is there and does not help is said, and not installed for ever.
    let why = machine.libraries("550.163.01").unwrap_err();
    assert_eq!(
        why,
        "NVIDIA's libraries 550.163.01 is installed and not found by the charm: see gpu-diagnose"
    );

    // The host's driver is another one now.
    machine.libraries("550.170").unwrap();
    let newer: Vec<String> = WANTED.iter().map(|name| name.replace("550.163.01", "550.170")).collect();
    assert!(newer.iter().all(|name| machine.installed().contains(name)), "{:?}", machine.installed());
    machine.libraries("550.163.01").unwrap();
    assert_eq!(machine.installed(), with_own(WANTED.to_vec()), "and back");

    // Of what the operator has removed nothing is left to do, whether apt still knows it or not.
    machine.purge("nvidia-utils-550");
    machine.source("");
    machine.remove(&[Purpose::Libraries]).unwrap();
    assert_eq!(machine.installed(), ["operators-own=1"]);
    assert_eq!(machine.ledger(), Default::default());
    assert!(!machine.path("/var/lib/concourse/charm/packages.json").exists());
    assert_eq!(machine.traces(), Vec::<String>::new());
}

#[test]
fn nothing_of_the_operators_is_touched() {
    if !able() {
        return;
    }
    let (machine, archive) = (Machine::new(), ubuntu());
    machine.source(&archive.line());
    machine.dpkg(&Archive::new(&[]).deb("libnvidia-compute-550 550.120-0ubuntu1"));
    let why = machine.libraries("550.163.01").unwrap_err();
    assert_eq!(
        why,
        "NVIDIA's libraries 550.163.01 would exchange or remove libnvidia-compute-550, which the charm did not install: \
         install it yourself, see gpu-diagnose"
    );
    assert_eq!(machine.installed(), ["libnvidia-compute-550=550.120-0ubuntu1"]);
    assert_eq!(machine.ledger(), Default::default());

    machine.source("");
    let why = machine.order(What::Libraries("550.163.01".into()), Some(archive.repository())).unwrap_err();
    assert!(why.contains(" would exchange or remove libnvidia-compute-550"), "{why}");
    assert_eq!(machine.traces(), Vec::<String>::new(), "a repository for nothing");
}

#[test]
fn what_somebody_else_needs_stays_and_is_theirs() {
    let Some((machine, archive)) = with_libraries() else { return };
    machine.dpkg(&archive.deb("operators-own 1 nvidia-kernel-common-550"));
    machine.remove(&[Purpose::Libraries]).unwrap();
    let left = ["nvidia-kernel-common-550=550.163.01-0ubuntu1", "operators-own=1"];
    assert_eq!(machine.installed(), left, "and no longer held");
    assert_eq!(machine.ledger(), Default::default());
}

#[test]
fn nothing_is_exchanged_for_what_goes() {
    let Some((machine, archive)) = with_libraries() else { return };
    machine.dpkg(&archive.deb("operators-own 1 nvidia-kernel-common-550"));
    // apt would upgrade it to one that does without.
    archive.deb("operators-own 2");
    archive.publish();
    machine.update();
    machine.remove(&[Purpose::Libraries]).unwrap();
    let left = ["nvidia-kernel-common-550=550.163.01-0ubuntu1", "operators-own=1"];
    assert_eq!(machine.installed(), left);
}

#[test]
fn what_something_needs_one_of_stays() {
    let Some((machine, archive)) = with_libraries() else { return };
    machine.dpkg(&archive.deb("operators-own 1 nvidia-kernel-common-550 | ocl-icd"));
    machine.remove(&[Purpose::Libraries]).unwrap();
    assert_eq!(machine.installed(), ["ocl-icd=2.3.1", "operators-own=1"], "each is free, not both");
    assert_eq!(machine.ledger(), Default::default());
}

#[test]
fn what_no_source_has_is_named_for_a_mirror() {
    if !able() {
        return;
    }
    let (machine, archive) = (Machine::new(), ubuntu());
    let words = "No source of apt has libnvidia-compute-580 and nvidia-utils-580 580.65.06 (or the same with -server)";
    machine.source(&archive.line());
    assert_eq!(
        machine.libraries("580.65.06").unwrap_err(),
        format!("{words}: mirror it, or add a source that has it")
    );

    // Port 9 is discard, and nobody is there.
    machine.source("deb [trusted=yes] http://127.0.0.1:9/ /");
    let why = machine.libraries("580.65.06").unwrap_err();
    assert!(why.starts_with(&format!("{words} (a source of apt can't be reached (")), "{why}");

    let machine = Machine::new();
    machine.source(
        &archive
            .line()
            .replace(archive.path().join("key.gpg").to_str().unwrap(), ubuntu().path().to_str().unwrap()),
    );
    let why = machine.libraries("550.163.01").unwrap_err();
    assert!(why.contains("(a source of apt has no good signature ("), "{why}");
    assert_eq!(machine.installed(), Vec::<String>::new());
}

#[test]
fn nvidias_repository_is_the_last_resort_and_only_with_its_key() {
    if !able() {
        return;
    }
    let (machine, archive) = (Machine::new(), ubuntu());
    let order = |version: &str, repository| machine.order(What::Libraries(version.into()), Some(repository));
    let bad =
        concourse_ci_machine::packages::Repository { fingerprint: "0".repeat(40), ..archive.repository() };
    let why = order("550.163.01", bad).unwrap_err();
    assert!(why.contains("is not NVIDIA's, it has the fingerprint "), "{why}");
    assert_eq!(machine.traces(), Vec::<String>::new());
    let gone = concourse_ci_machine::packages::Repository {
        key_url: "http://127.0.0.1:9/key".into(),
        ..archive.repository()
    };
    let why = order("550.163.01", gone).unwrap_err();
    assert!(why.contains("(and http://127.0.0.1:9/key can't be had, "), "{why}");

    // The key is right, and the list was signed by another one.
    let other = ubuntu();
    fs::copy(other.path().join("InRelease"), archive.path().join("InRelease")).unwrap();
    let why = order("550.163.01", archive.repository()).unwrap_err();
    assert!(why.contains("can't be used, a source of apt has no good signature"), "{why}");
    assert_eq!(machine.traces(), Vec::<String>::new(), "what does not help does not stay");
    archive.publish();
    let why = order("580.65.06", archive.repository()).unwrap_err();
    assert!(why.contains("(nor has file:/"), "{why}");
    assert_eq!((machine.traces(), machine.installed()), (vec![], vec![]));

    order("550.163.01", archive.repository()).unwrap();
    assert_eq!(machine.installed(), WANTED);
    let ours =
        ["concourse-ci-machine-cuda", "concourse-ci-machine-cuda.gpg", "concourse-ci-machine-cuda.sources"];
    assert_eq!(machine.traces(), ours);
    machine.remove(&[Purpose::Libraries]).unwrap();
    assert_eq!((machine.traces(), machine.installed()), (vec![], vec![]));
}

#[test]
fn a_repository_that_the_operator_has_is_theirs() {
    if !able() {
        return;
    }
    let (machine, archive) = (Machine::new(), ubuntu());
    let order = |version: &str| machine.order(What::Libraries(version.into()), Some(archive.repository()));
    machine.source(&archive.line());
    let why = order("580.65.06").unwrap_err();
    assert!(why.contains(" (file:/") && why.contains(" is one of them)"), "{why}");
    assert_eq!(machine.traces(), Vec::<String>::new());

    // They came to have it after the charm; with two keys for one address apt does nothing.
    machine.source("");
    order("550.163.01").unwrap();
    assert_eq!(machine.traces().len(), 3);
    machine.source(&archive.line());
    order("550.170").unwrap();
    assert_eq!(machine.traces(), Vec::<String>::new());
    assert!(machine.installed().contains(&"nvidia-utils-550=550.170-0ubuntu1*".to_owned()));

    let machine = Machine::new();
    machine.order(What::Libraries("550.163.01".into()), Some(archive.repository())).unwrap();
    machine.source(&archive.line());
    machine.remove(&[Purpose::Libraries]).unwrap();
    assert_eq!((machine.traces(), machine.installed()), (vec![], vec![]));

    // A hook was cut off before anything was in the ledger.
    let machine = Machine::new();
    machine.source(&archive.line());
    let list = archive.repository().text("/nowhere.gpg");
    fs::write(machine.path("/etc/apt/sources.list.d/concourse-ci-machine-cuda.sources"), list).unwrap();
    machine.libraries("550.163.01").unwrap();
    assert_eq!((machine.traces(), machine.installed()), (vec![], WANTED.map(str::to_owned).to_vec()));
}

#[test]
fn locks_are_waited_for_with_a_bound() {
    if !able() {
        return;
    }
    let (machine, archive) = (Machine::new(), ubuntu());
    machine.source(&archive.line());
    let lock = fs::File::create(machine.path("/var/lib/dpkg/lock-frontend")).unwrap();
    rustix::fs::fcntl_lock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let why = machine.libraries("550.163.01").unwrap_err();
    assert!(why.starts_with("Waiting for apt, which another program uses") && passes(&why), "{why}");
    assert_eq!((machine.installed(), machine.ledger()), (vec![], Default::default()));
    drop(lock);
    machine.libraries("550.163.01").unwrap();
    assert_eq!(machine.installed(), WANTED);

    let lock = fs::File::create(machine.path("/var/lib/dpkg/lock-frontend")).unwrap();
    rustix::fs::fcntl_lock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(passes(&machine.remove(&[Purpose::Libraries]).unwrap_err()));
    drop(lock);
    machine.remove(&[Purpose::Libraries]).unwrap();
    assert_eq!(machine.installed(), Vec::<String>::new());
}

#[test]
fn a_source_that_hangs_is_left() {
    if !able() {
        return;
    }
    let (mut machine, archive) = (Machine::new(), ubuntu());
    let hangs = format!("deb [trusted=yes] {} /", silent_server());
    machine.source(&hangs);
    let before = Instant::now();
    let why = machine.libraries("550.163.01").unwrap_err();
    assert!(
        why.starts_with("No source of apt has libnvidia-compute-550 ") && why.contains("can't be reached"),
        "{why}"
    );
    // One that gives apt no reason to give up is given up with it.
    machine.limits.stall = Duration::from_secs(300);
    machine.limits.update = Duration::from_secs(2);
    let why = machine.libraries("550.163.01").unwrap_err();
    assert!(why.contains("(apt did not end within 2 s at the lists of its sources)"), "{why}");
    assert!(before.elapsed() < Duration::from_secs(40), "{:?}", before.elapsed());

    // Beside one that works it costs its time, and no more.
    machine.limits = Machine::new().limits;
    machine.source(&format!("{hangs}\n{}", archive.line()));
    machine.libraries("550.163.01").unwrap();
    assert_eq!(machine.installed(), WANTED);
}

#[test]
fn what_was_interrupted_is_finished_first() {
    if !able() {
        return;
    }
    let (machine, archive) = (Machine::new(), ubuntu());
    machine.source(&archive.line());
    // As a dpkg leaves it that was killed.
    fs::write(machine.path("/var/lib/dpkg/updates/0000"), "").unwrap();
    machine.libraries("550.163.01").unwrap();
    assert_eq!(machine.installed(), WANTED);
}

#[test]
fn a_driver_is_chosen_from_what_there_is_for_the_kernel() {
    if !able() {
        return;
    }
    let machine = Machine::new();
    fs::create_dir_all(machine.path("/proc/sys/kernel")).unwrap();
    fs::write(machine.path("/proc/sys/kernel/osrelease"), "6.8.0-45-generic\n").unwrap();
    let archive = Archive::new(&[
        "nvidia-headless-no-dkms-580-server-open 580.65.06-0ubuntu1",
        "linux-modules-nvidia-580-server-open-6.8.0-45-generic 6.8.0-45.45",
        "linux-modules-nvidia-580-server-open-generic 6.8.0-45.45 linux-modules-nvidia-580-server-open-6.8.0-45-generic",
        "nvidia-utils-580-server 580.65.06-0ubuntu1",
        "linux-image-generic 6.8.0-45.45",
    ]);
    machine.source(&archive.line());
    machine.dpkg(&archive.deb("linux-image-generic 6.8.0-45.45"));
    let order = |branch: Option<&str>| {
        let branch = branch.map(|text| text.parse().unwrap());
        machine.order(What::Driver { branch, devices: vec![0x2335] }, None)
    };
    let why = order(Some("550-server")).unwrap_err();
    assert!(
        why.starts_with("No source of apt has linux-modules-nvidia-550-server-6.8.0-45-generic and "),
        "{why}"
    );
    order(None).unwrap();
    assert_eq!(machine.installed().len(), 5);
    assert_eq!(machine.ledger().driver_boot.as_deref(), Some("boot"));
    assert!(!machine.ledger().packages.contains_key("linux-image-generic"));
    let why = order(None).unwrap_err();
    assert!(why.ends_with("restart the machine, or see journalctl -k"), "{why}");
    machine.remove(&[Purpose::Driver]).unwrap();
    assert_eq!(machine.installed(), ["linux-image-generic=6.8.0-45.45"]);
    assert_eq!(machine.ledger(), Default::default());
}
