//! systemd's word on its units, over D-Bus: `systemctl show` tells the same, and takes milliseconds to start.

use anyhow::{Context, Result};
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
    let mut found = vec![];
    for name in names {
        let path = "/org/freedesktop/systemd1";
        let unit = call(&bus, path, "org.freedesktop.systemd1.Manager", "LoadUnit", &(*name,)).await?;
        let unit: OwnedObjectPath = unit.body().deserialize()?;
        let text = async |name| property(&bus, &unit, "Unit", name).await;
        found.push(Unit {
            active_state: text("ActiveState").await?.try_into()?,
            file_state: text("UnitFileState").await?.try_into()?,
            needs_reload: text("NeedDaemonReload").await?.try_into()?,
            main_pid: Some(property(&bus, &unit, "Service", "MainPID").await?.try_into()?)
                .filter(|pid| *pid != 0),
        });
    }
    Ok(found)
}

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
