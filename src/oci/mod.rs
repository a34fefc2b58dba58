//! The runtime wrapper: stands in for runc and gives GPUs and folders to the containers that should have them.
//!
//! ```text
//! argv ─args─> Call ── create, exec? no ─────────────────────────────> exec the real runc, argv untouched
//!                │ yes
//!   config.json ─> Value ─ edit(Policy, Devices) ─> changed? ─ temp file, rename ─> exec
//!                            └ refused ─> a line in runc's --log and on stderr, exit 1
//! ```
//!
//! Everything here is small and synchronous: the program is started for every container and every process in one.

pub mod devices;
pub mod hook;
pub mod policy;
pub mod require;
