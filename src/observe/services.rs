//! systemd's view of the services.

use crate::host::cmd::cmd;
use crate::host::fs::{Root, read};
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
    let text = cmd("systemctl")
        .args(["show", "--property=Id,ActiveState,SubState,UnitFileState,NeedDaemonReload"])
        .args(Role::ALL.map(Role::unit))
        .run()?;
    let mut found = BTreeMap::new();
    for block in text.split("\n\n") {
        let value = |key: &str| block.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
        let Some(role) = Role::ALL.into_iter().find(|role| value("Id") == Some(role.unit())) else {
            continue;
        };
        let name = role.record();
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
