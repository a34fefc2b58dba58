//! Folders of the worker that steps see: the directories in `/srv`, each at the path that it has on the worker.

use super::below;
use super::devices::Mount;
use super::edit::{Mounted, normal};
use super::inside;
use nix::fcntl::OFlag;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// What stands in the root directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// What it is.
    pub kind: Kind,
}

/// What an [`Entry`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A symlink, and what it says.
    Link(PathBuf),
    /// A file, a socket…
    Other,
}

/// A folder that steps see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// In the container, and on the worker.
    pub path: PathBuf,
    /// The directory itself.
    pub source: PathBuf,
    /// Its name ends in `_writable` or `_rw`.
    pub writable: bool,
    /// Something is mounted below the directory.
    pub above_mounts: bool,
}

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// By path.
    pub folders: Vec<Folder>,
    /// Sentences about what an operator may have meant to be a folder and is none.
    pub skipped: Vec<String>,
}

impl Folder {
    /// The mount in a container.
    pub fn mount(&self) -> Mount {
        let options: &[&str] = match (self.writable, self.above_mounts) {
            (true, _) => &["rbind", "rw"],
            (false, false) => &["rbind", "ro"],
            // `rro` needs runc 1.1, which fails before Linux 5.12; an older runc ignores it and goes by `ro`.
            (false, true) => &["rbind", "ro", "rro"],
        };
        Mount {
            host: self.source.clone(),
            path: self.path.clone(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        }
    }
}

/// Links from one to the next; more are a loop, or nobody's intention.
const LINKS: usize = 8;

/// Decides what is a folder (PURE). A symlink counts only if it names a directory right in `root`, or another such link:
/// any other way could go through a writable folder, where a task could change it between this look and the mount.
pub fn choose(root: &Path, entries: &[Entry]) -> Found {
    let mut found = Found::default();
    for Entry { name, kind } in entries {
        let path = root.join(name);
        let Some(text) = name.to_str() else {
            found.skipped.push(format!("{} has a name that is not UTF-8: no step sees it", path.display()));
            continue;
        };
        if text.starts_with('.') || text == "lost+found" {
            continue;
        }
        let writable = text.ends_with("_writable") || text.ends_with("_rw");
        let source = match kind {
            Kind::Other => continue,
            Kind::Directory => path.clone(),
            Kind::Link(target) => {
                let source = led_to(root, target, entries).filter(|source| source.to_str().is_some());
                let Some(source) = source else {
                    found.skipped.push(format!(
                        "{} is a symlink to {}, not to a folder in {}: no step sees it; use a bind mount instead",
                        path.display(),
                        target.display(),
                        root.display()
                    ));
                    continue;
                };
                source
            }
        };
        found.folders.push(Folder { path, source, writable, above_mounts: false });
    }
    found.folders.sort_by(|a, b| a.path.cmp(&b.path));
    found.skipped.sort();
    found
}

/// The directory right in `root` that a link to `target` means, by what stands in `root` alone.
fn led_to(root: &Path, target: &Path, entries: &[Entry]) -> Option<PathBuf> {
    let mut target = target;
    for _ in 0..LINKS {
        let inside = if target.is_absolute() { target.strip_prefix(root).ok()? } else { target };
        let mut parts = inside.components().filter(|part| *part != Component::CurDir);
        let (Some(Component::Normal(name)), None) = (parts.next(), parts.next()) else { return None };
        match &entries.iter().find(|entry| entry.name == name)?.kind {
            Kind::Directory => return Some(root.join(name)),
            Kind::Link(next) => target = next,
            Kind::Other => return None,
        }
    }
    None
}

/// Looks into `root`; a root that does not exist has no folders.
///
/// # Errors
/// It can't be read.
pub fn scan(root: &Path) -> io::Result<Found> {
    let listed = match fs::read_dir(root) {
        Ok(listed) => listed,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::default()),
        Err(e) => return Err(e),
    };
    let mut entries = vec![];
    for entry in listed {
        let entry = entry?;
        let kind = entry.file_type()?;
        let kind = if kind.is_dir() {
            Kind::Directory
        } else if kind.is_symlink() {
            Kind::Link(fs::read_link(entry.path())?)
        } else {
            Kind::Other
        };
        entries.push(Entry { name: entry.file_name(), kind });
    }
    let mut found = choose(root, &entries);
    if found.folders.iter().any(|folder| !folder.writable) {
        let names = below::look(root)?;
        for folder in &mut found.folders {
            folder.above_mounts = folder
                .source
                .file_name()
                .is_some_and(|name| name.to_str().is_some_and(|name| names.contains(name)));
        }
    }
    Ok(found)
}

