//! Room on the disk: asked for before it is needed, and told in one sentence when it runs out.

use super::{Refusal, Step, Stop, mb};
use crate::host::fs::{self, Root};
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes that may still be written below `/opt/concourse`.
pub(super) fn free(root: &Root) -> Result<u64> {
    let dir = root.path("/opt/concourse");
    fs::make_dir(&dir)?;
    let stat = nix::sys::statvfs::statvfs(&dir)
        .with_context(|| format!("failed to read the free space of {}", dir.display()))?;
    Ok(stat.blocks_available() * stat.fragment_size())
}

/// Refuses unless `needed` bytes and a little more (directories, the record) are free.
pub(super) fn check(root: &Root, needed: u64) -> Step<()> {
    let needed = needed + needed / 20 + (1 << 20);
    let free = free(root)?;
    if free < needed { Err(too_little(needed, free)) } else { Ok(()) }
}

/// `needed` may turn out to have been a low estimate.
pub(super) fn too_little(needed: u64, free: u64) -> Stop {
    let (needed, free_mb) = (mb(needed), free / 1_000_000);
    super::refuse(if needed > free_mb {
        format!(
            "Concourse needs about {needed} MB free in /opt/concourse, {free_mb} MB are free: make room there"
        )
    } else {
        format!("Concourse needs more than the {free_mb} MB that are free in /opt/concourse: make room there")
    })
}

/// The disk filled up where nobody could say how much more was needed.
pub(super) fn full(root: &Root) -> Refusal {
    let free = free(root).unwrap_or(0);
    Refusal(format!("the disk of /opt/concourse is full ({} MB free): make room there", free / 1_000_000))
}

/// Whether the disk, or a quota, is what was in the way.
pub(super) fn is_full(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|e| e.downcast_ref::<std::io::Error>()).any(is_full_io)
}

fn is_full_io(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// How much a gzip file unpacks to, in bytes.
///
/// Its last four bytes say so when it was written in one piece; where they can't be true it is estimated.
pub(super) fn unpacked_size(archive: &Path) -> Result<u64> {
    let fail = || format!("failed to read {}", archive.display());
    let mut file = File::open(archive).with_context(fail)?;
    let length = file.metadata().with_context(fail)?.len();
    if length < 18 {
        return Ok(0); // no gzip file is so short: unpacking says that better
    }
    let mut last = [0; 4];
    file.seek(SeekFrom::End(-4)).with_context(fail)?;
    file.read_exact(&mut last).with_context(fail)?;
    let told = u64::from(u32::from_le_bytes(last));
    // Deflate can't do better than 1032:1, and a tar of programs does better than 1:1.
    Ok(if (length..=length * 1032).contains(&told) { told } else { length * 3 })
}
