//! What this unit is.

use super::worker::tags;
use crate::config::DeploymentMode;
use crate::world::{Role, Worker, World};

/// Which services belong on this unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// It is a web node.
    pub web: bool,
    /// It is a worker.
    pub worker: bool,
    /// It has a second worker, without tags.
    pub untagged: bool,
}

impl Roles {
    /// Whether the role is among them.
    pub fn has(self, role: Role) -> bool {
        match role {
            Role::Web => self.web,
            Role::Worker => self.worker,
            Role::Untagged => self.untagged,
        }
    }

    /// The workers among them.
    pub fn workers(self) -> Vec<Worker> {
        Worker::ALL.into_iter().filter(|worker| self.has(worker.role())).collect()
    }
}

/// The roles by options and leadership; none while no options were ever good.
pub fn roles(world: &World) -> Roles {
    let Some(config) = &world.config else { return Roles::default() };
    let web = match config.mode {
        DeploymentMode::Auto => world.leader,
        DeploymentMode::All | DeploymentMode::Web => true,
        DeploymentMode::Worker => false,
    };
    let worker = is_worker(world);
    // A worker without tags takes untagged steps itself.
    let untagged = worker && config.worker_untagged && !tags(world).is_empty();
    Roles { web, worker, untagged }
}

/// Whether a worker belongs on this unit, whatever its tags are.
pub fn is_worker(world: &World) -> bool {
    world.config.as_ref().is_some_and(|config| match config.mode {
        DeploymentMode::Auto => !world.leader,
        DeploymentMode::All | DeploymentMode::Worker => true,
        DeploymentMode::Web => false,
    })
}

/// Whether web nodes and workers find each other inside this application.
pub fn peers_exchange(world: &World) -> bool {
    world.config.as_ref().is_some_and(|c| c.mode == DeploymentMode::Auto)
}

/// Whether some unit of this application is a web node, and keys have to be shared.
pub fn application_has_web(world: &World) -> bool {
    world.config.as_ref().is_some_and(|c| c.mode != DeploymentMode::Worker)
}
