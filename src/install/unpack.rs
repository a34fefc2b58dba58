//! Unpacks a release into a directory, and nothing beside it.
//!
//! Every path is walked by its names: no entry is written through a link, none replaces another, and a link may only
//! lead to what lies inside. An archive that tries otherwise is refused whole.

use super::{Refusal, Step, Stop, one_line, sync_dir};
use anyhow::Context;
use flate2::read::MultiGzDecoder;
use std::collections::BTreeSet;
use std::fs::{File, Permissions};
use std::io::{BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use tar::{Archive, Entry, EntryType};

/// The one folder that a release holds.
const TOP: &str = "concourse";

/// Unpacks what is below the archive's top folder into the empty directory `into`, and makes it last a power cut.
///
/// Files keep their modes, except that nobody but root may write and no program takes on its owner's rights.
pub(super) fn unpack(archive: &Path, into: &Path) -> Step<()> {
    let file = File::open(archive).with_context(|| format!("failed to read {}", archive.display()))?;
    let mut archive = Archive::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 17, file)));
    let mut target = Target { into: into.to_owned(), dirs: BTreeSet::from([into.to_owned()]) };
    for entry in archive.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        target.place(&mut entry)?;
    }
    // The checksum is behind the last entry.
    std::io::copy(&mut archive.into_inner(), &mut std::io::sink()).map_err(unreadable)?;
    for dir in &target.dirs {
        sync_dir(dir)?;
    }
    Ok(())
}

struct Target {
    into: PathBuf,
    /// Directories that were made here, hence no links.
    dirs: BTreeSet<PathBuf>,
}

impl Target {
    fn place<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> Step<()> {
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(());
        }
        let name = entry.path().map_err(unreadable)?.into_owned();
        let Some(inside) = below_top(&name)? else { return Ok(()) };
        if inside.as_os_str().is_empty() {
            return if kind.is_dir() { Ok(()) } else { Err(bad(&name, "is no folder")) };
        }
        let path = self.into.join(&inside);
        if kind.is_dir() {
            return self.make_dirs(&path, &name);
        }
        self.make_dirs(path.parent().unwrap_or(&self.into).to_owned().as_path(), &name)?;
        if path.symlink_metadata().is_ok() {
            return Err(bad(&name, "is there twice"));
        }
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let mode = entry.header().mode().map_err(unreadable)?;
                write_file(entry, &path, mode)
            }
            EntryType::Symlink => self.make_symlink(entry, &inside, &path, &name),
            EntryType::Link => self.make_hard_link(entry, &path, &name),
            _ => Err(bad(&name, "is neither file, folder nor link")),
        }
    }

    /// Makes a directory and those above it, unless one of them is something else.
    fn make_dirs(&mut self, dir: &Path, name: &Path) -> Step<()> {
        if self.dirs.contains(dir) {
            return Ok(());
        }
        let above = dir.parent().map(Path::to_owned).unwrap_or_default();
        self.make_dirs(&above, name)?;
        match std::fs::create_dir(dir) {
            Ok(()) => {}
            // Whatever is there was not made here as a directory.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                return Err(bad(name, "leads through a file or link"));
            }
            Err(e) => return Err(write_fault(e, dir)),
        }
        std::fs::set_permissions(dir, Permissions::from_mode(0o755)).map_err(|e| write_fault(e, dir))?;
        self.dirs.insert(dir.to_owned());
        Ok(())
    }

    fn make_symlink<R: Read>(
        &self,
        entry: &Entry<'_, R>,
        inside: &Path,
        path: &Path,
        name: &Path,
    ) -> Step<()> {
        let to = link_target(entry, name)?;
        // `..` is counted from a real folder and only at the start: behind a name, that name may be a link itself.
        let mut depth = inside.components().count() - 1;
        let mut named = false;
        for part in to.components() {
            match part {
                Component::CurDir => {}
                Component::Normal(_) => named = true,
                Component::ParentDir if !named && depth > 0 => depth -= 1,
                _ => return Err(bad(name, "is a link that leads outside")),
            }
        }
        symlink(&to, path).map_err(|e| write_fault(e, path))
    }

    fn make_hard_link<R: Read>(&self, entry: &Entry<'_, R>, path: &Path, name: &Path) -> Step<()> {
        let to = link_target(entry, name)?;
        let to = below_top(&to)?.ok_or_else(|| bad(name, "is a link that leads outside"))?;
        let to = self.into.join(to);
        let real = to.parent().is_some_and(|dir| self.dirs.contains(dir))
            && to.symlink_metadata().is_ok_and(|meta| meta.is_file());
        if !real {
            return Err(bad(name, "is a hard link to no file of the archive"));
        }
        std::fs::hard_link(&to, path).map_err(|e| write_fault(e, path))
    }
}

fn link_target<R: Read>(entry: &Entry<'_, R>, name: &Path) -> Step<PathBuf> {
    let to = entry.link_name().map_err(unreadable)?;
    to.map(|to| to.into_owned()).ok_or_else(|| bad(name, "is a link to nowhere"))
}

/// The path below the top folder; empty for the folder itself, `None` for `./`, which some tars begin with.
fn below_top(name: &Path) -> Step<Option<PathBuf>> {
    let mut names = Vec::new();
    for part in name.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(part) => names.push(part),
            _ => return Err(bad(name, "leads outside")),
        }
    }
    match names.split_first() {
        None => Ok(None),
        Some((top, rest)) if *top == TOP => Ok(Some(rest.iter().collect())),
        Some(_) => Err(bad(name, "is not in its folder `concourse`")),
    }
}

fn write_file<R: Read>(entry: &mut Entry<'_, R>, path: &Path, mode: u32) -> Step<()> {
    let mut file = File::create_new(path).map_err(|e| write_fault(e, path))?;
    // Not io::copy: it can't tell a damaged archive from a full disk.
    let mut buffer = vec![0; 1 << 17];
    loop {
        let n = entry.read(&mut buffer).map_err(unreadable)?;
        if n == 0 {
            break;
        }
        file.write_all(&buffer[..n]).map_err(|e| write_fault(e, path))?;
    }
    file.set_permissions(Permissions::from_mode(mode & 0o755 | 0o600)).map_err(|e| write_fault(e, path))?;
    file.sync_all().map_err(|e| write_fault(e, path))
}

fn bad(name: &Path, why: &str) -> Stop {
    let name = one_line(&name.to_string_lossy(), 100);
    Stop::Unusable(Refusal(format!(
        "the archive can't be trusted: `{name}` {why}: use a release of Concourse"
    )))
}

/// A fault of the disk has a number, a fault of the archive has none.
fn unreadable(error: std::io::Error) -> Stop {
    if error.raw_os_error().is_some() {
        return Stop::Failed(anyhow::Error::new(error).context("failed to read the archive"));
    }
    Stop::Unusable(Refusal(format!(
        "the archive is damaged or no .tgz ({}): use the release's concourse-<version>-linux-<arch>.tgz",
        one_line(&error.to_string(), 80)
    )))
}

fn write_fault(error: std::io::Error, path: &Path) -> Stop {
    Stop::Failed(anyhow::Error::new(error).context(format!("failed to write {}", path.display())))
}
