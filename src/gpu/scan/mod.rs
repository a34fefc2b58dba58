//! Reads [`Facts`] under a root directory. No device is opened, so no driver can hold this up.

mod amd;
mod cdi;
mod files;
mod machine;
mod names;
mod nvidia;
mod pci;

use super::facts::Facts;
use crate::cdi::edits::NodeStat;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Of a file of `/sys` or `/proc` this much is read; they are far shorter.
const LONGEST: u64 = 1 << 20;

/// A machine to look at.
pub struct Look<'a> {
    root: PathBuf,
    lstat: &'a dyn Fn(&Path) -> Option<NodeStat>,
}

impl Look<'static> {
    /// The machine whose root directory is given: `/`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), lstat: &crate::cdi::read::lstat }
    }
}

impl<'a> Look<'a> {
    /// As [`Look::at`], with another way to see device nodes: a test makes none.
    pub fn with(root: impl Into<PathBuf>, lstat: &'a dyn Fn(&Path) -> Option<NodeStat>) -> Self {
        Self { root: root.into(), lstat }
    }

    fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path.as_ref().strip_prefix("/").unwrap_or(path.as_ref()))
    }

    fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    /// The bytes of a regular file.
    fn bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.start(path, LONGEST)
    }

    /// The first bytes of a regular file.
    fn start(&self, path: impl AsRef<Path>, longest: u64) -> Option<Vec<u8>> {
        let path = self.path(path);
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
        let file = file.ok().filter(|f| f.metadata().is_ok_and(|m| m.is_file()))?;
        let mut bytes = vec![];
        // Some attributes fail halfway when a device is gone; what came is what there is.
        let _cut = file.take(longest).read_to_end(&mut bytes);
        Some(bytes)
    }

    /// The text of a regular file, without white space around it.
    fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        self.bytes(path).map(|b| String::from_utf8_lossy(&b).trim().to_owned())
    }

    /// A number, decimal or with `0x`.
    fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        number(&self.text(path)?)
    }

    /// Names in a directory, in order.
    fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// What a link says.
    fn link(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_link(self.path(path)).ok()?.into_os_string().into_string().ok()
    }

    /// The last part of a link's target: the way in which sysfs names drivers and devices.
    fn target(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    fn lstat(&self, path: &Path) -> Option<NodeStat> {
        (self.lstat)(&self.path(path))
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// `ubuntu 24.04`; empty where it is not told.
pub fn system(root: &crate::host::fs::Root) -> anyhow::Result<String> {
    Ok(machine::system(&Look::at(root.path("/"))).unwrap_or_default())
}

/// Looks at everything.
pub fn scan(look: &Look) -> Facts {
    let mut facts = Facts {
        machine: machine::kind(look),
        secure_boot: machine::secure_boot(look),
        system: machine::system(look),
        modules: machine::modules(look),
        pci: pci::gpus(look),
        nvidia: nvidia::module(look),
        nodes: nodes(look),
        drm: pci::drm(look),
        kfd: amd::kfd(look),
        generator: look.exists("/usr/bin/nvidia-ctk"),
        ..Facts::default()
    };
    facts.files = files::driver(look, facts.nvidia.version.as_deref());
    facts.cdi = cdi::files(look);
    for path in facts.cdi.iter().flat_map(|c| &c.nodes) {
        if let Some(stat) = look.lstat(path) {
            facts.nodes.entry(path.clone()).or_insert(stat);
        }
    }
    facts
}

/// Nodes of GPUs.
fn nodes(look: &Look) -> BTreeMap<PathBuf, NodeStat> {
    let gpu = |name: &String| {
        name.starts_with("nvidia") || name.starts_with("nvhost") || ["kfd", "dxg", "nvmap"].contains(&&**name)
    };
    let mut paths: Vec<PathBuf> =
        look.names("/dev").into_iter().filter(gpu).map(|n| Path::new("/dev").join(n)).collect();
    for dir in ["/dev/dri", "/dev/nvidia-caps"] {
        paths.extend(look.names(dir).into_iter().map(|n| Path::new(dir).join(n)));
    }
    paths.into_iter().filter_map(|path| Some((path.clone(), look.lstat(&path)?))).collect()
}
