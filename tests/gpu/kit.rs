//! A machine with a driver that is none, and bundles for the real runc.

#![allow(dead_code)]

use concourse_ci_machine::cdi::edits::NodeStat;
use concourse_ci_machine::cdi::tree::Trees;
use concourse_ci_machine::cdi::units::{Source, Wanted, gather};
use concourse_ci_machine::oci::devices::{Devices, Edits, Vendor};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SPEC: &str = include_str!("../cdi/a100x8-default.yaml");

/// What the tests need of the machine; the error says what is missing.
pub struct Lab {
    /// Everything that is made.
    pub dir: tempfile::TempDir,
    /// A Debian: `debootstrap --variant=minbase bookworm DIR`.
    pub image: PathBuf,
    /// NVIDIA's own hook, for comparisons.
    pub theirs: Option<PathBuf>,
    hook: PathBuf,
    next: std::cell::Cell<u32>,
}

impl Lab {
    pub fn new(hook: &str) -> Result<Self, String> {
        if !nix::unistd::Uid::effective().is_root() {
            return Err("only root makes containers".into());
        }
        for (program, arg) in [("runc", "--version"), ("cc", "--version")] {
            Command::new(program).arg(arg).output().map_err(|e| format!("{program}: {e}"))?;
        }
        let image =
            std::env::var("GPU_IMAGE").map_err(|_| "GPU_IMAGE=DIR names no root of a Debian".to_owned())?;
        let theirs = std::env::var("NVIDIA_CDI_HOOK").ok().map(PathBuf::from);
        let dir = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir();
        let dir = dir.map_err(|e| e.to_string())?;
        Ok(Self { dir, image: image.into(), theirs, hook: hook.into(), next: 0.into() })
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    /// Makes the driver of the fixture, 48 files with sonames, and says what its spec says.
    pub fn driver(&self) -> Devices {
        let mut spec: Value = serde_yaml::from_str(SPEC).unwrap();
        let mut sonames = BTreeMap::new();
        for hook in spec["containerEdits"]["hooks"].as_array().unwrap() {
            for arg in hook["args"].as_array().unwrap() {
                if let Some((target, link)) = arg.as_str().and_then(|a| a.split_once("::")) {
                    let name = link.rsplit('/').next().unwrap();
                    if target.ends_with("550.163.01") && name.contains(".so.") {
                        sonames.insert(target.to_owned(), name.to_owned());
                    }
                }
            }
        }
        for mount in spec["containerEdits"]["mounts"].as_array_mut().unwrap() {
            let path = self.at(&format!("driver{}", mount["hostPath"].as_str().unwrap()));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if name == "socket" {
                std::mem::forget(UnixListener::bind(&path).unwrap());
            } else if name.contains(".so.") {
                let soname = sonames.get(&name).unwrap_or(&name);
                let flag = format!("-Wl,-soname,{soname}");
                let args = ["-shared", "-nostdlib", &flag, "-xc", "/dev/null", "-o"];
                assert!(Command::new("cc").args(args).arg(&path).status().unwrap().success());
            } else {
                fs::write(&path, format!("#!/bin/sh\necho this is {name}\n")).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            }
            mount["hostPath"] = json!(path);
        }
        let theirs = self.theirs.clone().unwrap_or("/usr/bin/nvidia-cdi-hook".into());
        let text = spec.to_string().replace("/usr/bin/nvidia-cdi-hook", theirs.to_str().unwrap());
        // The hook is known by its name.
        let source = Source { path: "/etc/cdi/nvidia.yaml".into(), priority: 0, text: Ok(text) };
        let found = gather(&[source], &Wanted::default(), &node);
        assert_eq!(found.problems, Vec::<String>::new());
        found.devices
    }

    pub fn trees(&self) -> Trees {
        Trees::new(self.at("trees"), &self.hook)
    }

    /// The image as root of a user namespace owns it.
    pub fn owned(&self, image: &Path) -> PathBuf {
        let owned = self.at("owned");
        assert!(Command::new("cp").arg("-aT").arg(image).arg(&owned).status().unwrap().success());
        let chown =
            Command::new("chown").args(["-R", "--from=0:0", "-h", "65535:65535"]).arg(&owned).status();
        assert!(chown.unwrap().success());
        owned
    }

    /// A bundle whose root is a fresh layer over `image`, with the edits in it.
    pub fn bundle(&self, image: &Path, edits: &[&Edits], args: &[&str], userns: bool) -> Bundle {
        let number = self.next.replace(self.next.get() + 1);
        let dir = self.at(&format!("bundle-{number}"));
        let [root, upper, work] = ["rootfs", "upper", "work"].map(|n| dir.join(n));
        for dir in [&root, &upper, &work] {
            fs::create_dir_all(dir).unwrap();
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let options =
            format!("lowerdir={},upperdir={},workdir={}", image.display(), upper.display(), work.display());
        nix::mount::mount(
            Some("overlay"),
            &root,
            Some("overlay"),
            nix::mount::MsFlags::empty(),
            Some(options.as_str()),
        )
        .unwrap();
        // Of this laboratory alone: several may be at work.
        let lab = self.dir.path().file_name().unwrap().to_str().unwrap().to_owned();
        let bundle = Bundle { id: format!("gpu{lab}-{number}"), dir };
        bundle.configure(edits, args, userns);
        bundle
    }
}

/// The nodes of the fixture's machine.
fn node(path: &Path) -> Option<NodeStat> {
    let (text, digits) = (path.to_str()?, path.to_str()?.trim_start_matches(|c: char| !c.is_ascii_digit()));
    let minor = digits.parse().unwrap_or(255);
    let (major, mode, gid) = if text.contains("/dri/") { (226, 0o660, 109) } else { (195, 0o666, 0) };
    Some(NodeStat { kind: 'c', major, minor, mode, uid: 0, gid })
}

/// What a container with these units gets.
pub fn edits<'a>(devices: &'a Devices, units: &[usize]) -> Vec<&'a Edits> {
    let of_units = units.iter().map(|at| &devices.units[*at].edits);
    [&devices.vendors[&Vendor::Nvidia].edits].into_iter().chain(of_units).collect()
}

