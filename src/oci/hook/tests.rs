use super::plan::{Compat, Library, MOUNT};
use super::*;
use crate::oci::hook::compat::is_better;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::symlink;

/// A directory that plays an image, with one beside it that nothing may reach.
struct Image {
    _dir: tempfile::TempDir,
    root: PathBuf,
    outside: PathBuf,
}

impl Image {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        for path in [&root, &outside] {
            fs::create_dir(path).unwrap();
        }
        Self { _dir: dir, root, outside }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn file(&self, path: &str, content: &[u8]) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), content).unwrap();
    }

    fn work(&self, plan: &Plan) -> Result<(), String> {
        work::all(&Root::open(&self.root).unwrap(), plan, &[], &[])
    }

    fn outside_is_empty(&self) -> bool {
        fs::read_dir(&self.outside).unwrap().next().is_none()
    }

    /// Every path with what is there, and when it was made.
    fn picture(&self) -> Vec<String> {
        fn walk(dir: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let (path, stat) = (entry.path(), entry.metadata().unwrap());
                let link = fs::read_link(&path).ok();
                found.push(format!("{path:?} {link:?} {:?}", stat.modified().unwrap()));
                if stat.is_dir() {
                    walk(&path, found);
                }
            }
        }
        let mut found = vec![];
        walk(&self.root, &mut found);
        found.sort();
        found
    }
}

fn link(target: &str, path: &str) -> Link {
    Link { target: target.into(), path: path.into() }
}

fn plan() -> Plan {
    Plan {
        format: plan::FORMAT,
        links: vec![
            link(&format!("{MOUNT}/usr/lib/gnu/libcuda.so.550.1"), "/usr/lib/gnu/libcuda.so.550.1"),
            link("libcuda.so.550.1", "/usr/lib/gnu/libcuda.so.1"),
            link(&format!("{MOUNT}/usr/bin/nvidia-smi"), "/usr/bin/nvidia-smi"),
        ],
        libraries: vec![Library {
            name: "libcuda.so.1".into(),
            path: "/usr/lib/gnu/libcuda.so.1".into(),
            flags: 0x303,
        }],
        folders: vec!["/usr/lib/gnu".into()],
        ..Plan::default()
    }
}

#[test]
fn an_empty_image() {
    let image = Image::new();
    image.work(&plan()).unwrap();
    let read = |path| fs::read_link(image.at(path)).unwrap();
    assert_eq!(read("/usr/lib/gnu/libcuda.so.1"), Path::new("libcuda.so.550.1"));
    assert_eq!(read("/usr/bin/nvidia-smi"), Path::new("/usr/lib/concourse-gpu/usr/bin/nvidia-smi"));
    let text = |path| fs::read_to_string(image.at(path)).unwrap();
    assert_eq!(text("/etc/ld.so.conf"), "include /etc/ld.so.conf.d/*.conf\n");
    assert_eq!(text("/etc/ld.so.conf.d/00-concourse-gpu.conf"), "/usr/lib/concourse-gpu/usr/lib/gnu\n");
    assert!(cache::Cache::decode(&fs::read(image.at("/etc/ld.so.cache")).unwrap()).is_some());
    assert!(!image.at("/etc/ld-musl-x86_64.path").exists());

    let before = image.picture();
    image.work(&plan()).unwrap();
    assert_eq!(image.picture(), before, "twice is once");
}

#[test]
fn what_an_image_has_of_it_is_replaced() {
    let image = Image::new();
    image.file("/usr/lib/gnu/libcuda.so.550.1", b"the image's own");
    fs::create_dir_all(image.at("/usr/lib/gnu")).unwrap();
    symlink("/elsewhere/libcuda.so.535", image.at("/usr/lib/gnu/libcuda.so.1")).unwrap();
    image.file("/etc/ld.so.conf", b"# mine\n");
    image.file("/etc/ld.so.cache", b"not a cache");
    image.work(&plan()).unwrap();
    assert_eq!(fs::read_link(image.at("/usr/lib/gnu/libcuda.so.1")).unwrap(), Path::new("libcuda.so.550.1"));
    assert!(image.at("/usr/lib/gnu/libcuda.so.550.1").is_symlink());
    assert_eq!(fs::read_to_string(image.at("/etc/ld.so.conf")).unwrap(), "# mine\n");
    assert!(cache::Cache::decode(&fs::read(image.at("/etc/ld.so.cache")).unwrap()).is_some());
}

#[test]
fn alpine() {
    let image = Image::new();
    image.file("/etc/alpine-release", b"3.22.0\n");
    image.work(&plan()).unwrap();
    let path = format!("/etc/ld-musl-{}.path", std::env::consts::ARCH);
    let text = || fs::read_to_string(image.at(&path)).unwrap();
    assert_eq!(text(), "/lib:/usr/local/lib:/usr/lib\n/usr/lib/gnu\n");
    image.work(&plan()).unwrap();
    assert_eq!(text(), "/lib:/usr/local/lib:/usr/lib\n/usr/lib/gnu\n");
}

