//! The versions side by side below `/opt/concourse/versions`, each with a record that is written last.
//!
//! A name that starts with a dot is on its way in (`.staging-…`) or out (`.old-…`) and is never taken for a version.

use super::{Order, Source, downloads, memo, part, read_json, sync_dir};
use crate::host::fs::{self, Root};
use crate::parse::Version;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::{DirEntry, File, TryLockError};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const RECORD: &str = ".installed.json";
/// The archive's digest, for the units: what a service was started with includes the bytes that it runs.
const DIGEST: &str = ".sha256";
const STAGING: &str = ".staging-";

/// A version that is whole and checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installed {
    /// What its `concourse --version` says.
    pub version: Version,
    /// The ways by which its archive came.
    pub origin: Origin,
    /// Digest of its archive: lower-case hex.
    pub sha256: String,
}

/// The ways by which one archive came to this machine: two units may share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Downloaded from here; credentials and query left out.
    pub url: Option<String>,
    /// Files of the resource `concourse` that held it, the latest last.
    pub stamps: Vec<ResourceStamp>,
}

/// What tells one file of a resource from another without reading it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceStamp {
    /// Bytes.
    pub size: u64,
    /// Last change, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Inode number.
    pub inode: u64,
}

/// The stamp of a resource's file; `None` if it is absent or empty: a placeholder counts as not given.
pub fn resource_stamp(path: &Path) -> Option<ResourceStamp> {
    let meta = std::fs::metadata(path).ok().filter(|m| m.is_file() && m.len() > 0)?;
    Some(ResourceStamp {
        size: meta.len(),
        mtime_ns: meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec()),
        inode: meta.ino(),
    })
}

impl Installed {
    /// Whether nothing is left to do for `order`; `stamp` is its resource's, if that is its source.
    ///
    /// A mirror of the same version is no reason to install it again; another digest, a resource that was not seen
    /// yet, or a release in place of a resource is.
    pub fn satisfies(&self, order: &Order, stamp: Option<&ResourceStamp>) -> bool {
        let version = order.version.as_ref().is_none_or(|v| *v == self.version);
        let digest = order.sha256.as_ref().is_none_or(|d| *d == self.sha256);
        let origin = match order.source {
            Source::Url(_) => self.origin.url.is_some() || order.sha256.is_some(),
            Source::Resource(_) => stamp.is_some_and(|s| self.origin.stamps.contains(s)),
        };
        version && digest && origin
    }
}

impl Origin {
    /// Adds the ways of `other`, which brought the same bytes.
    pub(super) fn learn(&mut self, other: &Origin) {
        self.url = other.url.clone().or(self.url.take());
        self.stamps.retain(|s| !other.stamps.contains(s));
        self.stamps.extend(other.stamps.iter().cloned());
        // As many units as may share a machine; an older one is read again and found to be the same.
        let surplus = self.stamps.len().saturating_sub(8);
        self.stamps.drain(..surplus);
    }
}

fn versions(root: &Root) -> PathBuf {
    root.path("/opt/concourse/versions")
}

/// Where a version is, or would be.
pub fn version_dir(root: &Root, version: &Version) -> PathBuf {
    versions(root).join(version.to_string())
}

/// All installed versions, the lowest first. What is half done, damaged or not ours is left out.
///
/// # Errors
/// The directory is there and can't be read.
pub fn installed(root: &Root) -> Result<Vec<Installed>> {
    let mut found: Vec<Installed> = entries(&versions(root))?
        .into_iter()
        .filter_map(|entry| {
            let record: Installed = read_json(&entry.path().join(RECORD))?;
            let named = entry.file_name().to_str() == Some(&record.version.to_string());
            (named && entry.path().join("bin/concourse").is_file()).then_some(record)
        })
        .collect();
    found.sort_by(|a, b| a.version.cmp(&b.version));
    Ok(found)
}

fn entries(dir: &Path) -> Result<Vec<DirEntry>> {
    let fail = || format!("failed to read {}", dir.display());
    match std::fs::read_dir(dir) {
        Ok(entries) => entries.collect::<Result<_, _>>().with_context(fail),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e).with_context(fail),
    }
}

/// Whether some process runs a program of that version, such as the containerd-shim of a build that goes on.
pub fn in_use(root: &Root, version: &Version) -> bool {
    dir_in_use(&version_dir(root, version))
}

fn dir_in_use(dir: &Path) -> bool {
    let Ok(dir) = dir.canonicalize() else { return false };
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    // Kernel threads, and processes that end meanwhile, have no link to read.
    processes
        .flatten()
        .filter_map(|process| std::fs::read_link(process.path().join("exe")).ok())
        .any(|program| program.starts_with(&dir))
}

