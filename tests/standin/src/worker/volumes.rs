//! Volumes under the work dir, made by the chosen driver the way the real one makes them.

use super::config::Config;
use crate::log::Log;
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The sign by which the real one decides on the mount option that a user namespace may not use.
const METACOPY: &str = "/sys/module/overlay/parameters/metacopy";
const BTRFS_MAGIC: i64 = 0x9123_683e;

/// The store.
pub struct Volumes {
    live: PathBuf,
    overlays: PathBuf,
    overlay: bool,
    log: Log,
}

impl Volumes {
    /// Opens the store and mounts again what a restart of the machine (or of the mount namespace) took away.
    pub fn new(config: &Config, log: &Log) -> Result<Volumes> {
        let (volumes, overlays) = (config.work_dir.join("volumes"), config.work_dir.join("overlays"));
        for dir in ["init", "live", "dead"] {
            fs::create_dir_all(volumes.join(dir)).with_context(|| format!("mkdir {}", volumes.display()))?;
        }
        let driver = if config.driver == "detect" { "overlay" } else { &config.driver };
        log.info("using-driver", json!({"driver": driver}));
        let overlay = driver == "overlay";
        if overlay {
            fs::create_dir_all(&overlays)?;
            log.session("overlay-driver").info("metacopy-support", json!({"supported": metacopy()}));
        } else if driver == "btrfs" && file_system(&volumes)? != BTRFS_MAGIC {
            bail!(
                "failed to create btrfs filesystem: the stand-in makes none; {} must lie on one",
                volumes.display()
            );
        }
        let store = Volumes { live: volumes.join("live"), overlays, overlay, log: log.clone() };
        store.recover()?;
        Ok(store)
    }

    /// The handles of all volumes.
    pub fn handles(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.live).into_iter().flatten().flatten();
        entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Where a volume's files are.
    pub fn path(&self, handle: &str) -> PathBuf {
        self.live.join(handle).join("volume")
    }

    /// Makes an empty volume.
    pub fn create(&self, handle: &str) -> Result<PathBuf> {
        self.made(handle, None, || {
            fs::create_dir_all(self.path(handle))?;
            if self.overlay { self.bind(handle) } else { Ok(()) }
        })
    }

    /// Makes a volume that begins as a copy of another.
    pub fn copy_of(&self, handle: &str, parent: &str) -> Result<PathBuf> {
        self.made(handle, Some(parent), || {
            fs::create_dir_all(self.path(handle))?;
            if self.overlay {
                self.stack(handle, parent)
            } else {
                copy(&self.path(parent).join("."), &self.path(handle))
            }
        })
    }

    fn made(&self, handle: &str, parent: Option<&str>, make: impl FnOnce() -> Result<()>) -> Result<PathBuf> {
        fs::create_dir_all(self.live.join(handle))?;
        if let Some(parent) = parent {
            fs::write(self.live.join(handle).join("parent"), parent)?;
        }
        if let Err(e) = make() {
            let log = self
                .log
                .session("api")
                .session("volume-server")
                .session("create-volume-async")
                .session("create-volume");
            log.with("handle", handle).error("failed-to-materialize-strategy", format!("{e:#}"));
            self.destroy(handle);
            // This is all that a build gets to see of it.
            bail!("failed to create volume");
        }
        Ok(self.path(handle))
    }

    /// Removes a volume; what can't be removed is logged.
    pub fn destroy(&self, handle: &str) {
        let path = self.path(handle);
        while is_mount(&path) {
            let Ok(target) = CString::new(path.as_os_str().as_bytes()) else { return };
            // SAFETY: umount2 only reads the path.
            if unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) } != 0 {
                break;
            }
        }
        for dir in
            [self.overlays.join("work").join(handle), self.overlays.join(handle), self.live.join(handle)]
        {
            if dir.exists()
                && let Err(e) = fs::remove_dir_all(&dir)
            {
                self.log.error("failed-to-destroy", format!("{}: {e}", dir.display()));
            }
        }
    }

    fn bind(&self, handle: &str) -> Result<()> {
        let layer = self.overlays.join(handle);
        fs::create_dir_all(&layer)?;
        mount(layer.as_os_str().as_bytes(), &self.path(handle), "", libc::MS_BIND, "")
    }

    fn stack(&self, handle: &str, parent: &str) -> Result<()> {
        let (upper, work) = (self.overlays.join(handle), self.overlays.join("work").join(handle));
        fs::create_dir_all(&upper)?;
        fs::create_dir_all(&work)?;
        let option = if metacopy() { ",metacopy=on" } else { "" };
        let options = format!(
            "lowerdir={},upperdir={},workdir={}{option}",
            self.path(parent).display(),
            upper.display(),
            work.display()
        );
        mount(b"overlay", &self.path(handle), "overlay", 0, &options)
    }

    fn recover(&self) -> Result<()> {
        if !self.overlay {
            return Ok(());
        }
        let parent = |h: &String| fs::read_to_string(self.live.join(h).join("parent")).ok();
        let (stacked, plain): (Vec<_>, Vec<_>) =
            self.handles().into_iter().partition(|h| parent(h).is_some());
        for handle in plain.iter().chain(&stacked).filter(|h| !is_mount(&self.path(h))) {
            match parent(handle) {
                None => self.bind(handle).context("recover bind mount")?,
                Some(parent) => self.stack(handle, &parent).context("recover overlay mount")?,
            }
        }
        Ok(())
    }
}

fn metacopy() -> bool {
    Path::new(METACOPY).exists()
}

/// Copies the contents of a folder with everything that belongs to them.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    run(Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(to))
}

/// Runs a tool and makes its complaint the error.
pub fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{:?}", command.get_program()))?;
    if !output.status.success() {
        bail!("{:?}: {}", command.get_program(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn mount(source: &[u8], target: &Path, kind: &str, flags: libc::c_ulong, data: &str) -> Result<()> {
    let (source, target, kind, data) = (
        CString::new(source)?,
        CString::new(target.as_os_str().as_bytes())?,
        CString::new(kind)?,
        CString::new(data)?,
    );
    // SAFETY: all four are valid C strings for the time of the call.
    let rc =
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast()) };
    if rc != 0 {
        return Err(std::io::Error::last_os_error())
            .with_context(|| format!("mount {}", target.to_string_lossy()));
    }
    Ok(())
}

fn is_mount(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let path = path.display().to_string();
    table.lines().any(|l| l.split(' ').nth(4) == Some(&path))
}

fn file_system(path: &Path) -> Result<i64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: statfs fills the zeroed struct.
    let (rc, stat) = unsafe {
        let mut stat: libc::statfs = std::mem::zeroed();
        (libc::statfs(path.as_ptr(), &mut stat), stat)
    };
    if rc != 0 {
        return Err(std::io::Error::last_os_error()).context("failed to stat volumes filesystem");
    }
    #[allow(clippy::unnecessary_cast)]
    Ok(stat.f_type as i64)
}
