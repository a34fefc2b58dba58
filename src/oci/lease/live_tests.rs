use super::*;
use std::collections::BTreeMap;
use tempfile::TempDir;

/// A machine of files: `/proc` and cgroups of version 1 or 2.
struct Fake {
    dir: TempDir,
    kernel: Kernel,
}

const ID: &str = "b1f0";

impl Fake {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (proc, cgroups) = (dir.path().join("proc"), dir.path().join("cgroup"));
        fs::create_dir_all(&cgroups).unwrap();
        Fake { dir, kernel: Kernel { proc, cgroups, now: 1_000_000, namespace: 7, bundles: vec![] } }
    }

    fn process(&self, pid: i32, start: u64, state: &str, threads: u32, cgroup: &str) {
        let dir = self.kernel.proc.join(pid.to_string());
        fs::create_dir_all(&dir).unwrap();
        let stat = format!("{pid} (a) b ( {state} 1 2 3 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 {start} 5 6");
        // `a) b (` is the name: what looks like fields may stand in it.
        fs::write(dir.join("stat"), stat.replace("( ", "(x) ")).unwrap();
        fs::write(dir.join("cgroup"), cgroup).unwrap();
    }

    fn group(&self, path: &str, pids: &str) -> PathBuf {
        let dir = self.kernel.cgroups.join(path);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cgroup.procs"), pids).unwrap();
        dir
    }

    fn bundle(&self, pid: &str) -> PathBuf {
        let bundle = self.dir.path().join(ID);
        fs::create_dir_all(&bundle).unwrap();
        fs::write(bundle.join("init.pid"), pid).unwrap();
        bundle
    }

    fn lease(&self, inside: Option<Inside>) -> Lease {
        Lease {
            id: ID.into(),
            bundle: self.dir.path().join(ID),
            units: vec!["0".into()],
            nodes: BTreeMap::new(),
            since: 1_000_000,
            movers: vec![],
            inside,
            suspect: false,
        }
    }
}

fn proc(pid: i32, start: u64) -> Proc {
    Proc { pid, start, namespace: 7 }
}

#[test]
fn a_process_is_its_number_and_its_start() {
    let fake = Fake::new();
    fake.process(10, 500, "S", 1, "");
    assert!(fake.kernel.lives(&proc(10, 500)));
    assert!(!fake.kernel.lives(&proc(10, 499)), "the number was given again");
    assert!(!fake.kernel.lives(&proc(11, 500)));
    assert!(!fake.kernel.lives(&Proc { namespace: 8, ..proc(10, 500) }), "a number of another namespace");
    fake.process(12, 500, "Z", 1, "");
    assert!(!fake.kernel.lives(&proc(12, 500)), "a zombie");
    fake.process(13, 500, "Z", 2, "");
    assert!(fake.kernel.lives(&proc(13, 500)), "its first thread has ended, another goes on");
}

#[test]
fn this_process_lives() {
    let here = Kernel::here().unwrap();
    let me = here.process(i32::try_from(std::process::id()).unwrap()).unwrap().unwrap();
    assert!(here.lives(&me) && me.start > 0 && here.boot().unwrap().len() == 36 && here.now > 0);
}

#[test]
fn a_container_is_found_in_either_version() {
    for (listed, dir) in [
        ("0::/system.slice/garden/b1f0\n", "system.slice/garden/b1f0"),
        ("12:cpu,cpuacct:/garden/b1f0\n4:devices:/garden/b1f0\n0::/other\n", "devices/garden/b1f0"),
        ("4:devices:/\n3:cpu:/\n0::/garden/b1f0\n", "unified/garden/b1f0"),
        ("0::/system.slice/garden/b1f0/init/b1f0\n", "system.slice/garden/b1f0"),
        ("2:memory:/x/b1f0\n1:name=systemd:/\n", "memory/x/b1f0"),
    ] {
        let fake = Fake::new();
        fake.process(10, 500, "S", 1, listed);
        let dir = fake.group(dir, "10\n");
        let found = fake.kernel.inside(&fake.bundle("10\n"), ID).unwrap().unwrap();
        assert_eq!(found, Inside { init: proc(10, 500), cgroup: dir }, "{listed}");
        assert!(!fake.kernel.inhabited(&found));
    }
}

#[test]
fn a_number_that_was_given_again_is_no_init() {
    let fake = Fake::new();
    fake.process(10, 900, "S", 1, "0::/system.slice/ssh.service\n");
    fake.group("system.slice/ssh.service", "10\n");
    assert_eq!(fake.kernel.inside(&fake.bundle("10"), ID).unwrap(), None);
    for broken in ["", "x", "11"] {
        assert_eq!(fake.kernel.inside(&fake.bundle(broken), ID).unwrap(), None);
    }
}

