//! An emulated Juju for tests: one controller with one model, machine agents, hook tools and the `juju` client.

pub mod agent;
pub mod base64;
pub mod charm;
mod cli;
pub mod client;
pub mod commit;
pub mod context;
pub mod controller;
pub mod daemon;
pub mod data;
mod env;
mod fire;
mod life;
pub mod model;
mod operation;
mod relate;
mod resolver;
mod schema;
pub mod shared;
pub mod time;
pub mod tools;
pub mod validate;
pub mod wire;

pub use controller::{CliResult, Controller, HookResult};
pub use operation::Outcome;