/// A bundle; gone when dropped.
pub struct Bundle {
    id: String,
    dir: PathBuf,
}

impl Bundle {
    pub fn root(&self) -> PathBuf {
        self.dir.join("rootfs")
    }

    fn configure(&self, edits: &[&Edits], args: &[&str], userns: bool) {
        let path = self.dir.join("config.json");
        assert!(Command::new("runc").args(["spec", "-b"]).arg(&self.dir).status().unwrap().success());
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        config["process"]["terminal"] = json!(false);
        config["process"]["args"] = json!(args);
        config["root"]["readonly"] = json!(false);
        config["process"]["env"] =
            json!(["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]);
        config["hooks"] = json!({});
        config["linux"]["devices"] = json!([]);
        if userns {
            config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({"type": "user"}));
            // As Concourse: root is somebody else outside, all others are themselves.
            let map = json!([{"containerID": 0, "hostID": 65535, "size": 1}, {"containerID": 1, "hostID": 1, "size": 65534}]);
            config["linux"]["uidMappings"] = map.clone();
            config["linux"]["gidMappings"] = map;
        }
        for edits in edits {
            for m in &edits.mounts {
                let mount =
                    json!({"destination": m.path, "source": m.host, "type": "", "options": m.options});
                config["mounts"].as_array_mut().unwrap().push(mount);
            }
            for h in &edits.hooks {
                let hooks =
                    config["hooks"].as_object_mut().unwrap().entry(h.stage.clone()).or_insert(json!([]));
                let mut hook = json!({"path": h.path, "args": h.args, "env": h.env});
                if let Some(timeout) = h.timeout {
                    hook["timeout"] = json!(timeout);
                }
                hooks.as_array_mut().unwrap().push(hook);
            }
            // In a user namespace nodes are bound from the machine, which has none of these.
            for n in edits.nodes.iter().filter(|_| !userns) {
                let node = json!({"path": n.path, "type": "c", "major": n.major, "minor": n.minor, "fileMode": n.mode});
                config["linux"]["devices"].as_array_mut().unwrap().push(node);
            }
        }
        fs::write(&path, serde_json::to_vec(&config).unwrap()).unwrap();
    }

    pub fn runc(&self, verb: &str, args: &[&str]) -> Output {
        // The container keeps what it gets: a pipe would not end before it.
        let log = self.dir.join("out");
        let out = fs::File::create(&log).unwrap();
        let mut command = Command::new("runc");
        command.arg(verb).args(args).arg(&self.id).stdin(std::process::Stdio::null());
        let status = command.stdout(out.try_clone().unwrap()).stderr(out).status().unwrap();
        Output { status, stdout: fs::read(&log).unwrap(), stderr: vec![] }
    }

    /// Runs the container to its end: its output, or what runc says.
    pub fn run(&self) -> Result<String, String> {
        let out = self.runc("run", &["-b", self.dir.to_str().unwrap()]);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        if out.status.success() { Ok(text) } else { Err(text) }
    }

    pub fn create(&self) {
        let out = self.runc("create", &["-b", self.dir.to_str().unwrap()]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    }

    pub fn delete(&self) {
        self.runc("delete", &["--force"]);
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        self.delete();
        let _ = nix::mount::umount2(&self.root(), nix::mount::MntFlags::MNT_DETACH);
    }
}
