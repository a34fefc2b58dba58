//! The runtime wrapper's files as they should be.

use super::gpu;
use super::roles::roles;
use crate::config::{Config, FolderMounts};
use crate::oci::policy::{FORMAT, Folders, Policy, Steps};
use crate::paths;
use crate::step::{File, FileOwner};
use crate::world::World;

/// What the worker starts in containerd's place, as it ships.
pub const LAUNCHER: &str = include_str!("../../charm/bin/containerd");

/// What the wrapper reads and what leads to it; none where no worker is wanted.
pub fn files(world: &World) -> Option<Vec<File>> {
    let config = world.config.as_ref()?;
    if roles(world).workers().is_empty() {
        return None;
    }
    let file =
        |path: &str, text: String, mode| File { path: path.into(), text, mode, owner: FileOwner::Root };
    Some(vec![
        file(paths::LAUNCHER, LAUNCHER.to_owned(), 0o755),
        // Read anew for each container: no worker is restarted for it.
        file(paths::POLICY, policy_text(&policy(world, config)), 0o644),
    ])
}

fn policy(world: &World, config: &Config) -> Policy {
    Policy {
        format: FORMAT,
        runc: paths::RUNC.into(),
        folders: Folders { steps: steps(config.folder_mounts), root: paths::FOLDERS.into() },
        gpus: gpu::policy(world),
    }
}

fn steps(mounts: FolderMounts) -> Steps {
    match mounts {
        FolderMounts::None => Steps::None,
        FolderMounts::Tasks => Steps::Tasks,
        FolderMounts::All => Steps::All,
    }
}

fn policy_text(policy: &Policy) -> String {
    let mut text = serde_json::to_string_pretty(policy).unwrap_or_default();
    text.push('\n');
    text
}

/// How many folders steps see, `3 folders: 2 RO, 1 RW`; `None`: none.
pub fn folder_count(world: &World) -> Option<String> {
    let folders = &world.machine.folders.folders;
    let writable = folders.iter().filter(|folder| folder.writable).count();
    let noun = if folders.len() == 1 { "folder" } else { "folders" };
    let count = || format!("{} {noun}: {} RO, {writable} RW", folders.len(), folders.len() - writable);
    (!folders.is_empty()).then(count)
}