/// A folder that can't be mounted, and why: a stale NFS, a FUSE without its program. A scan does not notice, since the
/// name is that of a directory, and runc's own message names nothing that the author of a pipeline knows.
pub fn broken(folders: &[Folder]) -> Option<(&Folder, io::Error)> {
    let why = |folder: &Folder| match fs::metadata(&folder.source) {
        Ok(found) if found.is_dir() => None,
        Ok(_) => Some(io::ErrorKind::NotADirectory.into()),
        Err(e) => Some(e),
    };
    folders.iter().find_map(|folder| Some((folder, why(folder)?)))
}

/// A mount of the bundle that has a folder's place, or the root's or one above it, where folders would be put into a
/// step's own volume; and that place on the worker (PURE). One from the folder's own source is ours: the bundle has been
/// equipped before. One from no path, such as the tmpfs at `/dev`, is no volume, and folders in it hide nothing.
pub fn taken(mounts: &[Mounted], root: &Path, folders: &[Folder]) -> Option<(String, PathBuf)> {
    let whole = normal(root);
    let volume = |mount: &Mounted| mount.source.as_ref().is_some_and(|source| source.starts_with('/'));
    mounts.iter().filter(|_| !folders.is_empty()).find_map(|mount| {
        let place = mount.place();
        // Few mounts get as far as to be compared with each folder.
        let name = place.strip_prefix(&whole).and_then(|rest| rest.strip_prefix('/'));
        let folder = name
            .and_then(|name| folders.iter().find(|folder| folder.path.file_name() == Some(name.as_ref())));
        let path = match folder {
            Some(folder) if mount.source.as_deref() == folder.source.to_str() => return None,
            Some(folder) => &folder.path,
            None if !place.is_empty() && volume(mount) && Path::new(&whole).starts_with(&place) => root,
            None => return None,
        };
        Some((mount.destination.clone(), path.to_owned()))
    })
}

/// The folders in whose place an image has something of its own, which a mount would hide. Symlinks of the image are
/// followed inside of it only, as runc does.
///
/// # Errors
/// The image can't be looked at.
pub fn hidden(rootfs: &Path, root: &Path, folders: &[Folder]) -> io::Result<Vec<PathBuf>> {
    let image = match File::open(rootfs) {
        Ok(image) => image,
        // runc will say so.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(e) => return Err(e),
    };
    // The usual image has nothing in /srv: one look for all folders.
    let Some(there) = names(&image, root)? else { return Ok(vec![]) };
    let mut hidden = vec![];
    for folder in folders {
        let is = folder.path.file_name().is_some_and(|name| there.iter().any(|n| n == name));
        if is && names(&image, &folder.path)?.is_none_or(|inside| !inside.is_empty()) {
            hidden.push(folder.path.clone());
        }
    }
    Ok(hidden)
}

/// Names in a directory of the image; `None`: it has none there.
fn names(image: &File, path: &Path) -> io::Result<Option<Vec<OsString>>> {
    let dir = match inside::open(image, path, OFlag::O_RDONLY | OFlag::O_DIRECTORY) {
        Ok(dir) => dir,
        Err(e) if inside::is_absence(e) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let mut names = vec![];
    for entry in nix::dir::Dir::from_fd(dir)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(OsString::from_vec(entry.file_name().to_bytes().to_vec()));
        }
    }
    Ok(Some(names))
}

#[cfg(test)]
#[path = "folders_tests.rs"]
mod tests;
