//! systemd's view of the two services.

use crate::host::fs::{Root, read};
use crate::host::systemd;
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
    let roles = [Role::Web, Role::Worker];
    let mut found = BTreeMap::new();
    for (role, unit) in roles.into_iter().zip(systemd::services(&roles.map(Role::unit))?) {
        let name = if role == Role::Web { "web" } else { "worker" };
        found.insert(
            role,
            Service {
                active: matches!(unit.active_state.as_str(), "active" | "reloading"),
                changing: matches!(unit.active_state.as_str(), "activating" | "deactivating"),
                enabled: unit.file_state == "enabled",
                stale: unit.needs_reload,
                pid: unit.main_pid,
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