#[test]
fn a_hostile_image_reaches_nothing() {
    type Trap = fn(&Image);
    let traps: &[Trap] = &[
        |i| symlink(&i.outside, i.at("/etc")).unwrap(),
        |i| symlink("../outside", i.at("/etc")).unwrap(),
        |i| symlink("../../../../../../../../../..", i.at("/etc")).unwrap(),
        |i| symlink(&i.outside, i.at("/usr")).unwrap(),
        |i| symlink(format!("/proc/self/cwd{}", i.outside.display()), i.at("/etc")).unwrap(),
        |i| {
            fs::create_dir_all(i.at("/etc")).unwrap();
            symlink(&i.outside, i.at("/etc/ld.so.conf.d")).unwrap();
            symlink(i.outside.join("cache"), i.at("/etc/ld.so.cache")).unwrap();
            symlink(i.outside.join("conf"), i.at("/etc/ld.so.conf")).unwrap();
        },
        |i| {
            fs::create_dir_all(i.at("/etc/ld.so.conf.d")).unwrap();
            symlink(i.outside.join("x"), i.at("/etc/ld.so.conf.d/00-concourse-gpu.conf")).unwrap();
            symlink(i.outside.join("y"), i.at("/etc/.ld.so.cache.concourse-gpu")).unwrap();
        },
        |i| {
            fs::create_dir_all(i.at("/usr/lib")).unwrap();
            symlink("/usr/lib/gnu", i.at("/usr/lib/gnu")).unwrap();
        },
    ];
    let mut done = 0;
    for (number, trap) in traps.iter().enumerate() {
        let image = Image::new();
        trap(&image);
        // Some images can be served, inside; others end in a sentence.
        match image.work(&plan()) {
            Ok(()) => done += 1,
            Err(why) => assert!(why.contains("in the image"), "{number}: {why}"),
        }
        assert!(image.outside_is_empty(), "trap {number} led out");
    }
    assert!(done >= 2, "{done}");
}

#[test]
fn magic_links_of_proc_are_no_way_out() {
    let root = Root::open(Path::new("/")).err();
    assert_eq!(root, Some(nix::errno::Errno::EINVAL), "the machine's own root is nobody's container");
    let proc = Root::open(Path::new("/proc/self")).unwrap();
    assert!(!proc.has(Path::new("/root/etc/passwd")) && !proc.has(Path::new("/cwd")));
    assert!(proc.has(Path::new("/status")));
}

#[test]
fn what_is_no_file_is_not_opened() {
    let image = Image::new();
    fs::create_dir_all(image.at("/etc")).unwrap();
    nix::unistd::mkfifo(&image.at("/etc/ld.so.cache"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let why = image.work(&plan()).unwrap_err();
    assert_eq!(why, "/etc/ld.so.cache in the image is no file");
}

#[test]
fn links_of_units_that_are_there() {
    let image = Image::new();
    image.file("/dev/dri/renderD128", b"");
    let links = [
        link("../renderD128", "/dev/dri/by-path/pci-0000:07:00.0-render"),
        link("../renderD129", "/dev/dri/by-path/pci-0000:0f:00.0-render"),
    ];
    let modes = [(0o750, PathBuf::from("/dev/dri")), (0o755, "/dev/none".into())];
    work::all(&Root::open(&image.root).unwrap(), &Plan::default(), &links, &modes).unwrap();
    let names: Vec<_> =
        fs::read_dir(image.at("/dev/dri/by-path")).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(names, ["pci-0000:07:00.0-render"]);
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(image.at("/dev/dri")).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o750);
    assert!(!image.at("/etc").exists(), "a plan without libraries touches no cache");
}

#[test]
fn compatibility_is_decided_as_nvidia_does() {
    let note = |text: &str| (!text.is_empty()).then(|| serde_json::from_str(text).unwrap());
    let new = r#"{"Format":1,"CUDA Version":"13.0","Driver":[535,550,570],"Device":[1,7]}"#;
    for (header, version, driver, cuda, better) in [
        (new, "580.65.06", "550.163.01", "", true),
        (new, "580.65.06", "560.35.03", "", false), // a branch that it doesn't work on
        (new, "550.10.0", "550.163.01", "", false), // older
        (new, "580.65.06", "", "12.4", true),
        (new, "580.65.06", "", "13.0", false),
        (new, "580.65.06", "", "", false),
        ("", "580.65.06", "550.163.01", "", true), // without a note, by the major version
        ("", "550.200.0", "550.163.01", "", false),
        ("", "580.65.06", "550.163.01", "12.4", false),
        ("", "580.65.06", "", "", false),
    ] {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let compat =
            Compat { driver: some(driver), cuda: some(cuda), folder: "/usr/local/cuda/compat".into() };
        assert_eq!(is_better(&note(header), version, &compat), better, "{header} {version} {driver} {cuda}");
    }
}

#[test]
fn arguments() {
    let parse = |args: &[&str]| super::parse(&args.iter().map(OsString::from).collect::<Vec<_>>());
    let args = parse(&["--tree", "/t", "--link", "../a::/dev/b", "--mode", "755:/dev/dri"]).unwrap();
    assert_eq!(args.links, [link("../a", "/dev/b")]);
    assert_eq!(args.modes, [(0o755, "/dev/dri".into())]);
    for bad in [
        &["--tree"][..],
        &["--tree", "t"],
        &[],
        &["--tree", "/t", "--link", "x"],
        &["--x", "y"],
        &["--mode", "9:/"],
    ] {
        parse(bad).unwrap_err();
    }
}

proptest! {
    #[test]
    fn libraries_that_are_none(noise in prop::collection::vec(any::<u8>(), 0..600), elf in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let head: &[u8] = if elf { b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0" } else { b"" };
        fs::write(dir.path().join("libx.so.1"), [head, &noise].concat()).unwrap();
        let file = fs::File::open(dir.path().join("libx.so.1")).unwrap();
        if let Some(elf) = elf::Elf::read(&file) {
            let _ = (elf.soname(), elf.note(".note.cuda.fwd_compatibility"));
        }
        let _ = library::scan(dir.path(), "/x");
    }
}
