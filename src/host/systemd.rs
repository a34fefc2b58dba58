//! systemd's word on its units, over D-Bus: `systemctl show` tells the same, and takes milliseconds to start.

use anyhow::{Context, Result, ensure};
use std::time::Duration;
use zbus::Connection;
use zbus::OwnedObjectPath;
use zbus::connection::Builder;
use zbus::zvariant::OwnedVariant;

/// A unit as systemd has it (org.freedesktop.systemd1(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// `active`, `reloading`, `inactive`, `failed`, `activating`, `deactivating`…
    pub active_state: String,
    /// `enabled`, `disabled`…; empty where there is no file.
    pub file_state: String,
    /// The file has changed since it was read.
    pub needs_reload: bool,
    /// The service's main process, while it runs.
    pub main_pid: Option<u32>,
}

/// The named services, in their order. One without a file is inactive.
///
/// # Errors
/// The system bus or systemd can't be reached.
pub fn services(names: &[&str]) -> Result<Vec<Unit>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(ask(names)).context("failed to ask systemd over D-Bus; is dbus.service running?")
}

async fn ask(names: &[&str]) -> Result<Vec<Unit>> {
    let bus = Builder::system().method_timeout(Duration::from_secs(25)).build().await?;
    let path = "/org/freedesktop/systemd1";
    let answer = call(&bus, path, "org.freedesktop.systemd1.Manager", "ListUnitsByNames", &(names,)).await?;
    let listed: Vec<Listed> = answer.body().deserialize()?;
    // One for each name, in their order; each says the name that it has itself, which may be another.
    ensure!(listed.len() == names.len(), "systemd tells {} of {} units", listed.len(), names.len());
    let mut found = vec![];
    for (_, _, load_state, active_state, _, _, path, ..) in &listed {
        let mut unit = Unit {
            active_state: active_state.clone(),
            file_state: String::new(),
            needs_reload: false,
            main_pid: None,
        };
        // Most machines have one of the charm's services only: what there is no trace of is not asked about.
        if (load_state.as_str(), active_state.as_str()) != ("not-found", "inactive") {
            unit.file_state = property(&bus, path, "Unit", "UnitFileState").await?.try_into()?;
            unit.needs_reload = property(&bus, path, "Unit", "NeedDaemonReload").await?.try_into()?;
            let pid: u32 = property(&bus, path, "Service", "MainPID").await?.try_into()?;
            unit.main_pid = Some(pid).filter(|pid| *pid != 0);
        }
        found.push(unit);
    }
    Ok(found)
}

/// Name, description, load state, active state, state of its type, whom it follows, object, and its job: number, type,
/// object.
type Listed = (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

async fn property(bus: &Connection, unit: &str, interface: &str, name: &str) -> Result<OwnedVariant> {
    let interface = format!("org.freedesktop.systemd1.{interface}");
    let answer = call(bus, unit, "org.freedesktop.DBus.Properties", "Get", &(interface, name)).await?;
    Ok(answer.body().deserialize()?)
}

async fn call<B: serde::Serialize + zbus::zvariant::DynamicType + Sync>(
    bus: &Connection,
    path: &str,
    interface: &str,
    method: &str,
    body: &B,
) -> Result<zbus::Message> {
    Ok(bus.call_method(Some("org.freedesktop.systemd1"), path, Some(interface), method, body).await?)
}
