use super::*;
use crate::cdi::edits::NodeStat;
use crate::cdi::units::{Source, Wanted, gather};
use crate::oci::devices::{Driver, Edits, FORMAT as DEVICES};

/// A directory with a driver of three files, a socket and the hooks of NVIDIA's generator.
struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { dir: tempfile::tempdir().unwrap() };
        for name in ["libcuda.so.550.1", "nvidia-smi", "nvidia.icd"] {
            fs::write(machine.at(name), name).unwrap();
        }
        fs::write(machine.at("params"), "ResmanDebugLevel: 1\nModifyDeviceFiles: 1\n").unwrap();
        std::os::unix::net::UnixListener::bind(machine.at("socket")).unwrap();
        machine
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn trees(&self) -> Trees {
        Trees { params: self.at("params"), ..Trees::new(self.at("trees"), "/opt/gpu/runc") }
    }

    fn devices(&self) -> Devices {
        let mount = |name: &str, path: &str, options: &[&str]| Mount {
            host: self.at(name),
            path: path.into(),
            options: options.iter().map(|o| o.to_string()).collect(),
        };
        let edits = Edits {
            mounts: vec![
                mount("libcuda.so.550.1", "/usr/lib/gnu/libcuda.so.550.1", &["ro", "rbind"]),
                mount("nvidia-smi", "/usr/bin/nvidia-smi", &["ro", "rbind"]),
                mount("nvidia.icd", "/etc/OpenCL/vendors/nvidia.icd", &["rbind"]),
                mount("socket", "/run/socket", &["ro", "rbind", "noexec"]),
            ],
            hooks: [
                &["create-symlinks", "--link", "libcuda.so.550.1::/usr/lib/gnu/libcuda.so.1"][..],
                &["enable-cuda-compat", "--host-driver-version=550.1"],
                &["update-ldcache", "--folder", "/usr/lib/gnu", "--folder=/usr/lib/gnu"],
                &["disable-device-node-modification"],
                &["update-application-profile"],
                &["something-new"],
                &["update-ldcache", "--new-option"],
            ]
            .map(hook)
            .to_vec(),
            ..Edits::default()
        };
        let driver = Driver { version: None, cuda: None, edits };
        Devices { format: DEVICES, vendors: [(Vendor::Nvidia, driver)].into(), units: vec![] }
    }

    fn plan(&self, devices: &Devices) -> Plan {
        let text = fs::read(tree(devices).join("plan.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

fn hook(args: &[&str]) -> Hook {
    let args = [&["nvidia-cdi-hook"], args].concat();
    Hook {
        stage: "createContainer".into(),
        path: "/usr/bin/nvidia-cdi-hook".into(),
        args: args.iter().map(|a| a.to_string()).collect(),
        env: vec![],
        timeout: None,
    }
}

fn tree(devices: &Devices) -> PathBuf {
    devices.vendors[&Vendor::Nvidia].edits.mounts[0].host.parent().unwrap().into()
}

#[test]
fn one_mount_and_one_hook() {
    let machine = Machine::new();
    let made = machine.trees().equip(&machine.devices()).unwrap();
    let edits = &made.vendors[&Vendor::Nvidia].edits;
    let paths: Vec<_> = edits.mounts.iter().map(|m| m.path.to_str().unwrap()).collect();
    assert_eq!(
        paths,
        [MOUNT, "/etc/OpenCL/vendors/nvidia.icd", "/run/socket"],
        "what may be written, and sockets, stay"
    );
    let named: Vec<_> = edits.hooks.iter().map(|h| h.args[1].as_str()).collect();
    assert_eq!(
        named,
        ["gpu-hook", "something-new", "update-ldcache"],
        "what isn't known runs as the spec says"
    );
    assert_eq!(edits.hooks[0].args[..3], ["runc", "gpu-hook", "--tree"]);

    let plan = machine.plan(&made);
    let links: Vec<_> = plan.links.iter().map(|l| (l.target.as_str(), l.path.to_str().unwrap())).collect();
    assert_eq!(
        links,
        [
            ("/usr/lib/concourse-gpu/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi"),
            ("/usr/lib/concourse-gpu/usr/lib/gnu/libcuda.so.1", "/usr/lib/gnu/libcuda.so.1"),
        ]
    );
    assert_eq!(plan.compat.unwrap().driver.as_deref(), Some("550.1"));
    assert_eq!((plan.folders, plan.profile), (vec!["/usr/lib/gnu".into()], true));
    assert_eq!(plan.binds, [Path::new(PARAMS)]);
    let inside = |path: &str| edits.mounts[0].host.join(path);
    let params = fs::read_to_string(inside("proc/driver/nvidia/params")).unwrap();
    assert_eq!(params, "ResmanDebugLevel: 1\nModifyDeviceFiles: 0\n");
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_eq!(
        number(&inside("usr/lib/gnu/libcuda.so.1")),
        number(&machine.at("libcuda.so.550.1")),
        "a hard link"
    );
    for dir in [tree(&made), inside("usr/lib/gnu"), machine.at("trees")] {
        assert_eq!(fs::metadata(dir).unwrap().mode() & 0o777, 0o755, "for roots of user namespaces");
    }
}

#[test]
fn a_tree_for_each_driver() {
    let machine = Machine::new();
    let (trees, devices) = (machine.trees(), machine.devices());
    fs::create_dir_all(machine.at("trees/.new/root/left")).unwrap();
    let first = trees.equip(&devices).unwrap();
    let plan = tree(&first).join("plan.json");
    let made = fs::metadata(&plan).unwrap().ino();
    assert_eq!(trees.equip(&devices), Ok(first.clone()));
    assert_eq!(fs::metadata(&plan).unwrap().ino(), made, "made once");

    // As a package manager does it: a new file in the place of the old one.
    fs::write(machine.at("new"), "driver 560").unwrap();
    fs::rename(machine.at("new"), machine.at("libcuda.so.550.1")).unwrap();
    let second = trees.equip(&devices).unwrap();
    assert_ne!(tree(&second), tree(&first));
    let kept = fs::read_to_string(tree(&first).join("root/usr/lib/gnu/libcuda.so.550.1")).unwrap();
    assert_eq!(kept, "libcuda.so.550.1", "containers that run keep what they started with");

    fs::create_dir(machine.at("trees/.new")).unwrap();
    assert_eq!(trees.clean(&[&first, &second]).unwrap(), [machine.at("trees/.new")]);
    assert_eq!(trees.clean(&[&second]).unwrap(), [tree(&first)]);
    assert!(tree(&second).exists());
    assert_eq!(trees.clean(&[]).unwrap(), [tree(&second)]);
}

#[test]
fn a_tree_for_each_builder() {
    let work = Work { profile: true, ..Work::default() };
    assert_eq!(digest(BUILD, &work, None).unwrap(), digest(BUILD, &work, None).unwrap());
    assert_ne!(digest(BUILD, &work, None).unwrap(), digest(BUILD ^ 1, &work, None).unwrap());
    assert_ne!(hash(&[("a", b"one")]), hash(&[("a", b"One")]));
    // Whatever a source of the builder uses is one too, or data that is hashed by value.
    for (name, text) in BUILDER {
        for line in String::from_utf8_lossy(text).lines() {
            let used = line.strip_prefix("use super::").or(line.strip_prefix("use crate::oci::hook::"));
            let Some(used) = used.and_then(|used| used.split([':', ';']).next()) else { continue };
            let known = BUILDER.iter().any(|(name, _)| *name == used) || used == "known";
            assert!(known, "{name}.rs uses {used}.rs, which is not in BUILDER");
        }
    }
}

#[test]
fn where_there_is_no_tree() {
    let machine = Machine::new();
    fs::remove_file(machine.at("nvidia-smi")).unwrap();
    let why = machine.trees().equip(&machine.devices()).unwrap_err();
    assert!(
        why.contains("nvidia-smi of the CDI spec is not there") && why.contains("nvidia-ctk cdi generate"),
        "{why}"
    );
    assert!(!machine.at("trees").exists());

    let machine = Machine::new();
    fs::remove_file(machine.at("socket")).unwrap();
    let made = machine.trees().equip(&machine.devices()).unwrap();
    assert_eq!(
        made.vendors[&Vendor::Nvidia].edits.mounts.len(),
        2,
        "a service that doesn't run is no obstacle"
    );

    let none = Devices { format: DEVICES, vendors: [(Vendor::Amd, Driver::default())].into(), units: vec![] };
    assert_eq!(machine.trees().equip(&none), Ok(none));

    let machine = Machine::new();
    fs::write(machine.at("trees"), "a file").unwrap();
    machine.trees().equip(&machine.devices()).unwrap_err();
}

#[test]
fn hooks_of_real_specs_are_known() {
    let node = |_: &Path| Some(NodeStat { kind: 'c', major: 195, minor: 0, mode: 0o666, uid: 0, gid: 0 });
    for (name, text) in [
        ("default", include_str!("../../tests/cdi/a100x8-default.yaml")),
        ("1.14.6", include_str!("../../tests/cdi/a100x8-generator-1.14.6.yaml")),
        ("1.18.2", include_str!("../../tests/cdi/a100x8-generator-1.18.2.json")),
        ("mig", include_str!("../../tests/cdi/a100-mig-default.json")),
    ] {
        let source = Source { path: "/etc/cdi/n.yaml".into(), priority: 0, text: Ok(text.into()) };
        let mut devices = gather(&[source], &Wanted::default(), &node).devices;
        let driver = &mut devices.vendors.get_mut(&Vendor::Nvidia).unwrap().edits;
        let all = driver.mounts.len();
        let work = take(driver, &mut devices.units, Vendor::Nvidia, &|_| true).unwrap();
        assert_eq!(driver.hooks, [], "{name}");
        assert!(devices.units.iter().all(|u| u.edits.hooks.is_empty()), "{name}");
        assert_eq!(work.files.len() + driver.mounts.len(), all);
        assert!(driver.mounts.iter().all(|m| m.path.ends_with("socket")), "{name}");
        assert!(work.folders.iter().any(|f| f.ends_with("lib/x86_64-linux-gnu")), "{name}");
        let links = work.args.chunks(2).filter(|a| a[0] == "--link").count();
        assert_eq!(
            links,
            if name == "mig" { 12 } else { 16 },
            "{name}: by path, of card and renderD of each whole GPU"
        );
    }
}

#[test]
fn parameters_of_the_driver() {
    assert_eq!(params("ModifyDeviceFiles: 1\nX: 1\n").as_deref(), Some("ModifyDeviceFiles: 0\nX: 1\n"));
    assert_eq!(params("X: 1\nModifyDeviceFiles: 1").as_deref(), Some("X: 1\nModifyDeviceFiles: 0\n"));
    for text in ["", "ModifyDeviceFiles: 0\n", "ModifyDeviceFiles: 10\n", "XModifyDeviceFiles: 1\n"] {
        assert_eq!(params(text), None, "{text}");
    }
}

#[test]
fn mount_tables() {
    let table = "36 35 98:0 / / rw - ext4 /dev/vda rw\n\
        40 36 98:0 /var/lib/concourse/gpu/trees/ab12/root /run/x/rootfs/usr/lib/concourse-gpu ro - ext4 /dev/vda rw\n\
        41 36 98:1 /cd34/root /usr/lib/concourse-gpu ro - ext4 /dev/vdb rw\nshort\n";
    assert_eq!(trees_of(table), ["ab12", "cd34"]);
}