#[test]
fn whoever_is_inside_counts_but_init() {
    let fake = Fake::new();
    for pid in [10, 11, 12] {
        fake.process(pid, 500, if pid == 12 { "Z" } else { "S" }, 1, "");
    }
    let inside = Inside { init: proc(10, 500), cgroup: fake.group("g/b1f0", "10\n") };
    let seen = |top: &str, below: Option<&str>| {
        fake.group("g/b1f0", top);
        below.map(|pids| fake.group("g/b1f0/docker/deep", pids));
        fake.kernel.inhabitants(&inside)
    };
    assert_eq!(seen("10\n", None), []);
    assert_eq!(seen("", None), []);
    assert_eq!(seen("10\n12\n", None), [], "a zombie uses nothing");
    assert_eq!(seen("10\n13\n", None), [], "gone since, and it stays so");
    assert_eq!(seen("10\n11\n", None), [Some(proc(11, 500))]);
    assert_eq!(seen("0\n", None), [None], "one that we can't see");
    assert_eq!(seen("10\n", Some("11\n")), [Some(proc(11, 500))], "deeper down");
    fs::remove_dir_all(&inside.cgroup).unwrap();
    assert_eq!(fake.kernel.inhabitants(&inside), []);
    // Nobody can say.
    fs::create_dir_all(inside.cgroup.join("cgroup.procs")).unwrap();
    assert_eq!(fake.kernel.inhabitants(&inside), [None]);
}

#[test]
fn what_cant_be_looked_at_lives() {
    let fake = Fake::new();
    fake.process(10, 500, "S", 1, "0::/garden/b1f0\n");
    let group = fake.group("garden/b1f0", "10\n11\n");
    let bundle = fake.bundle("10");
    let inside = Inside { init: proc(10, 500), cgroup: group.clone() };
    assert!(!fake.kernel.inhabited(&inside), "11 has ended");
    // No error that a process that has ended leaves: its file's place is below a file.
    fs::write(fake.kernel.proc.join("11"), "").unwrap();
    assert!(fake.kernel.lives(&proc(11, 1)));
    assert_eq!(fake.kernel.inhabitants(&inside), [None]);
    let stat = fake.kernel.proc.join("10/stat");
    fs::write(&stat, "10 (a").unwrap();
    assert!(fake.kernel.lives(&proc(10, 500)), "what nobody can read");
    fs::write(&stat, b"10 (\xff) S 1 2 3 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 500 5 6").unwrap();
    assert!(fake.kernel.lives(&proc(10, 500)), "a name of any bytes");
    assert!(!fake.kernel.lives(&proc(10, 501)));
    fs::remove_file(bundle.join("init.pid")).unwrap();
    assert!(!fake.lease(None).valid(&fake.kernel));
    fs::create_dir(bundle.join("init.pid")).unwrap();
    assert!(fake.lease(None).valid(&fake.kernel), "nobody can say whether it has an init");
    assert!(below(&group.join("cgroup.procs")).is_err_and(|e| !is_gone(&e)));
    assert!(below(&group.join("none")).is_err_and(|e| is_gone(&e)));
}

#[test]
fn a_container_of_another_worker_is_seen_by_its_name_here() {
    let mut fake = Fake::new();
    fake.process(10, 500, "S", 1, "0::/garden/b1f0\n");
    fake.group("garden/b1f0", "10\n");
    let here = fake.bundle("10");
    let noted = PathBuf::from("/nowhere/of/another/namespace").join(ID);
    let lease = Lease { bundle: noted.clone(), ..fake.lease(None) };
    assert!(!lease.valid(&fake.kernel));
    fake.kernel.bundles = vec!["/not/there".into(), here.parent().unwrap().to_owned()];
    assert!(lease.valid(&fake.kernel));
    assert_eq!(fake.kernel.seen(&noted), here);
    assert_eq!(fake.kernel.seen(&here), here);
    let gone = PathBuf::from("/nowhere/else");
    assert_eq!(fake.kernel.seen(&gone), gone);
    // Found again after the table was lost, and still in the making.
    fs::remove_file(here.join("init.pid")).unwrap();
    assert!(Lease { suspect: true, ..lease }.valid(&fake.kernel));
}

#[test]
fn a_new_container_waits_for_its_first_process() {
    let mut fake = Fake::new();
    fake.process(10, 500, "S", 1, "0::/garden/b1f0\n");
    let group = fake.group("garden/b1f0", "10\n");
    fake.bundle("10");
    let lease = fake.lease(None);
    assert!(lease.valid(&fake.kernel));
    let entered = fake.lease(Some(Inside { init: proc(10, 500), cgroup: group }));
    assert!(!entered.valid(&fake.kernel), "its processes have ended");
    // The clock that people set has no say.
    fake.kernel.now += FIRST_PROCESS - 1;
    assert!(lease.valid(&fake.kernel));
    fake.kernel.now += 1;
    assert!(!lease.valid(&fake.kernel), "none came");
    fake.kernel.now = 0;
    assert!(lease.valid(&fake.kernel));
    fs::remove_dir_all(fake.kernel.proc.join("10")).unwrap();
    assert!(!lease.valid(&fake.kernel), "its init has ended");
}
