//! What this unit is.

use crate::config::DeploymentMode;
use crate::world::{Role, World};

/// Which services belong on this unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// It is a web node.
    pub web: bool,
    /// It is a worker.
    pub worker: bool,
}

impl Roles {
    /// Whether the role is among them.
    pub fn has(self, role: Role) -> bool {
        match role {
            Role::Web => self.web,
            Role::Worker => self.worker,
        }
    }
}

/// The roles by options and leadership; none while no options were ever good.
pub fn roles(world: &World) -> Roles {
    let Some(config) = &world.config else { return Roles::default() };
    match config.mode {
        DeploymentMode::Auto => Roles { web: world.leader, worker: !world.leader },
        DeploymentMode::All => Roles { web: true, worker: true },
        DeploymentMode::Web => Roles { web: true, worker: false },
        DeploymentMode::Worker => Roles { web: false, worker: true },
    }
}

/// Whether web nodes and workers find each other inside this application.
pub fn peers_exchange(world: &World) -> bool {
    world.config.as_ref().is_some_and(|c| c.mode == DeploymentMode::Auto)
}

/// Whether some unit of this application is a web node, and keys have to be shared.
pub fn application_has_web(world: &World) -> bool {
    world.config.as_ref().is_some_and(|c| c.mode != DeploymentMode::Worker)
}
