//! Packages that GPUs need.

use super::{Outcome, Trouble};
use crate::host::fs::{self, Root};
use crate::juju::tools;
use crate::packages::{self, Ledger, Limits, Order, Purpose, What};
use crate::paths;
use crate::view::packages::circumstances;
use crate::world::{NoToolkit, World};

/// Installs what is ordered. That NVIDIA's toolkit is not to be had is noted only: nothing waits for it. What passes by
/// itself is not noted, or nobody would try again before the next boot.
pub fn install(root: &Root, world: &World, order: &Order) -> Outcome {
    let mut say = |message: &str| drop(tools::status_set("maintenance", message));
    let refused = packages::install(root, order, &mut say)?.err();
    Ok(match refused {
        Some(why) if order.what == What::Toolkit && !packages::passes(&why.0) => {
            tools::log("WARNING", &why.0);
            let note = NoToolkit { circumstances: circumstances(world), why: why.0 };
            fs::write_atomic(&root.path(paths::NO_TOOLKIT), &serde_json::to_vec(&note)?, 0o644, None)?;
            Ok(())
        }
        Some(why) => Err(Trouble(why.0)),
        None => Ok(()),
    })
}

/// Removes what was installed for these purposes. Where it can't, the log says how it is done by hand: a unit that goes
/// takes the ledger with it.
pub fn remove(root: &Root, purposes: &[Purpose]) -> Outcome {
    let removed = packages::remove(root, purposes, &Limits::default())?;
    if removed.is_err() {
        let by_hand = Ledger::read(root)?.by_hand(purposes);
        tools::log(
            "WARNING",
            &format!("Packages of the charm's stay; should the unit be gone before: {by_hand}"),
        );
    }
    Ok(removed.map_err(|why| Trouble(why.0)))
}
