//! systemd's view of the services.

use crate::host::fs::{Root, read};
use crate::host::systemd;
use crate::paths;
use crate::world::{Role, Service};
use anyhow::Result;
use std::collections::BTreeMap;

/// All services; one that has no unit file is inactive.
///
/// # Errors
/// systemd does not answer.
pub fn services(root: &Root) -> Result<BTreeMap<Role, Service>> {
    let present = Role::ALL.into_iter().any(|role| root.path(role.unit_file()).exists());
    // A unit whose file was removed while it ran is still one to stop; without any trace there is nothing to ask.
    let ran = root.path(paths::RUN).exists();
    if !root.is_machine() || (!present && !ran) {
        return Ok(BTreeMap::new());
    }
    let mut found = BTreeMap::new();
    for (role, unit) in Role::ALL.into_iter().zip(systemd::services(&Role::ALL.map(Role::unit))?) {
        let name = role.record();
        found.insert(
            role,
            Service {
                active: matches!(unit.active_state.as_str(), "active" | "reloading"),
                changing: matches!(unit.active_state.as_str(), "activating" | "deactivating"),
                enabled: unit.file_state == "enabled",
                stale: unit.needs_reload,
                pid: unit.main_pid,
                started_with: recorded(root, &role.started_record())?,
                loaded_keys: recorded(root, &format!("{}/{name}.keys", paths::RUN))?,
            },
        );
    }
    Ok(found)
}

/// The digest in a record that the unit itself wrote, as `sha256sum` prints it.
fn recorded(root: &Root, path: &str) -> Result<Option<String>> {
    let text = read(&root.path(path))?;
    Ok(text.and_then(|t| t.split_whitespace().next().map(str::to_owned)))
}
