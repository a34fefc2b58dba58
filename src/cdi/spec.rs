//! One CDI file as types. What isn't understood makes the file invalid: half of an edit is worse than none (PURE).

use serde::Deserialize;
use std::path::PathBuf;

/// Versions of the format that are read.
const VERSIONS: [&str; 8] = ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"];

/// A CDI file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// One of the versions that are read.
    pub cdi_version: String,
    /// `VENDOR/CLASS`: `nvidia.com/gpu`.
    pub kind: String,
    #[serde(default, rename = "annotations")]
    _annotations: Option<serde_json::Value>,
    /// What can be asked for.
    pub devices: Vec<Device>,
    /// What each container gets that has any of them.
    #[serde(default)]
    pub container_edits: ContainerEdits,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Device {
    /// `0`, `0:1`, `GPU-…`, `all`.
    pub name: String,
    #[serde(default, rename = "annotations")]
    _annotations: Option<serde_json::Value>,
    /// What a container gets with it.
    pub container_edits: ContainerEdits,
}

/// Additions to a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ContainerEdits {
    /// `NAME=value`.
    pub env: Vec<String>,
    /// Device nodes.
    pub device_nodes: Vec<DeviceNode>,
    /// Programs that run while the container is made.
    pub hooks: Vec<Hook>,
    /// Mounts.
    pub mounts: Vec<Mount>,
    /// Groups of the process.
    pub additional_gids: Vec<u32>,
    /// Resource Director Technology; no GPU uses it.
    pub intel_rdt: Option<serde_json::Value>,
    /// Network devices; no GPU uses them.
    pub net_devices: Option<serde_json::Value>,
}

/// A device node; generators leave out what `lstat` knows, and numbers that are 0.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceNode {
    /// In the container.
    pub path: PathBuf,
    /// On the host, where that is another.
    #[serde(default)]
    pub host_path: Option<PathBuf>,
    /// `c`, `b`, `u`; pipes are nothing that a GPU has.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// Major number.
    #[serde(default)]
    pub major: Option<u32>,
    /// Minor number.
    #[serde(default)]
    pub minor: Option<u32>,
    /// Permission bits.
    #[serde(default)]
    pub file_mode: Option<u32>,
    /// What the device cgroup lets through; `none`: nothing.
    #[serde(default)]
    pub permissions: Option<String>,
    /// Owner.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Group.
    #[serde(default)]
    pub gid: Option<u32>,
}

/// A hook.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hook {
    /// Stage: `createContainer`.
    pub hook_name: String,
    /// The program.
    pub path: PathBuf,
    /// Its arguments, its own name first.
    #[serde(default)]
    pub args: Vec<String>,
    /// Its environment.
    #[serde(default)]
    pub env: Vec<String>,
    /// Seconds that it may take.
    #[serde(default)]
    pub timeout: Option<u32>,
}

/// A mount.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mount {
    /// On the host.
    pub host_path: PathBuf,
    /// In the container.
    pub container_path: PathBuf,
    /// As in `mount -o`.
    #[serde(default)]
    pub options: Vec<String>,
    /// File system; none is a bind mount.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
}

const STAGES: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

/// Reads the text of a file, JSON or YAML whatever it is called; the error ends a sentence.
pub fn parse(text: &str) -> Result<Spec, String> {
    // Nearly all JSON is YAML, but for escapes; JSON's reader knows those.
    let json = text.trim_start().starts_with('{').then(|| serde_json::from_str(text).ok()).flatten();
    let yaml = || serde_yaml::from_str(text).map_err(|e| format!("can't be read: {e}"));
    let spec: Spec = json.map_or_else(yaml, Ok)?;
    if !VERSIONS.contains(&spec.cdi_version.as_str()) {
        return Err(format!("has CDI version {:?}; known are {}", spec.cdi_version, VERSIONS.join(", ")));
    }
    let word = |w: &str, also: &str| {
        w.starts_with(|c: char| c.is_ascii_alphabetic())
            && w.ends_with(|c: char| c.is_ascii_alphanumeric())
            && w.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
    };
    match spec.kind.split_once('/') {
        Some((vendor, class)) if word(vendor, "-_.") && word(class, "-_.") => {}
        _ => return Err(format!("has kind {:?}, which is not VENDOR/CLASS", spec.kind)),
    }
    edits_fit(&spec.container_edits)?;
    for (at, device) in spec.devices.iter().enumerate() {
        let name = &device.name;
        let ends = |c: char| c.is_ascii_alphanumeric();
        if !(name.starts_with(ends)
            && name.ends_with(ends)
            && name.chars().all(|c| ends(c) || "-_.:".contains(c)))
        {
            return Err(format!("has a device called {name:?}, which is no CDI name"));
        }
        if spec.devices[..at].iter().any(|d| d.name == *name) {
            return Err(format!("has two devices called {name:?}"));
        }
        edits_fit(&device.container_edits)?;
    }
    Ok(spec)
}

fn edits_fit(edits: &ContainerEdits) -> Result<(), String> {
    for entry in &edits.env {
        if entry.split_once('=').is_none_or(|(name, _)| name.is_empty()) {
            return Err(format!("sets {entry:?}, which is not NAME=value"));
        }
    }
    for node in &edits.device_nodes {
        let kind = node.kind.as_deref().unwrap_or("c");
        if !["b", "c", "u"].contains(&kind) || !node.path.is_absolute() {
            return Err(format!("has the node {} of type {kind:?}", node.path.display()));
        }
        if node.permissions.as_deref().is_some_and(|p| p != "none" && !p.chars().all(|c| "rwm".contains(c))) {
            return Err(format!("gives the node {} permissions that aren't of rwm", node.path.display()));
        }
    }
    for mount in &edits.mounts {
        if !["", "bind", "none"].contains(&mount.kind.as_deref().unwrap_or("")) {
            return Err(format!("mounts {} as something else than a bind", mount.container_path.display()));
        }
        if !mount.host_path.is_absolute() || !mount.container_path.is_absolute() {
            return Err(format!(
                "mounts {}, not from an absolute path to one",
                mount.container_path.display()
            ));
        }
    }
    for hook in &edits.hooks {
        if !STAGES.contains(&hook.hook_name.as_str()) || !hook.path.is_absolute() {
            return Err(format!("has a hook {} at {:?}", hook.path.display(), hook.hook_name));
        }
    }
    if edits.intel_rdt.is_some() || edits.net_devices.is_some() {
        return Err("uses intelRdt or netDevices, which GPUs don't need and this charm can't give".into());
    }
    Ok(())
}
