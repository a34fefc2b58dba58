//! CDI directories and device nodes of this machine.

use super::edits::NodeStat;
use super::units::Source;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Where CDI files are, the winner last.
pub const DIRECTORIES: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// The largest real ones have some 100 KiB.
const LARGEST: u64 = 16 << 20;

/// All CDI files of the directories, without their sub-directories. A directory that isn't there holds none.
pub fn sources(directories: &[impl AsRef<Path>]) -> Vec<Source> {
    let mut found = vec![];
    for (priority, directory) in directories.iter().enumerate() {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|e| e.path()).collect();
        paths.retain(|p| p.extension().is_some_and(|e| e == "json" || e == "yaml") && !p.is_dir());
        paths.sort();
        for path in paths {
            let text = read(&path).map_err(|e| format!("can't be read: {e}"));
            found.push(Source { path, priority, text });
        }
    }
    found
}

fn read(path: &Path) -> std::io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is no file"));
    }
    let mut text = String::new();
    if File::open(path)?.take(LARGEST + 1).read_to_string(&mut text)? as u64 > LARGEST {
        return Err(std::io::Error::other("it is larger than 16 MiB"));
    }
    Ok(text)
}

/// `lstat` of a device node.
pub fn lstat(path: &Path) -> Option<NodeStat> {
    let found = fs::symlink_metadata(path).ok()?;
    let kind = match found.file_type() {
        t if t.is_char_device() => 'c',
        t if t.is_block_device() => 'b',
        _ => return None,
    };
    let number = found.rdev();
    Some(NodeStat {
        kind,
        major: u32::try_from(nix::sys::stat::major(number)).ok()?,
        minor: u32::try_from(nix::sys::stat::minor(number)).ok()?,
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
    })
}
