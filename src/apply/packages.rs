//! Packages that GPUs need.

use super::{Outcome, Trouble};
use crate::host::fs::{self, Root};
use crate::juju::tools;
use crate::packages::{self, Limits, Order, Purpose, What};
use crate::paths;
use crate::view::packages::circumstances;
use crate::world::{NoToolkit, World};

/// Installs what is ordered. That NVIDIA's toolkit is not to be had is noted only: nothing waits for it.
pub fn install(root: &Root, world: &World, order: &Order) -> Outcome {
    let mut say = |message: &str| drop(tools::status_set("maintenance", message));
    let refused = packages::install(root, order, &mut say)?.err();
    Ok(match refused {
        Some(why) if order.what == What::Toolkit => {
            tools::log("WARNING", &why.0);
            let note = NoToolkit { circumstances: circumstances(world), why: why.0 };
            fs::write_atomic(&root.path(paths::NO_TOOLKIT), &serde_json::to_vec(&note)?, 0o644, None)?;
            Ok(())
        }
        Some(why) => Err(Trouble(why.0)),
        None => Ok(()),
    })
}

/// Removes what was installed for these purposes.
pub fn remove(root: &Root, purposes: &[Purpose]) -> Outcome {
    Ok(packages::remove(root, purposes, &Limits::default())?.map_err(|why| Trouble(why.0)))
}
