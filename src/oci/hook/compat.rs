//! CUDA's forward compatibility: an image may bring a newer `libcuda` for data centre GPUs on older drivers. Which one
//! is used is decided as NVIDIA's `enable-cuda-compat` does.

use super::elf::Elf;
use super::library;
use super::plan::{Compat, Library};
use super::root::Root;
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// `None`: the worker's driver is used.
pub fn choose(root: &Root, compat: &Compat) -> Result<Option<(PathBuf, Vec<Library>)>, String> {
    let Some(dir) = root.dir(&compat.folder)? else { return Ok(None) };
    let seen = dir.as_seen();
    let of = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let version = name.strip_prefix("libcuda.so.").filter(|v| v.contains('.'))?.to_owned();
        entry.file_type().is_ok_and(|kind| kind.is_file()).then_some((entry.path(), version))
    };
    let mut found = fs::read_dir(&seen).into_iter().flatten().flatten().filter_map(of);
    // None is usual; several are nobody's intention.
    let (Some((path, version)), None) = (found.next(), found.next()) else { return Ok(None) };
    if !is_better(&note(&path), &version, compat) {
        return Ok(None);
    }
    let folder = compat.folder.to_str().ok_or("the folder of CUDA's compatibility libraries is not UTF-8")?;
    let scan = library::scan(&seen, folder);
    for (soname, file) in &scan.missing {
        dir.link(soname, file)?;
    }
    Ok(Some((compat.folder.clone(), scan.libraries)))
}

/// What the library says of where it works; `None` in old ones.
fn note(path: &Path) -> Option<Value> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path).ok()?;
    let text = Elf::read(&file)?.note(".note.cuda.fwd_compatibility")?;
    let end = text.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
    serde_json::from_slice(&text[..end]).ok()
}

/// Up to three numbers, as both versions are compared by NVIDIA: `550.54.15`.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let mut numbers = [0; 3];
    for (at, part) in version.split('.').enumerate() {
        *numbers.get_mut(at)? = part.parse().ok()?;
    }
    Some(numbers)
}

/// Whether the image's libcuda of that version is to be used.
pub(super) fn is_better(note: &Option<Value>, version: &str, compat: &Compat) -> bool {
    let theirs = numbers(version);
    let ours = compat.driver.as_deref().and_then(numbers);
    let cuda = compat.cuda.as_deref().and_then(numbers);
    match (note, theirs, ours) {
        (Some(note), Some(theirs), Some(ours)) => {
            let works = note["Driver"].as_array().is_some_and(|list| list.iter().any(|v| *v == ours[0]));
            works && theirs > ours
        }
        (Some(note), ..) => {
            let theirs = note["CUDA Version"].as_str().and_then(numbers);
            theirs.zip(cuda).is_some_and(|(theirs, ours)| theirs > ours)
        }
        (None, Some(theirs), Some(ours)) => compat.cuda.is_none() && ours[0] < theirs[0],
        (None, ..) => false,
    }
}
