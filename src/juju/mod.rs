//! Juju's side: hook tools, and the memory that keeps the number of their calls flat.

pub mod exec;
pub mod memory;
pub mod read;
pub mod tools;
