//! Which version of Concourse should run here.

use super::roles::roles;
use super::tsa::registration;
use crate::parse::Version;
use crate::world::World;

/// The version that this charm was tested with.
pub const PINNED: &str = "8.2.5";

/// A version, and who wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// This one.
    Exactly(Version),
    /// Whatever the attached resource holds, which is known only once it is unpacked.
    FromResource,
}

/// The option, else the web node's for a worker, else an action's, else the resource's, else the pinned one.
pub fn wanted(world: &World) -> Wanted {
    if let Some(version) = world.config.as_ref().and_then(|c| c.version.clone()) {
        return Wanted::Exactly(version);
    }
    let roles = roles(world);
    if !roles.web
        && roles.worker
        && let Some(version) = registration(world).servers.into_iter().find_map(|tsa| tsa.version)
    {
        return Wanted::Exactly(version);
    }
    let pinned = pinned();
    match &world.machine.override_version {
        Some(wish) if wish.pinned == pinned => return Wanted::Exactly(wish.version.clone()),
        _ => {}
    }
    match &world.machine.resource {
        None => Wanted::Exactly(pinned),
        Some(stamp) => match world.machine.installed.iter().find(|i| i.origin.stamps.contains(stamp)) {
            Some(installed) => Wanted::Exactly(installed.version.clone()),
            None => Wanted::FromResource,
        },
    }
}

/// [`PINNED`] as a version.
pub fn pinned() -> Version {
    PINNED.parse().expect("the pinned version is a version: a test says so")
}

/// The version that a worker is told to run: the web node's current one, once it was seen working.
pub fn published(world: &World) -> Option<&Version> {
    world.machine.current.as_ref().filter(|_| world.machine.proven)
}