/// Removes a version and tells whether it is gone: one that is [in use](in_use) stays.
///
/// # Errors
/// It can't be removed, or another unit keeps the lock for a minute.
pub fn remove_version(root: &Root, version: &Version) -> Result<bool> {
    let _lock = lock(root, Duration::from_secs(60))?.context("another unit is installing Concourse")?;
    let dir = version_dir(root, version);
    if dir_in_use(&dir) {
        return Ok(false);
    }
    // Renamed first: a version that is half removed must not be taken for one.
    if retire(root, &dir)? {
        sweep(root)?;
    }
    Ok(true)
}

/// Whether an interrupted installation has left something that [`clean_leftovers`] would remove.
///
/// # Errors
/// A directory is there and can't be read.
pub fn has_leftovers(root: &Root) -> Result<bool> {
    let half =
        |entry: &DirEntry| entry.file_name().to_string_lossy().starts_with('.') && !dir_in_use(&entry.path());
    let part = |entry: &DirEntry| entry.file_name() != memo::NAME;
    Ok(entries(&versions(root))?.iter().any(half) || entries(&downloads(root))?.iter().any(part))
}

/// Removes what interrupted installations left: call it when no order is open.
///
/// Partial downloads are wanted for as long as their order is, so [`install`](super::install) itself keeps its own.
///
/// # Errors
/// Something can't be removed, or another unit keeps the lock for a minute.
pub fn clean_leftovers(root: &Root) -> Result<()> {
    if !versions(root).exists() && !downloads(root).exists() {
        return Ok(());
    }
    let _lock = lock(root, Duration::from_secs(60))?.context("another unit is installing Concourse")?;
    sweep(root)?;
    part::clear(root, None)
}

/// Makes good what a killed call left: finishes what lacked only its last rename, removes the rest.
pub(super) fn sweep(root: &Root) -> Result<()> {
    for entry in entries(&versions(root))? {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let ready = read_json::<Installed>(&path.join(RECORD)).filter(|_| name.starts_with(STAGING));
        match ready.map(|record| version_dir(root, &record.version)) {
            Some(place) if !place.exists() => move_in(&path, &place)?,
            _ if name.starts_with('.') && !dir_in_use(&path) => fs::remove(&path)?,
            _ => {}
        }
    }
    Ok(())
}

fn move_in(staged: &Path, place: &Path) -> Result<()> {
    std::fs::rename(staged, place).with_context(|| format!("failed to install {}", place.display()))?;
    sync_dir(place.parent().context("a version has a directory")?)
}

/// Takes a version out of sight; `false`: it was not there.
fn retire(root: &Root, dir: &Path) -> Result<bool> {
    if !dir.exists() {
        return Ok(false);
    }
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let mut free = (0..).map(|n| versions(root).join(format!(".old-{name}-{n}"))).filter(|p| !p.exists());
    let aside = free.next().context("names don't run out")?;
    std::fs::rename(dir, &aside).with_context(|| format!("failed to move {} aside", dir.display()))?;
    Ok(true)
}

/// Writes the record of a version: from here on it counts as installed.
pub(super) fn record(dir: &Path, installed: &Installed) -> Result<()> {
    fs::write_atomic(&dir.join(DIGEST), format!("{}\n", installed.sha256).as_bytes(), 0o644, None)?;
    fs::write_atomic(&dir.join(RECORD), &serde_json::to_vec_pretty(installed)?, 0o644, None)?;
    sync_dir(dir)
}

/// A directory beside the versions that becomes one, or goes with this value.
pub(super) struct Staging(TempDir);

impl Staging {
    pub(super) fn new(root: &Root) -> Result<Staging> {
        let versions = versions(root);
        fs::make_dir(&versions)?;
        tempfile::Builder::new()
            .prefix(STAGING)
            .permissions(std::fs::Permissions::from_mode(0o755))
            .tempdir_in(&versions)
            .map(Staging)
            .with_context(|| format!("failed to make a directory in {}", versions.display()))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Puts it in its place. A version that was there is moved aside, where what runs of it goes on to run; it is
    /// removed by a later [`sweep`] that finds it unused.
    pub(super) fn publish(self, root: &Root, installed: &Installed) -> Result<()> {
        record(self.path(), installed)?;
        // Complete: if this call dies between the renames, the next one finishes them.
        let staged = self.0.keep();
        let place = version_dir(root, &installed.version);
        retire(root, &place)?;
        move_in(&staged, &place)?;
        sweep(root)
    }
}

/// Keeps other units of the machine out until the file is dropped; `None`: one of them is still in after `patience`.
pub(super) fn lock(root: &Root, patience: Duration) -> Result<Option<File>> {
    let path = root.path("/opt/concourse/.lock");
    fs::make_dir(&root.path("/opt/concourse"))?;
    let fail = || format!("failed to lock {}", path.display());
    let file = File::options().create(true).append(true).open(&path).with_context(fail)?;
    let end = Instant::now() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) if Instant::now() < end => sleep(Duration::from_millis(50)),
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(e)) => return Err(e).with_context(fail),
        }
    }
}
