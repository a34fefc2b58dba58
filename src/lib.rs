//! A Juju charm for Concourse CI, as one pipeline for every hook:
//!
//! ```text
//! JUJU_* ─event─> Goal ─┐
//!                       ├─ observe ─> World ─ plan ─> [Step] ─ apply ─┐   then  status ─> status-set
//!                       └────────────── until the plan is empty ──────┘
//! ```
//!
//! `observe` and `apply` touch the world; everything between them is data and pure functions. ARCHITECTURE.md says
//! which file is which.

pub mod actions;
pub mod apply;
pub mod cdi;
pub mod config;
pub mod event;
pub mod gpu;
pub mod hook;
pub mod host;
pub mod install;
pub mod juju;
pub mod observe;
pub mod oci;
pub mod packages;
pub mod parse;
pub mod paths;
pub mod plan;
pub mod render;
pub mod role;
pub mod status;
pub mod step;
pub mod view;
pub mod world;
