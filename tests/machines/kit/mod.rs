//! What a test on machines stands on.

pub mod cloud;
pub mod look;
pub mod mirror;
pub mod task;
