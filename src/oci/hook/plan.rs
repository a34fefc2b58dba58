//! What the hook does in each container, decided once per driver: `plan.json` of a driver tree. One type for the charm,
//! which writes it, and the hook, which reads it (PURE).

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::str::FromStr;

/// The format that this program writes, and the only one that it reads.
pub const FORMAT: u32 = 1;

/// Where a container has the driver tree.
pub const MOUNT: &str = "/usr/lib/concourse-gpu";

/// The plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// See [`FORMAT`].
    pub format: u32,
    /// Links in the container: driver files to the tree, and those that NVIDIA's `create-symlinks` makes.
    pub links: Vec<Link>,
    /// The driver's entries of `ld.so.cache`.
    pub libraries: Vec<Library>,
    /// Directories of the container that hold them, for `ldconfig` and musl.
    pub folders: Vec<PathBuf>,
    /// Whether and how to choose CUDA's forward compatibility libraries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compat: Option<Compat>,
    /// Files of proc that are covered by the file of the same path in the tree.
    pub binds: Vec<PathBuf>,
    /// Whether EGL is told which GPUs there are.
    pub profile: bool,
}

/// A symbolic link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Link {
    /// What it says.
    pub target: String,
    /// Where it is: absolute, in the container.
    pub path: PathBuf,
}

impl FromStr for Link {
    type Err = String;

    /// `TARGET::PATH`, as NVIDIA's hook takes it.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once("::") {
            Some((target, path)) if !target.is_empty() && path.starts_with('/') && !path.contains("::") => {
                Ok(Self { target: target.into(), path: path.into() })
            }
            _ => Err(format!("{text:?} is no link; write TARGET::/PATH")),
        }
    }
}

/// A shared library, as `ld.so.cache` knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Library {
    /// By which programs ask for it: `libcuda.so.1`.
    pub name: String,
    /// Where the container has it.
    pub path: String,
    /// Kind of the library: architecture and C library.
    pub flags: u32,
}

/// NVIDIA's `enable-cuda-compat`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compat {
    /// Version of the worker's driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The newest CUDA that it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// Directory of the image that has the libraries.
    pub folder: PathBuf,
}
