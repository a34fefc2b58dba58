//! Machines as text: `gpu/trees/NAME.txt` becomes a directory, with device nodes that are only told of.
//!
//! | line | makes |
//! |---|---|
//! | `base NAME` | everything of another machine |
//! | `drop PATH` | nothing there and below, whatever the base has |
//! | `file PATH = TEXT` | a file; `\n` and `\t` are what they are in C |
//! | `hex PATH BYTES` | a file of bytes |
//! | `empty DIR NAME…` | empty files |
//! | `link PATH TARGET` | a link |
//! | `node PATH MAJOR:MINOR MODE UID:GID` | a character device, as `lstat` tells it |
//! | `pci ADDRESS VENDOR:DEVICE CLASS DRIVER` | a PCI device; driver `-` for none |
//! | `kfd NODE GFX_TARGET_VERSION LOCATION_ID RENDER_MINOR UNIQUE_ID BYTES` | a GPU in AMD's topology |
//! | `cdi PATH FIXTURE` | a CDI file of `tests/cdi`, and empty files and links for all that it has |
//! | `wanted VENDORS [UNITS]` | the options; else all three vendors and all units |
//! | `nvml JSON` | what NVML says; else nobody asked |

#![allow(dead_code)]

use concourse_ci_machine::cdi::edits::NodeStat;
use concourse_ci_machine::gpu::facts::Facts;
use concourse_ci_machine::gpu::said::Answer;
use concourse_ci_machine::gpu::scan::{Look, scan};
use concourse_ci_machine::gpu::wanted::{VENDORS, Wanted};
use concourse_ci_machine::oci::devices::Vendor;
use concourse_ci_machine::oci::policy::Access;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

enum Entry {
    File(Vec<u8>),
    Link(String),
}

pub struct Machine {
    pub dir: tempfile::TempDir,
    pub nodes: BTreeMap<PathBuf, NodeStat>,
    pub wanted: Wanted,
    pub answer: Answer,
}

struct Plan {
    entries: BTreeMap<String, Entry>,
    nodes: BTreeMap<PathBuf, NodeStat>,
    wanted: Wanted,
    answer: Answer,
}

pub fn trees() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu/trees");
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

impl Machine {
    pub fn load(name: &str) -> Self {
        let wanted =
            Wanted { vendors: VENDORS.to_vec(), units: None, access: Access::Shared, persistence: false };
        let mut plan =
            Plan { entries: BTreeMap::new(), nodes: BTreeMap::new(), wanted, answer: Answer::NotAsked };
        plan.read(name);
        let dir = tempfile::tempdir().unwrap();
        for (path, entry) in &plan.entries {
            let at = dir.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            match entry {
                Entry::File(bytes) => fs::write(at, bytes).unwrap(),
                Entry::Link(target) => std::os::unix::fs::symlink(target, at).unwrap(),
            }
        }
        // A directory lists a node's name; what it is, `lstat` says.
        for path in plan.nodes.keys() {
            let at = dir.path().join(path.strip_prefix("/").unwrap());
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, "").unwrap();
        }
        Self { dir, nodes: plan.nodes, wanted: plan.wanted, answer: plan.answer }
    }

    pub fn lstat(&self, path: &Path) -> Option<NodeStat> {
        let path = Path::new("/").join(path.strip_prefix(self.dir.path()).ok()?);
        self.nodes.get(&path).copied()
    }

    pub fn facts(&self) -> Facts {
        scan(&Look::with(self.dir.path(), &|path| self.lstat(path)))
    }
}

