//! The table on disk: `leases.json`, replaced as a whole under a lock that the kernel lets go of when its holder dies.

use super::model::{FORMAT, Table};
use crate::oci::said;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The table's name.
pub const TABLE: &str = "leases.json";
/// The lock's name.
pub const LOCK: &str = "leases.lock";
/// Whoever holds the lock needs less than a millisecond. After this long it hangs.
const LOCK_WAIT: Duration = Duration::from_secs(20);

/// What the file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// A table that can be used.
    Table(Table),
    /// None, or one that can't be trusted; says why.
    Lost(String),
    /// There may be one, and it can't be read now; says why. It must not be replaced.
    Unreadable(String),
}

/// The table, locked until this is dropped.
#[derive(Debug)]
pub struct Locked {
    dir: PathBuf,
    /// Holds the lock.
    _lock: File,
}

impl Locked {
    /// Locks the table of a directory, which is made if it is not there.
    ///
    /// # Errors
    /// It can't be locked, or is not safe to use; says why.
    pub fn open(dir: &Path) -> Result<Self, String> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(dir);
        made.map_err(|e| format!("{} can't be made: {}", dir.display(), said(&e)))?;
        own(dir)?;
        let path = dir.join(LOCK);
        let failed = |e: io::Error| format!("{} can't be locked: {}", path.display(), said(&e));
        // Once more where someone removed the file that we waited for: it locks nothing any more.
        for _ in 0..8 {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = options.custom_flags(libc::O_NOFOLLOW).open(&path).map_err(failed)?;
            let file = lock(file).map_err(failed)?;
            let held = file.metadata().map_err(failed)?;
            let there = fs::metadata(&path).is_ok_and(|m| (m.dev(), m.ino()) == (held.dev(), held.ino()));
            if there {
                return Ok(Locked { dir: dir.to_owned(), _lock: file });
            }
        }
        Err(format!("{} is removed again and again", path.display()))
    }

    /// What is stored now.
    pub fn load(&self, boot: &str) -> Stored {
        load(&self.dir, boot)
    }

    /// Replaces what is stored. No fsync: it is in memory, and for this boot only.
    ///
    /// # Errors
    /// It can't be written, and what was stored is as before; says why.
    pub fn store(&self, table: &Table) -> Result<(), String> {
        let (path, temp) = (self.dir.join(TABLE), self.dir.join(".leases.json.new"));
        let write = || {
            // One that was left by a writer that was killed, whatever it is.
            match fs::remove_file(&temp) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            let text = serde_json::to_vec(table).map_err(io::Error::other)?;
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&temp)?;
            file.write_all(&text)?;
            fs::rename(&temp, &path)
        };
        write().map_err(|e| {
            drop(fs::remove_file(&temp));
            format!("{} can't be written: {}", path.display(), said(&e))
        })
    }
}

/// What is stored, as a look without the lock shows it: a rename is seen as a whole or not at all.
pub fn load(dir: &Path, boot: &str) -> Stored {
    let path = dir.join(TABLE);
    let lost = |why: &str| Stored::Lost(format!("{}: {why}", path.display()));
    let text = match read(&path) {
        Ok(Some(text)) => text,
        Ok(None) => return lost("others than its owner may have written it"),
        Err(e) if e.kind() == ErrorKind::NotFound => return lost(&said(&e)),
        Err(e) => return Stored::Unreadable(format!("{}: {}", path.display(), said(&e))),
    };
    match serde_json::from_slice::<Table>(&text) {
        Ok(table) if table.format != FORMAT => {
            lost(&format!("has format {}, this wrapper reads {FORMAT}", table.format))
        }
        Ok(table) if table.boot != boot => lost("is from before the last boot"),
        Ok(table) => Stored::Table(table),
        Err(why) => lost(&why.to_string()),
    }
}

/// What a table's file holds; `None`: it is not the worker's own.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let mut file = match opened {
        Err(e) if e.raw_os_error() == Some(libc::ELOOP) => return Ok(None),
        opened => opened?,
    };
    let found = file.metadata()?;
    let me = nix::unistd::geteuid().as_raw();
    if !found.is_file() || found.uid() != me || found.mode() & 0o022 != 0 {
        return Ok(None);
    }
    let mut text = vec![];
    file.read_to_end(&mut text)?;
    Ok(Some(text))
}

/// Others than the worker must not be able to put a table there.
fn own(dir: &Path) -> Result<(), String> {
    let found = fs::symlink_metadata(dir).map_err(|e| format!("{}: {}", dir.display(), said(&e)))?;
    let me = nix::unistd::geteuid().as_raw();
    if !found.is_dir() || found.uid() != me || found.mode() & 0o022 != 0 {
        return Err(format!(
            "{} must be a directory that belongs to uid {me} and that only its owner can write to",
            dir.display()
        ));
    }
    Ok(())
}

/// Locks, and waits for it only so long. The kernel has no lock with a time limit, so one more thread waits.
fn lock(file: File) -> io::Result<File> {
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::Error(e)) => return Err(e),
        Err(TryLockError::WouldBlock) => {}
    }
    let (send, receive) = mpsc::channel();
    let waits = thread::Builder::new().stack_size(64 << 10).spawn(move || {
        let locked = file.lock().map(|()| file);
        // Nobody listens any more: what is sent back is dropped here, and the lock with it.
        drop(send.send(locked));
    });
    waits?;
    receive.recv_timeout(LOCK_WAIT).unwrap_or_else(|_| {
        Err(io::Error::new(ErrorKind::TimedOut, "another process keeps it locked; `fuser` names it"))
    })
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
