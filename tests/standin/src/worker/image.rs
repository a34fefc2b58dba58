//! Images: a folder of the machine, or the small one that comes with the stand-in, imported once into a volume.

use super::bundle::max_id;
use super::volumes::{Volumes, copy, run};
use crate::protocol::Task;
use crate::version::asset;
use anyhow::{Context, Result, bail};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

/// Two tasks that start at once import an image once.
static IMPORT: Mutex<()> = Mutex::new(());

/// The handle of the volume with a task's image; its files are in `rootfs`.
pub fn import(volumes: &Volumes, task: &Task) -> Result<String> {
    let handle = handle(task)?;
    let _one = IMPORT.lock().unwrap_or_else(|e| e.into_inner());
    let complete = volumes.path(&handle).join("complete");
    if complete.exists() {
        return Ok(handle);
    }
    volumes.destroy(&handle);
    let rootfs = volumes.create(&handle)?.join("rootfs");
    std::fs::create_dir(&rootfs)?;
    let filled = fill(&rootfs, task).and_then(|()| Ok(std::fs::write(&complete, "")?));
    if let Err(e) = filled {
        volumes.destroy(&handle);
        return Err(e.context("failed to import the image"));
    }
    Ok(handle)
}

fn fill(rootfs: &Path, task: &Task) -> Result<()> {
    if task.image_rootfs.is_empty() {
        let archive = asset("resource-types/standin/rootfs.tgz")
            .context("the packed tree has no resource-types/standin/rootfs.tgz")?;
        run(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(rootfs))?;
    }
    for dir in &task.image_rootfs {
        copy(&Path::new(dir).join("."), rootfs)?;
    }
    if !task.privileged {
        // The container's root is the last user of the namespace; what was root's must be its.
        let root = max_id();
        run(Command::new("chown").args(["-Rh", "--from=0", &root.to_string()]).arg(rootfs))?;
        run(Command::new("chown").args(["-Rh", "--from=:0", &format!(":{root}")]).arg(rootfs))?;
    }
    Ok(())
}

fn handle(task: &Task) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    (task.privileged, &task.image_rootfs, crate::version::version()).hash(&mut hasher);
    for dir in &task.image_rootfs {
        let meta = std::fs::metadata(dir).with_context(|| format!("image {dir}"))?;
        if !meta.is_dir() {
            bail!("image {dir} is not a folder");
        }
        (meta.mtime(), meta.ino()).hash(&mut hasher);
    }
    Ok(format!("image-{:016x}", hasher.finish()))
}
