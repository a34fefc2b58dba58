//! Files under a root directory. "/" in production; in a test, a temporary directory is a machine.

use anyhow::{Context, Result};
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// How the name of what is not yet in its place begins; when its maker was killed, it stays.
pub const UNFINISHED: &str = ".new-";

/// The root of the file system that the charm works on.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    /// Takes `path` as "/".
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Root(path.into())
    }

    /// Where the absolute path `path` is to be found.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Whether this is the machine itself and not a directory that stands for one.
    pub fn is_machine(&self) -> bool {
        self.0 == Path::new("/")
    }
}

/// Who a file belongs to; names are looked up when it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// A file's text, or `None` if there is no such file.
///
/// # Errors
/// Anything but absence: no permission, not UTF-8, an I/O fault.
pub fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e).with_context(|| format!("failed to read {}", path.display())),
    }
}

/// Replaces a file as a whole: a reader sees the old text or the new one, and never a secret with a wider mode.
///
/// # Errors
/// The directory can't be made or written to, or the disk is full; the old file is then untouched.
pub fn write_atomic(path: &Path, text: &[u8], mode: u32, owner: Option<&Owner>) -> Result<()> {
    let dir = path.parent().context("a file needs a directory")?;
    make_dir(dir)?;
    let fail = || format!("failed to write {}", path.display());
    let mut temp = tempfile::Builder::new()
        .prefix(UNFINISHED)
        .permissions(fs::Permissions::from_mode(0o600))
        .tempfile_in(dir)
        .with_context(fail)?;
    temp.write_all(text).with_context(fail)?;
    if let Some(owner) = owner {
        chown(temp.path(), Some(owner.uid), Some(owner.gid)).with_context(fail)?;
    }
    fs::set_permissions(temp.path(), fs::Permissions::from_mode(mode)).with_context(fail)?;
    temp.as_file().sync_all().with_context(fail)?;
    temp.persist(path).with_context(fail)?;
    Ok(())
}

/// Makes a directory and those above it, world-readable as the distribution's own are.
///
/// # Errors
/// The directory can't be made.
pub fn make_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("failed to make {}", path.display()))
}

/// Points `link` to `target` in one step: there is no instant without the link.
///
/// # Errors
/// The directory can't be written to.
pub fn swap_symlink(link: &Path, target: &Path) -> Result<()> {
    let dir = link.parent().context("a link needs a directory")?;
    make_dir(dir)?;
    let temp = dir.join(format!("{UNFINISHED}link-{}", std::process::id()));
    remove(&temp)?;
    std::os::unix::fs::symlink(target, &temp)
        .and_then(|()| fs::rename(&temp, link))
        .with_context(|| format!("failed to link {}", link.display()))
}

/// Removes a file, link or tree; absence is what was wanted.
///
/// # Errors
/// It is there and can't be removed.
pub fn remove(path: &Path) -> Result<()> {
    let done = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    match done {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            Err(e).with_context(|| format!("failed to remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Mode bits and owner of a file, or `None` if there is none.
pub fn mode_and_owner(path: &Path) -> Option<(u32, Owner)> {
    let meta = fs::metadata(path).ok()?;
    Some((meta.mode() & 0o7777, Owner { uid: meta.uid(), gid: meta.gid() }))
}
