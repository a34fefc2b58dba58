//! What the world means: questions that plan, status and actions ask of the same data, answered once.

pub mod database;
pub mod drain;
pub mod farewell;
pub mod gpu;
pub mod packages;
pub mod pause;
pub mod roles;
pub mod runtime;
pub mod secrets;
pub mod tsa;
pub mod version;
pub mod web;
pub mod worker;
pub mod workers;
