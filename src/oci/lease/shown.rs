//! Who has what and who waits, as data: what the operator's command and the action `gpu-info` show.

use super::health;
use super::live::{Kernel, now};
use super::model::{Lease, Table, Waiter};
use super::say::span;
use super::table::{self, Stored};
use crate::oci::devices::Unit;
use crate::oci::policy::Gpus;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// All units that tasks may have, and the line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// In the worker's order.
    pub units: Vec<ShownUnit>,
    /// First come first.
    pub waiters: Vec<ShownWaiter>,
}

/// A unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownUnit {
    /// See [`Unit::id`].
    pub id: String,
    /// See [`Unit::names`].
    pub names: Vec<String>,
    /// See [`Unit::model`].
    pub model: Option<String>,
    /// So many may have it at once.
    pub replicas: u32,
    /// Why nobody gets it.
    pub sick: Option<String>,
    /// It was given before `gpu-device-ids` or the split of a GPU changed: nobody gets it any more.
    #[serde(default)]
    pub withdrawn: bool,
    /// Who has it.
    pub leases: Vec<ShownLease>,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ShownLease {
    /// The container's handle, as `fly containers` lists it.
    pub container: String,
    /// See [`build`].
    pub build: Option<String>,
    /// Since when: seconds ago.
    pub seconds: u64,
    /// What keeps it, for people.
    pub state: String,
    /// Whether a process makes the container, enters it, or is in it.
    pub in_use: bool,
}

/// A task in line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownWaiter {
    /// The container's handle.
    pub container: String,
    /// See [`build`].
    pub build: Option<String>,
    /// Since when: seconds ago.
    pub seconds: u64,
    /// How many units it asks for.
    pub count: usize,
    /// Units that would do.
    pub units: Vec<String>,
}

impl Shown {
    /// What is there now. Nothing is written.
    ///
    /// # Errors
    /// The table can't be used; says why.
    pub fn now(gpus: &Gpus, units: &[Unit], kernel: &Kernel, boot: &str) -> Result<Self, String> {
        let dir = &gpus.leases.dir;
        let mut table = match table::load(dir, boot) {
            Stored::Table(table) => table,
            // The first task makes it.
            Stored::Lost(_) if !dir.join(table::TABLE).exists() => Table::new(boot),
            Stored::Lost(why) | Stored::Unreadable(why) => return Err(why),
        };
        table.drop_ended(kernel);
        let (now, sick) = (now(), health::sick(dir));
        let seconds = |since: u64| now.saturating_sub(since) / 1000;
        let lease = |lease: &Lease| ShownLease {
            container: lease.id.clone(),
            build: build(&kernel.seen(&lease.bundle)),
            seconds: seconds(lease.since),
            state: state(lease, kernel),
            in_use: lease.in_use(kernel),
        };
        let unit = |unit: &Unit| ShownUnit {
            id: unit.id.clone(),
            names: unit.names.clone(),
            model: unit.model.clone(),
            replicas: gpus.leases.replicas.max(1),
            sick: sick.get(&unit.id).cloned(),
            withdrawn: false,
            leases: table.leases.iter().filter(|l| l.units.contains(&unit.id)).map(lease).collect(),
        };
        let withdrawn = |id: String| ShownUnit {
            names: vec![],
            model: None,
            replicas: gpus.leases.replicas.max(1),
            sick: sick.get(&id).cloned(),
            withdrawn: true,
            leases: table.leases.iter().filter(|l| l.units.contains(&id)).map(lease).collect(),
            id,
        };
        let waiter = |Waiter { caller, ask }: &Waiter| ShownWaiter {
            container: caller.id.clone(),
            build: build(&kernel.seen(&caller.bundle)),
            seconds: seconds(caller.since),
            count: ask.count,
            units: ask.units.clone(),
        };
        Ok(Shown {
            units: units.iter().map(unit).chain(table.withdrawn(units).into_iter().map(withdrawn)).collect(),
            waiters: table.waiters.iter().map(waiter).collect(),
        })
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let time = |seconds: u64| span(seconds.saturating_mul(1000));
        let who = |container: &str, build: &Option<String>| match build {
            Some(build) => format!("container {container} ({build})"),
            None => format!("container {container}"),
        };
        for unit in &self.units {
            let name =
                unit.names.first().map_or_else(|| unit.id.clone(), |name| format!("{name} ({})", unit.id));
            let _ = write!(text, "{name}  {}", unit.model.as_deref().unwrap_or(""));
            if unit.withdrawn {
                text.push_str("no longer given to tasks");
            }
            let _ = match (&unit.sick, unit.leases.is_empty()) {
                (Some(why), _) => writeln!(text, "  out of order: {why}"),
                (None, true) => writeln!(text, "  free"),
                (None, false) => writeln!(text),
            };
            for lease in &unit.leases {
                let who = who(&lease.container, &lease.build);
                let _ = writeln!(text, "  {who} for {}: {}", time(lease.seconds), lease.state);
            }
        }
        for (at, waiter) in self.waiters.iter().enumerate() {
            let (who, of) = (who(&waiter.container, &waiter.build), waiter.units.len());
            let (for_, count) = (time(waiter.seconds), waiter.count);
            let _ = writeln!(text, "waits, {}. in line: {who} for {for_}, for {count} of {of}", at + 1);
        }
        text
    }
}

