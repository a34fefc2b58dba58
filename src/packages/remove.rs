//! What the charm added goes again, and nothing else.

use super::apt::{Apt, Limits, Said};
use super::ledger::{Ledger, Purpose};
use super::read::{Changes, Failure};
use super::source::Source;
use super::{Refusal, WAITING};
use crate::host::fs::{self, Root};
use crate::install::Proxy;
use crate::paths;
use anyhow::Result;

/// Removes what is there for these purposes, and the sources that served them. What something of the operator's has come
/// to depend on stays, and is theirs from then on.
///
/// # Errors
/// The unexpected. All else is a [`Refusal`].
pub fn remove(
    root: &Root,
    purposes: &[Purpose],
    limits: &Limits,
) -> Result<std::result::Result<(), Refusal>> {
    let mut ledger = Ledger::read(root)?;
    let proxy = Proxy::default();
    let apt = Apt::new(root, &proxy, limits);
    let ours = ledger.of(purposes);
    // First, since where the operator has come to have such a repository, too, with another key, apt does nothing at all.
    let mut then = ledger.clone();
    then.packages.retain(|name, _| !ours.contains(name));
    drop_needless(root, &then)?;
    let release = |ledger: &Ledger| {
        // What the operator has removed is no more to be held, and apt may not even know it any more.
        let there = apt.installed()?;
        let held = ours.iter().filter(|name| ledger.packages[*name].held && there.contains_key(*name));
        apt.hold(false, &held.cloned().collect::<Vec<_>>())
    };
    if let Err(failure) = release(&ledger).and_then(|()| purge(&apt, &mut ledger, &ours)) {
        let (why, cure) = failure.told();
        return Ok(Err(Refusal(match failure {
            Failure::Busy(_) => format!("{WAITING}{why}, to remove the charm's packages for GPUs"),
            _ => format!("The charm's packages for GPUs can't be removed, {why}: {cure}"),
        })));
    }
    if !ledger.has(Purpose::Driver) {
        ledger.driver_boot = None;
    }
    fs::remove(&root.path(paths::APT_PREFERENCES))?;
    ledger.write(root)?;
    Ok(Ok(()))
}

/// Removes NVIDIA's repositories that nothing in the ledger needs.
pub(super) fn drop_needless(root: &Root, ledger: &Ledger) -> Result<()> {
    Source::ALL
        .iter()
        .filter(|source| !ledger.needs(**source))
        .try_for_each(|source| drop_source(root, *source))
}

/// Removes one.
pub(super) fn drop_source(root: &Root, source: Source) -> Result<()> {
    source.files().iter().try_for_each(|path| fs::remove(&root.path(path)))
}

/// Removes these of the ledger's packages, configuration included.
pub(super) fn purge(apt: &Apt, ledger: &mut Ledger, names: &[String]) -> Said<()> {
    let there = apt.installed()?;
    let mut ours: Vec<String> = names.iter().filter(|name| there.contains_key(*name)).cloned().collect();
    let plan = |names: &[String]| apt.simulate(&command(names));
    // To keep what depends on them, apt would rather install or upgrade something else.
    let only_ours = |changes: &Changes| {
        let others = changes.new.is_empty() && changes.changed.is_empty();
        others && changes.removed.iter().all(|name| names.contains(name))
    };
    if !ours.is_empty() && !only_ours(&plan(&ours)?) {
        // One by one it shows which of them something else needs, and what was tried together goes together. What only
        // another of ours needed is free after it, so once more.
        let mut free: Vec<String> = vec![];
        let mut before = usize::MAX;
        while before != free.len() {
            before = free.len();
            for name in &ours {
                let more = [free.as_slice(), std::slice::from_ref(name)].concat();
                if !free.contains(name) && only_ours(&plan(&more)?) {
                    free = more;
                }
            }
        }
        ours = free;
    }
    if !ours.is_empty() {
        apt.act(&command(&ours), "the removal")?;
    }
    ledger.packages.retain(|name, _| !names.contains(name));
    Ok(())
}

fn command(names: &[String]) -> Vec<String> {
    let words = ["purge", "--yes", "--quiet", "--no-auto-remove", "--allow-change-held-packages"];
    words.iter().map(|word| (*word).to_owned()).chain(names.iter().cloned()).collect()
}
