//! Which way of keeping volumes works here is tried out, as Concourse would do it (proven.md §2).

use super::Trouble;
use crate::host::cmd::{cmd, tail};
use crate::host::fs::{self, Root};
use crate::world::Volumes;
use anyhow::{Context, Result};
use nix::sys::statfs::{BTRFS_SUPER_MAGIC, statfs};
use std::path::Path;

/// The first of the candidates that works in the work dir.
pub fn probe(
    root: &Root,
    work_dir: &str,
    candidates: &[Volumes],
) -> Result<std::result::Result<Volumes, Trouble>> {
    let dir = root.path(work_dir);
    fs::make_dir(&dir)?;
    let mut reasons = vec![];
    for candidate in candidates {
        let found = match candidate {
            Volumes::Overlay => overlay(&dir, root.path("/sys/module/overlay/parameters/metacopy").exists())?,
            Volumes::OverlayMasked => overlay(&dir, false)?,
            Volumes::Btrfs => btrfs(&dir)?,
            Volumes::Naive => Ok(()),
        };
        match found {
            Ok(()) => return Ok(Ok(*candidate)),
            Err(why) => reasons.push(format!("{}: {why}", candidate.driver())),
        }
    }
    let all = reasons.join("; ");
    Ok(Err(Trouble(format!("volume-driver does not work in {work_dir} ({all}): set it to auto"))))
}

fn overlay(dir: &Path, metacopy: bool) -> Result<std::result::Result<(), String>> {
    let temp =
        tempfile::Builder::new().prefix(".probe-").tempdir_in(dir).context("failed to probe volumes")?;
    let sub = |name: &str| -> Result<String> {
        let path = temp.path().join(name);
        fs::make_dir(&path)?;
        Ok(path.to_string_lossy().into_owned())
    };
    let mut options =
        format!("lowerdir={},upperdir={},workdir={}", sub("lower")?, sub("upper")?, sub("work")?);
    if metacopy {
        options.push_str(",metacopy=on");
    }
    let mounted = sub("mounted")?;
    let out = cmd("mount").args(["-t", "overlay", "overlay", "-o", &options, &mounted]).output()?;
    if !out.status.success() {
        let line = tail(&out.stderr).lines().next().unwrap_or("refused").replace(&mounted, "the mount point");
        return Ok(Err(line));
    }
    cmd("umount").arg(&mounted).run()?;
    Ok(Ok(()))
}

fn btrfs(dir: &Path) -> Result<std::result::Result<(), String>> {
    let is = statfs(dir).context("failed to look at the work dir's file system")?.filesystem_type()
        == BTRFS_SUPER_MAGIC;
    Ok(if is { Ok(()) } else { Err("not a btrfs file system".to_owned()) })
}
