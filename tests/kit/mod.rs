//! Worlds for tests: a unit starts with nothing but what Juju would give it, and a small model carries out plans.

pub mod model;
pub mod unit;
