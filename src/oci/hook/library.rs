//! The shared libraries of a directory, as `ldconfig` lists them.

use super::elf::Elf;
use super::plan::Library;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Libraries, and links that are missing: (name, target).
#[derive(Debug, Default, PartialEq)]
pub struct Scan {
    /// One for each name by which a program can ask.
    pub libraries: Vec<Library>,
    /// Sonames without a link, and the files that have them.
    pub missing: Vec<(String, String)>,
}

/// Looks through `dir`, which the container has as `folder`. Links are not followed out of it.
pub fn scan(dir: &Path, folder: &str) -> Scan {
    let mut files = BTreeMap::new();
    let mut links = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let is_library = name.starts_with("lib") && (name.ends_with(".so") || name.contains(".so."));
        match entry.file_type() {
            Ok(kind) if is_library && kind.is_file() => {
                files.extend(open(&entry.path()).and_then(|file| {
                    let elf = Elf::read(&file)?;
                    let flags = elf.cache_flags()?;
                    Some((name.clone(), (elf.soname().unwrap_or(name), flags)))
                }));
            }
            Ok(kind) if is_library && kind.is_symlink() => {
                links.extend(fs::read_link(entry.path()).ok().map(|target| (name, target)));
            }
            _ => {}
        }
    }
    let mut found: BTreeMap<String, u32> = BTreeMap::new();
    let mut missing = BTreeMap::new();
    for (name, (soname, flags)) in &files {
        found.insert(soname.clone(), *flags);
        if !files.contains_key(soname) && !links.contains_key(soname) {
            missing.insert(soname.clone(), name.clone());
        }
    }
    for name in links.keys() {
        // Through links of this directory to a file of it: libcuda.so, libcuda.so.1, libcuda.so.580.65.06.
        let mut at = name.as_str();
        for _ in 0..8 {
            at = links.get(at).and_then(|t| t.to_str()).unwrap_or(at);
        }
        // As ldconfig: links for programs and, ending in .so, for linkers; no other names.
        if let Some((soname, flags)) = files.get(at)
            && (name == soname || (name.ends_with(".so") && soname.starts_with(name.as_str())))
        {
            found.entry(name.clone()).or_insert(*flags);
        }
    }
    let path = |name: &str| format!("{}/{name}", folder.trim_end_matches('/'));
    let libraries =
        found.into_iter().map(|(name, flags)| Library { path: path(&name), name, flags }).collect();
    Scan { libraries, missing: missing.into_iter().collect() }
}

fn open(path: &Path) -> Option<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()
}
