//! Edits of a spec, completed by what is on the machine (PURE: `lstat` is given).

use super::spec::{ContainerEdits, DeviceNode};
use crate::oci::devices::{Edits, Hook, Mount, Node};
use std::path::Path;

/// What `lstat` says of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStat {
    /// `c` or `b`.
    pub kind: char,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// `lstat` of a path, `None` if it is no device node.
pub type Lstat<'a> = &'a dyn Fn(&Path) -> Option<NodeStat>;

/// `/dev/dri/cardN` sets modes and scans out; computing and rendering go through `renderDN`.
fn is_card(path: &Path) -> bool {
    path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("card"))
        && path.parent().is_some_and(|p| p.ends_with("dri"))
}

/// The edits, and a sentence for each node that isn't there. `cards`: see [`super::units::Wanted::cards`].
pub fn complete(edits: &ContainerEdits, cards: bool, lstat: Lstat) -> (Edits, Vec<String>) {
    let mut made = Edits::default();
    let mut problems = vec![];
    let mut dropped = vec![];
    for node in &edits.device_nodes {
        match with_stat(node, lstat) {
            Ok(node) if !cards && is_card(&node.path) => dropped.push(node.gid),
            Ok(node) => made.nodes.push(node),
            Err(problem) if cards || !is_card(&node.path) => problems.push(problem),
            Err(_) => dropped.extend(node.gid),
        }
    }
    let own = |node: &Node| (node.mode & 0o006 != 0o006).then_some(node.gid);
    let of_nodes: Vec<u32> = made.nodes.iter().filter_map(own).collect();
    // A group that only stands for nodes which were left out would be a right without a use.
    let idle = |gid: &u32| dropped.contains(gid) && !of_nodes.contains(gid);
    made.gids =
        edits.additional_gids.iter().copied().filter(|gid| !idle(gid)).chain(of_nodes.clone()).collect();
    made.gids.retain(|gid| *gid != 0);
    made.gids.sort_unstable();
    made.gids.dedup();
    for entry in &edits.env {
        if let Some((name, value)) = entry.split_once('=') {
            made.env.insert(name.into(), value.into());
        }
    }
    made.mounts = edits
        .mounts
        .iter()
        .map(|m| Mount {
            host: m.host_path.clone(),
            path: m.container_path.clone(),
            options: m.options.clone(),
        })
        .collect();
    made.hooks = edits
        .hooks
        .iter()
        .map(|h| Hook {
            stage: h.hook_name.clone(),
            path: h.path.clone(),
            args: h.args.clone(),
            env: h.env.clone(),
            timeout: h.timeout,
        })
        .collect();
    (made, problems)
}

/// Numbers are those of the machine: a spec that outlived a boot has old ones of drivers that get theirs anew.
fn with_stat(node: &DeviceNode, lstat: Lstat) -> Result<Node, String> {
    let host = node.host_path.as_ref().unwrap_or(&node.path);
    let found =
        lstat(host).ok_or_else(|| format!("names {}, which is no device node here", host.display()))?;
    let kind = node.kind.as_deref().map(|k| if k == "u" { "c" } else { k });
    if kind.is_some_and(|k| !k.starts_with(found.kind)) {
        let declared = kind.unwrap_or_default();
        return Err(format!("calls {} a node of type {declared}, and it is {}", host.display(), found.kind));
    }
    let permissions = match node.permissions.as_deref() {
        None | Some("") => "rwm",
        Some("none") => "",
        Some(some) => some,
    };
    Ok(Node {
        path: node.path.clone(),
        host: host.clone(),
        kind: found.kind,
        major: found.major,
        minor: found.minor,
        mode: node.file_mode.unwrap_or(found.mode) & 0o7777,
        uid: node.uid.unwrap_or(found.uid),
        gid: node.gid.unwrap_or(found.gid),
        permissions: permissions.into(),
    })
}
