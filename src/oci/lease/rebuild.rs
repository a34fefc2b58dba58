//! A table that was lost, put together again from what containers are there.
//!
//! Each bundle says in an annotation which units its container was given. Whether its processes live is for the kernel to
//! say, so no container that uses a unit is missed. What can't be seen is whether one without processes is still to get its
//! first one, or whether one is just on its way in: such a container keeps others away for a while, and has no right
//! itself. It costs some tasks a while, and never gives a unit twice.

use super::live::{Kernel, below, is_gone, text};
use super::model::{Lease, Table};
use crate::oci::exec::Equipment;
use crate::oci::said;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The table as the bundles of all workers have it, and those beside our own.
///
/// # Errors
/// Not everything can be looked at; says what. A container that is missed would share its units with the next one.
pub fn rebuild(own: Option<&Path>, kernel: &Kernel, boot: &str) -> Result<Table, String> {
    let mut table = Table::new(boot);
    for root in own.into_iter().chain(kernel.bundles.iter().map(PathBuf::as_path)) {
        for bundle in bundles(root).map_err(|e| format!("{}: {}", root.display(), said(&e)))? {
            let lease = lease(&bundle, kernel).map_err(|e| format!("{}: {}", bundle.display(), said(&e)))?;
            table.leases.extend(lease);
        }
    }
    table.leases.sort();
    // Our own are to be seen under two names.
    table.leases.dedup_by(|one, other| one.id == other.id);
    Ok(table)
}

/// The bundles in a directory; none where it is not there.
fn bundles(root: &Path) -> io::Result<Vec<PathBuf>> {
    below(root).or_else(|e| if is_gone(&e) { Ok(vec![]) } else { Err(e) })
}

fn lease(bundle: &Path, kernel: &Kernel) -> io::Result<Option<Lease>> {
    let config = text(&bundle.join("config.json"))?;
    let units = config.and_then(|config| Equipment::noted(&config)).map(|noted| noted.units);
    let (Some(units), Some(id)) = (units.filter(|units| !units.is_empty()), bundle.file_name()) else {
        return Ok(None);
    };
    let id = id.to_string_lossy().into_owned();
    let inside = kernel.inside(bundle, &id)?;
    let (bundle, since) = (bundle.to_owned(), kernel.now);
    let nodes = BTreeMap::new();
    let lease = Lease { id, bundle, units, nodes, since, movers: vec![], inside, suspect: true };
    Ok(Some(lease).filter(|lease| lease.valid(kernel)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_cant_be_read_may_have_units() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Kernel { bundles: vec![], ..Kernel::here().unwrap() };
        let found = |root: &Path| rebuild(Some(root), &kernel, "").map(|table| table.leases.len());
        assert_eq!(found(&dir.path().join("none")), Ok(0));
        fs::write(dir.path().join("file"), "").unwrap();
        let bundle = dir.path().join("b1f0");
        fs::create_dir(&bundle).unwrap();
        assert_eq!(found(dir.path()), Ok(0));
        fs::write(bundle.join("config.json"), "{}").unwrap();
        assert_eq!(found(dir.path()), Ok(0));
        let noted = r#"{"annotations":{"org.concourse-ci.machine.gpus":"{\"units\":[\"GPU-a\"]}"}}"#;
        fs::write(bundle.join("config.json"), noted).unwrap();
        assert_eq!(found(dir.path()), Ok(1));
        assert!(found(&bundle.join("config.json")).unwrap_err().contains("Not a directory"));
        fs::remove_file(bundle.join("config.json")).unwrap();
        fs::create_dir(bundle.join("config.json")).unwrap();
        assert!(found(dir.path()).unwrap_err().contains("b1f0: Is a directory"));
    }
}
