//! systemd's view of the two services.

use crate::host::cmd::cmd;
use crate::host::fs::{Root, read};
use crate::paths;
use crate::world::{Role, Service};
use anyhow::Result;
use std::collections::BTreeMap;

/// Both services; one that has no unit file is inactive.
///
/// # Errors
/// systemd does not answer.
pub fn services(root: &Root) -> Result<BTreeMap<Role, Service>> {
    let roles = [(Role::Web, paths::WEB_UNIT), (Role::Worker, paths::WORKER_UNIT)];
    let present: Vec<Role> =
        roles.iter().filter(|(_, unit)| root.path(unit).exists()).map(|(role, _)| *role).collect();
    // A unit whose file was removed while it ran is still one to stop; without any trace there is nothing to ask.
    let ran = root.path(paths::RUN).exists();
    if !root.is_machine() || (present.is_empty() && !ran) {
        return Ok(BTreeMap::new());
    }
    let text = cmd("systemctl")
        .args(["show", "--property=Id,ActiveState,SubState,UnitFileState,NeedDaemonReload"])
        .args([Role::Web.unit(), Role::Worker.unit()])
        .run()?;
    let mut found = BTreeMap::new();
    for block in text.split("\n\n") {
        let value = |key: &str| block.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
        let role = match value("Id") {
            Some(id) if id == Role::Web.unit() => Role::Web,
            Some(id) if id == Role::Worker.unit() => Role::Worker,
            _ => continue,
        };
        let name = if role == Role::Web { "web" } else { "worker" };
        let state = value("ActiveState").unwrap_or_default();
        found.insert(
            role,
            Service {
                active: matches!(state, "active" | "reloading"),
                changing: matches!(state, "activating" | "deactivating"),
                enabled: value("UnitFileState") == Some("enabled"),
                stale: value("NeedDaemonReload") == Some("yes"),
                started_with: recorded(root, &format!("{name}.started"))?,
                loaded_keys: recorded(root, &format!("{name}.keys"))?,
            },
        );
    }
    Ok(found)
}

/// The digest in a record that the unit itself wrote, as `sha256sum` prints it.
fn recorded(root: &Root, name: &str) -> Result<Option<String>> {
    let text = read(&root.path(paths::RUN).join(name))?;
    Ok(text.and_then(|t| t.split_whitespace().next().map(str::to_owned)))
}
