//! A table that was lost, put together again from what containers are there.
//!
//! Each bundle says in an annotation which units its container was given. Whether its processes live is for the kernel to
//! say, so no container that uses a unit is missed. What can't be seen is whether one without processes is still to get its
//! first one, or whether one is just on its way in: such a container keeps others away for a while, and has no right
//! itself. It costs some tasks a while, and never gives a unit twice.

use super::live::Kernel;
use super::model::{Lease, Table};
use crate::oci::exec::Equipment;
use std::fs;
use std::path::{Path, PathBuf};

/// The table as the bundles of all workers have it, and those beside our own.
pub fn rebuild(own: Option<&Path>, kernel: &Kernel, boot: &str) -> Table {
    let mut table = Table::new(boot);
    let roots = own.into_iter().chain(kernel.bundles.iter().map(PathBuf::as_path));
    let entries = roots.filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
    let mut found: Vec<Lease> = entries.filter_map(|entry| lease(&entry.path(), kernel)).collect();
    found.sort();
    // Our own are to be seen under two names.
    found.dedup_by(|one, other| one.id == other.id);
    table.leases = found;
    table
}

fn lease(bundle: &Path, kernel: &Kernel) -> Option<Lease> {
    let config = fs::read_to_string(bundle.join("config.json")).ok()?;
    let units = Equipment::noted(&config)?.units;
    let id = bundle.file_name()?.to_str()?.to_owned();
    let inside = kernel.inside(bundle, &id);
    let (bundle, since) = (bundle.to_owned(), kernel.now);
    let lease = Lease { id, bundle, units, since, movers: vec![], inside, suspect: true };
    (!lease.units.is_empty() && lease.valid(kernel)).then_some(lease)
}