impl Plan {
    fn read(&mut self, name: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/gpu/trees/{name}.txt"));
        for line in fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}")).lines() {
            if !line.is_empty() && !line.starts_with('#') {
                self.line(line).unwrap_or_else(|| panic!("{name}: {line}"));
            }
        }
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ')?;
        let parts: Vec<&str> = rest.split(' ').collect();
        match word {
            "base" => self.read(rest),
            "drop" => {
                let below = |path: &str| path == rest || path.starts_with(&format!("{rest}/"));
                self.entries.retain(|path, _| !below(path));
                self.nodes.retain(|path, _| !below(&path.to_string_lossy()));
            }
            "file" => {
                let (path, text) = rest.split_once(" = ")?;
                self.file(path, &text.replace("\\n", "\n").replace("\\t", "\t"));
            }
            "hex" => {
                let byte = |at: usize| u8::from_str_radix(parts[1].get(at..at + 2)?, 16).ok();
                let bytes: Option<Vec<u8>> = (0..parts[1].len()).step_by(2).map(byte).collect();
                self.entries.insert(parts[0].into(), Entry::File(bytes?));
            }
            "empty" => parts[1..].iter().for_each(|name| self.file(&format!("{}/{name}", parts[0]), "")),
            "link" => _ = self.entries.insert(parts[0].into(), Entry::Link(parts[1].into())),
            "node" => {
                let pair = |text: &str| {
                    let (a, b) = text.split_once(':')?;
                    Some((a.parse().ok()?, b.parse().ok()?))
                };
                let ((major, minor), (uid, gid)) = (pair(parts[1])?, pair(parts[3])?);
                let mode = u32::from_str_radix(parts[2], 8).ok()?;
                self.nodes.insert(parts[0].into(), NodeStat { kind: 'c', major, minor, mode, uid, gid });
            }
            "pci" => self.pci(&parts)?,
            "kfd" => self.kfd(&parts),
            "cdi" => self.cdi(parts[0], parts[1]),
            "wanted" => {
                let vendor =
                    |name: &str| VENDORS.into_iter().find(|v| format!("{v:?}").to_lowercase() == name);
                self.wanted.vendors = parts[0].split(',').map(vendor).collect::<Option<Vec<Vendor>>>()?;
                self.wanted.units = parts.get(1).map(|ids| ids.split(',').map(str::to_owned).collect());
            }
            "nvml" => self.answer = serde_json::from_str(rest).unwrap_or_else(|e| panic!("{rest}: {e}")),
            _ => return None,
        }
        Some(())
    }

    fn file(&mut self, path: &str, text: &str) {
        self.entries.insert(path.into(), Entry::File(text.into()));
    }

    fn pci(&mut self, parts: &[&str]) -> Option<()> {
        let at = |name: &str| format!("/sys/bus/pci/devices/{}/{name}", parts[0]);
        let (vendor, device) = parts[1].split_once(':')?;
        self.file(&at("vendor"), &format!("0x{vendor}\n"));
        self.file(&at("device"), &format!("0x{device}\n"));
        self.file(&at("class"), &format!("0x{}\n", parts[2]));
        self.file(&at("numa_node"), "-1\n");
        self.entries.remove(&at("driver"));
        if parts[3] != "-" {
            let target = format!("../../../../bus/pci/drivers/{}", parts[3]);
            self.entries.insert(at("driver"), Entry::Link(target));
        }
        Some(())
    }

    fn kfd(&mut self, parts: &[&str]) {
        let [node, gfx, location, render, unique, bytes] = parts else { panic!("kfd {parts:?}") };
        let dir = format!("/sys/class/kfd/kfd/topology/nodes/{node}");
        let text = format!(
            "cpu_cores_count 0\nsimd_count 416\nvendor_id 4098\nlocation_id {location}\ndomain 0\n\
             drm_render_minor {render}\nunique_id {unique}\ngfx_target_version {gfx}\n"
        );
        self.file(&format!("{dir}/properties"), &text);
        self.file(&format!("{dir}/mem_banks/0/properties"), &format!("heap_type 1\nsize_in_bytes {bytes}\n"));
    }

    fn cdi(&mut self, path: &str, fixture: &str) {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cdi").join(fixture);
        let text = fs::read_to_string(from).unwrap();
        let spec: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
        for mount in spec["containerEdits"]["mounts"].as_sequence().into_iter().flatten() {
            self.file(mount["hostPath"].as_str().unwrap(), "");
        }
        // Links that it makes between libraries are those of the machine.
        for hook in spec["containerEdits"]["hooks"].as_sequence().into_iter().flatten() {
            for link in
                hook["args"].as_sequence().into_iter().flatten().filter_map(|a| a.as_str()?.split_once("::"))
            {
                if link.1.contains(".so") && !link.0.contains('/') {
                    self.entries.insert(link.1.into(), Entry::Link(link.0.into()));
                }
            }
        }
        self.file(path, &text);
    }
}
