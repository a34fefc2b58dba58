//! The files of a unit on its machine: charm, tools, sockets.

use crate::charm;
use crate::model::tag_of;
use crate::wire::Job;
use anyhow::{Context as _, Result};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The directories of an agent.
pub struct Layout {
    /// `/var/lib/juju`, or the same under another root.
    pub data_dir: PathBuf,
}

impl Layout {
    /// `agents/unit-app-0`.
    pub fn agent_dir(&self, unit: &str) -> PathBuf {
        self.data_dir.join("agents").join(tag_of(unit))
    }

    /// `agents/unit-app-0/charm`.
    pub fn charm_dir(&self, unit: &str) -> PathBuf {
        self.agent_dir(unit).join("charm")
    }

    fn tools_dir(&self, unit: &str) -> PathBuf {
        self.data_dir.join("tools").join(tag_of(unit))
    }

    /// Puts this very program where the tools point to. Returns its path.
    pub fn install_tools(&self, version: &str) -> Result<PathBuf> {
        let folder = self.data_dir.join("tools").join(format!("{version}-ubuntu-amd64"));
        fs::create_dir_all(&folder)?;
        let target = folder.join("jujuc");
        let own = std::env::current_exe()?;
        let same = |path: &Path| fs::metadata(path).ok().map(|found| (found.len(), found.modified().ok()));
        if same(&target).map(|found| found.0) != same(&own).map(|found| found.0) {
            let new = folder.join("jujuc.new");
            fs::copy(&own, &new).context("cannot copy the hook tools")?;
            fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
            fs::rename(&new, &target)?;
        }
        Ok(target)
    }

    /// Makes a unit's directories and its tools.
    pub fn prepare(&self, job: &Job) -> Result<()> {
        fs::create_dir_all(self.agent_dir(&job.unit).join("resources"))?;
        fs::create_dir_all(self.agent_dir(&job.unit).join("state"))?;
        let tools = self.tools_dir(&job.unit);
        fs::create_dir_all(&tools)?;
        let target = self.install_tools(&job.version)?;
        for tool in &job.tools {
            let link = tools.join(tool);
            if fs::read_link(&link).ok().as_ref() != Some(&target) {
                // It may be missing or point elsewhere.
                let _ = fs::remove_file(&link);
                symlink(&target, &link)?;
            }
        }
        Ok(())
    }

    /// Whether the job's charm is to be unpacked first.
    pub fn wants_charm(&self, job: &Job) -> bool {
        let there = fs::read_to_string(self.charm_dir(&job.unit).join(".juju-charm")).unwrap_or_default();
        there.is_empty() || job.unpack && there.trim() != job.charm
    }

    /// Replaces the unit's charm by an archive's.
    pub fn unpack(&self, job: &Job, archive: &Path) -> Result<()> {
        let target = self.charm_dir(&job.unit);
        let new = self.agent_dir(&job.unit).join("charm.new");
        if new.exists() {
            fs::remove_dir_all(&new)?;
        }
        charm::unpack(archive, &new)?;
        fs::write(new.join(".juju-charm"), format!("{}\n", job.charm))?;
        if target.exists() {
            fs::remove_dir_all(&target)?;
        }
        fs::rename(&new, &target).context("cannot put the new charm in place")
    }

    /// Takes a unit's files away.
    pub fn remove_unit(&self, unit: &str) {
        // What is not there needs no removal.
        let _ = fs::remove_dir_all(self.agent_dir(unit));
        let _ = fs::remove_dir_all(self.tools_dir(unit));
    }
}
