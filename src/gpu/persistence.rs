//! `gpu-persistence-mode`: NVIDIA's driver stays loaded between tasks, or each of them waits for it to start.
//!
//! NVML is told so in the child that asks it; it passes that on to `nvidia-persistenced` where that runs, so it is started
//! where it is installed. The mode is gone with the boot, and so is the note of what was changed. Only that is undone.

use super::said::{Answer, Said};
use super::wanted::Wanted;
use crate::host::cmd::cmd;
use crate::host::fs::{read, remove, write_atomic};
use crate::oci::devices::Vendor;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where distributions and operators put units.
const UNITS: [&str; 3] = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
const DAEMON: &str = "nvidia-persistenced.service";
const PATIENCE: Duration = Duration::from_secs(5);

/// What was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Changed {
    /// Ids of GPUs whose mode was off.
    pub gpus: BTreeSet<String>,
    /// The daemon did not run.
    pub daemon: bool,
}

/// The note of it.
pub struct Note {
    path: PathBuf,
    changed: Changed,
}

impl Note {
    /// Reads it from the directory of what was seen.
    pub fn read(out: &Path) -> Self {
        let path = out.join("persistence.json");
        let text = read(&path).ok().flatten().unwrap_or_default();
        Self { path, changed: serde_json::from_str(&text).unwrap_or_default() }
    }

    /// Whether the mode is to be on; `None`: it is to be left alone.
    fn goal(&self, wanted: &Wanted) -> Option<bool> {
        let on = wanted.persistence && wanted.has(Vendor::Nvidia);
        (on || self.changed != Changed::default()).then_some(on)
    }

    /// Starts the daemon, where it is wanted, installed and does not run; before anything is asked.
    pub fn start_daemon(&mut self, wanted: &Wanted) -> Result<()> {
        let installed = || UNITS.iter().any(|dir| Path::new(dir).join(DAEMON).exists());
        let runs = || Path::new("/run/nvidia-persistenced/socket").exists();
        if self.goal(wanted) == Some(true) && !runs() && installed() && systemctl("start") {
            self.changed.daemon = true;
            self.write()?;
        }
        Ok(())
    }

    /// What the child that asks NVML is to do besides.
    pub fn questions(&self, wanted: &Wanted) -> Vec<String> {
        match self.goal(wanted) {
            None => vec![],
            Some(true) => vec!["--persist".into(), "on".into()],
            Some(false) => self.changed.gpus.iter().flat_map(|id| ["--release".into(), id.clone()]).collect(),
        }
    }

    /// Notes what it did. What can't be undone, since the GPU is gone or hangs, is done with.
    pub fn keep(mut self, wanted: &Wanted, answer: &Answer) -> Result<()> {
        match (self.goal(wanted), answer) {
            (Some(true), Answer::Said(Said { persisted, .. }))
                if !persisted.iter().all(|id| self.changed.gpus.contains(id)) =>
            {
                self.changed.gpus.extend(persisted.iter().cloned());
                self.write()
            }
            (Some(false), _) => {
                if self.changed.daemon {
                    systemctl("stop");
                }
                remove(&self.path)
            }
            _ => Ok(()),
        }
    }

    fn write(&self) -> Result<()> {
        write_atomic(&self.path, &serde_json::to_vec(&self.changed)?, 0o644, None)
    }
}

/// Whether it did so. In a container it can't, and nothing waits for it.
fn systemctl(verb: &str) -> bool {
    let done = cmd("systemctl").args([verb, DAEMON]).deadline(PATIENCE).output();
    done.is_ok_and(|out| out.status.success())
}
