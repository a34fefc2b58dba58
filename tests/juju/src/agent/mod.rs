//! The machine's side: its agent, the hook tools, and running a charm.

mod addresses;
mod deploy;
pub mod exec;
pub mod juju_exec;
pub mod jujuc;
pub mod jujud;
mod link;
pub mod toolserver;
