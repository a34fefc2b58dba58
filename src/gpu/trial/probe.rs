//! What a program in a container sees of GPUs. It runs inside, and may hang for as long as a driver does.

use super::{Cuda, Node, Seen};
use crate::gpu::said_by;
use crate::oci::request::VISIBLE;
use nix::sys::stat::{major, minor};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Nodes that each container has.
const USUAL: [&str; 8] = ["null", "zero", "full", "random", "urandom", "tty", "console", "ptmx"];

/// Looks at everything.
pub fn probe() -> Seen {
    let mut paths = vec![];
    list(Path::new("/dev"), &mut paths);
    paths.sort();
    let nodes: Vec<Node> = paths.into_iter().filter_map(node).collect();
    let env: BTreeMap<String, String> = VISIBLE
        .iter()
        .filter_map(|(_, name)| Some(((*name).to_owned(), std::env::var(name).ok()?)))
        .collect();
    let told = env.get(VISIBLE[0].1).is_some_and(|ids| !["", "none", "void"].contains(&ids.as_str()));
    let cuda = if told { cuda() } else { Cuda::NotAsked };
    Seen { nodes, env, cuda }
}

fn list(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let usual = USUAL.iter().any(|name| path == Path::new("/dev").join(name));
        // Not by what the directory says: a node may be mounted over an empty file.
        match fs::symlink_metadata(&path).map(|meta| meta.file_type()) {
            Ok(kind) if kind.is_dir() && entry.file_name() != "pts" => list(&path, found),
            Ok(kind) if (kind.is_char_device() || kind.is_block_device()) && !usual => found.push(path),
            _ => {}
        }
    }
}

fn node(path: PathBuf) -> Option<Node> {
    let meta = fs::metadata(&path).ok()?;
    let number = (major(meta.rdev()), minor(meta.rdev()));
    if path == Path::new("/dev/fuse") {
        // Concourse's containers may have it; it is nobody's GPU.
        return None;
    }
    let open = |write| OpenOptions::new().read(true).write(write).custom_flags(libc::O_NONBLOCK).open(&path);
    // The capabilities of MIG are for reading only.
    let closed = open(true).or_else(|why| open(false).map_err(|_| why)).err().map(|why| said_by(&why));
    Some(Node { path, number, closed })
}

/// Asks the driver library itself, as every CUDA program does first.
#[expect(unsafe_code, reason = "calls of a C library; their types are those of cuda.h")]
fn cuda() -> Cuda {
    type Init = unsafe extern "C" fn(u32) -> i32;
    type Count = unsafe extern "C" fn(*mut i32) -> i32;
    let missing = |why: libloading::Error| Cuda::NoLibrary(why.to_string());
    // SAFETY: loading it runs its constructors, which is what every program that uses it does.
    let library = match unsafe { libloading::Library::new("libcuda.so.1") } {
        Ok(library) => library,
        Err(why) => return missing(why),
    };
    // SAFETY: `CUresult cuInit(unsigned)` and `CUresult cuDeviceGetCount(int *)`; the library outlives the calls.
    let (init, devices) =
        unsafe { (library.get::<Init>(b"cuInit\0"), library.get::<Count>(b"cuDeviceGetCount\0")) };
    let (init, devices) = match (init, devices) {
        (Ok(init), Ok(devices)) => (init, devices),
        (Err(why), _) | (_, Err(why)) => return missing(why),
    };
    // SAFETY: as above.
    let code = unsafe { init(0) };
    if code != 0 {
        return Cuda::Failed(format!("cuInit says {code}"));
    }
    let mut count = 0;
    // SAFETY: as above; it writes one int.
    match unsafe { devices(&raw mut count) } {
        0 => Cuda::Devices(count),
        code => Cuda::Failed(format!("cuDeviceGetCount says {code}")),
    }
}
