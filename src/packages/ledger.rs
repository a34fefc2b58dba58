//! What the charm has added to the machine by apt: only that goes again.

use super::source::Source;
use crate::host::fs::{self, Root};
use crate::paths;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a package is there for; it goes when that is not wanted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// NVIDIA's libraries.
    Libraries,
    /// NVIDIA's kernel driver, with its libraries.
    Driver,
    /// NVIDIA's generator.
    Toolkit,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    /// Packages that were not there before, by name.
    pub packages: BTreeMap<String, Entry>,
    /// The boot in which a driver was installed last: it may have to wait for the next one.
    pub driver_boot: Option<String>,
}

/// One package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What for.
    pub purpose: Purpose,
    /// No upgrade but the charm's own: it has to be of the loaded kernel module's version.
    pub held: bool,
}

impl Ledger {
    /// Reads it; one that was never written is empty.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn read(root: &Root) -> Result<Self> {
        let text = fs::read(&root.path(paths::PACKAGES))?.unwrap_or_default();
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    /// Writes it; an empty one is none.
    pub(super) fn write(&self, root: &Root) -> Result<()> {
        let path = root.path(paths::PACKAGES);
        match *self == Self::default() {
            true => fs::remove(&path),
            false => fs::write_atomic(&path, serde_json::to_string_pretty(self)?.as_bytes(), 0o644, None),
        }
    }

    /// Whether anything is there for this.
    pub fn has(&self, purpose: Purpose) -> bool {
        self.packages.values().any(|entry| entry.purpose == purpose)
    }

    /// Whether anything of it may have come from there.
    pub(super) fn needs(&self, source: Source) -> bool {
        match source {
            Source::Cuda => self.has(Purpose::Libraries) || self.has(Purpose::Driver),
            Source::Toolkit => self.has(Purpose::Toolkit),
        }
    }

    /// The command that does what [`remove`](super::remove) could not.
    pub fn by_hand(&self, purposes: &[Purpose]) -> String {
        let all = self.of(purposes);
        let held: Vec<&str> =
            all.iter().filter(|name| self.packages[*name].held).map(String::as_str).collect();
        let unhold = if held.is_empty() {
            String::new()
        } else {
            format!("sudo apt-mark unhold {} && ", held.join(" "))
        };
        format!("{unhold}sudo apt-get purge {}", all.join(" "))
    }

    /// Names of what is there for one of these.
    pub(super) fn of(&self, purposes: &[Purpose]) -> Vec<String> {
        let of = |(name, entry): (&String, &Entry)| purposes.contains(&entry.purpose).then(|| name.clone());
        self.packages.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_removed_by_hand() {
        let entry = |purpose, held| Entry { purpose, held };
        let packages = [
            ("libnvidia-compute-550", entry(Purpose::Libraries, true)),
            ("nvidia-container-toolkit-base", entry(Purpose::Toolkit, false)),
            ("ocl-icd", entry(Purpose::Libraries, false)),
        ];
        let packages = packages.into_iter().map(|(name, entry)| (name.to_owned(), entry)).collect();
        let ledger = Ledger { packages, driver_boot: None };
        assert_eq!(
            ledger.by_hand(&[Purpose::Libraries]),
            "sudo apt-mark unhold libnvidia-compute-550 && sudo apt-get purge libnvidia-compute-550 ocl-icd"
        );
        assert_eq!(ledger.by_hand(&[Purpose::Toolkit]), "sudo apt-get purge nvidia-container-toolkit-base");
    }
}
