//! Units that are out of order: who finds out writes down which, and nobody gets them. Each writer has a file of its own.

use crate::oci::bundle::read_json;
use crate::oci::report;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The file's name, beside the table: what who watches over the GPUs found.
pub const FILE: &str = "sick.json";
/// Another one, of what tasks left behind: `concourse-gpu` writes it.
pub const UNCLEAN: &str = "unclean.json";
/// The format that this program writes, and the only one that it reads.
pub const FORMAT: u32 = 1;

/// What the file holds. Replace it as a whole, by a rename in the same directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sick {
    /// See [`FORMAT`].
    pub format: u32,
    /// By unit, what is wrong, for people: `XID 79: the GPU has fallen off the bus`.
    pub units: BTreeMap<String, String>,
}

/// Units that are out of order, and why.
pub fn sick(dir: &Path) -> BTreeMap<String, String> {
    let mut units = read(&dir.join(UNCLEAN));
    units.extend(read(&dir.join(FILE)));
    units
}

/// What one file says. No file: nothing. A file that can't be read is the operator's to mend; it does not stop the worker.
pub fn read(path: &Path) -> BTreeMap<String, String> {
    if !path.exists() {
        return BTreeMap::new();
    }
    match read_json::<Sick>(path) {
        Ok(Sick { format: FORMAT, units }) => units,
        Ok(Sick { format, .. }) => {
            report::journal(&format!("{}: has format {format}, this wrapper reads {FORMAT}", path.display()));
            BTreeMap::new()
        }
        Err(why) => {
            report::journal(&format!("no GPU counts as out of order: {why}"));
            BTreeMap::new()
        }
    }
}