/// How a lease stands.
pub fn state(lease: &Lease, kernel: &Kernel) -> String {
    use super::model::World;
    let inside = lease.inside.as_ref().map(|inside| kernel.inhabitants(inside)).unwrap_or_default();
    let pids = |found: Vec<i32>| found.iter().map(i32::to_string).collect::<Vec<_>>().join(" ");
    let movers: Vec<i32> = lease.movers.iter().filter(|p| kernel.lives(p)).map(|p| p.pid).collect();
    match (inside.is_empty(), movers.is_empty()) {
        (false, _) => format!("in use by {}", pids(inside.iter().flatten().map(|p| p.pid).collect())),
        (_, false) => format!("entered or made by {}", pids(movers)),
        _ if lease.suspect => "kept, since the table was lost".to_owned(),
        _ => "waits for its first process".to_owned(),
    }
}

/// `main/train/fit #12`: team, pipeline, job and build, as far as the container's variables say. Concourse tells them to
/// gets and puts; of a task it tells only what its author passes on.
fn build(bundle: &Path) -> Option<String> {
    let config: Value = serde_json::from_str(&fs::read_to_string(bundle.join("config.json")).ok()?).ok()?;
    let pairs = config["process"]["env"].as_array()?.iter().filter_map(|pair| pair.as_str()?.split_once('='));
    let env: BTreeMap<&str, &str> = pairs.filter(|(_, value)| !value.is_empty()).collect();
    let path: Vec<&str> = ["BUILD_TEAM_NAME", "BUILD_PIPELINE_NAME", "BUILD_JOB_NAME"]
        .iter()
        .filter_map(|name| env.get(name).copied())
        .collect();
    let number = env.get("BUILD_NAME").map(|number| format!("#{number}"));
    let words: Vec<String> = [path.join("/")].into_iter().filter(|p| !p.is_empty()).chain(number).collect();
    // It goes to terminals.
    let plain = |c: char| if c.is_control() { '?' } else { c };
    (!words.is_empty()).then(|| words.join(" ").chars().map(plain).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_what_the_variables_say() {
        let dir = tempfile::tempdir().unwrap();
        let said = |env: &str| {
            fs::write(dir.path().join("config.json"), format!("{{\"process\":{{\"env\":{env}}}}}")).unwrap();
            build(dir.path())
        };
        assert_eq!(said(r#"["PATH=/bin"]"#), None);
        assert_eq!(said(r#"["BUILD_NAME=", "BUILD_JOB_NAME="]"#), None);
        assert_eq!(said(r#"["BUILD_JOB_NAME=fit\u001b[2J"]"#), Some("fit?[2J".into()));
        let all =
            r#"["BUILD_NAME=12", "BUILD_TEAM_NAME=main", "BUILD_JOB_NAME=fit", "BUILD_PIPELINE_NAME=train"]"#;
        assert_eq!(said(all), Some("main/train/fit #12".into()));
        fs::write(dir.path().join("config.json"), "{").unwrap();
        assert_eq!(build(dir.path()), None);
    }

    #[test]
    fn all_in_one_text() {
        let lease = ShownLease {
            container: "c1".into(),
            build: Some("main/train/fit #12".into()),
            seconds: 61,
            state: "in use by 7".into(),
            in_use: true,
        };
        let unit = |name: &str, sick: Option<&str>, leases: &[ShownLease]| ShownUnit {
            id: format!("GPU-{name}"),
            names: vec![name.to_owned()],
            model: Some("NVIDIA T4".into()),
            replicas: 1,
            sick: sick.map(str::to_owned),
            withdrawn: false,
            leases: leases.to_vec(),
        };
        let waiter = ShownWaiter {
            container: "c2".into(),
            build: None,
            seconds: 5,
            count: 1,
            units: vec!["GPU-0".into(), "GPU-2".into()],
        };
        let units = vec![unit("0", None, &[lease]), unit("1", Some("XID 79"), &[]), unit("2", None, &[])];
        let shown = Shown { units, waiters: vec![waiter] };
        let text = "0 (GPU-0)  NVIDIA T4\n  container c1 (main/train/fit #12) for 1m1s: in use by 7\n\
            1 (GPU-1)  NVIDIA T4  out of order: XID 79\n2 (GPU-2)  NVIDIA T4  free\n\
            waits, 1. in line: container c2 for 5s, for 1 of 2\n";
        assert_eq!(shown.text(), text);
        let data = serde_json::to_value(&shown).unwrap();
        assert_eq!(serde_json::from_value::<Shown>(data).unwrap(), shown);
    }
}
