//! From CDI specs to what a container gets: `nvidia.yaml` becomes [`Devices`](crate::oci::devices::Devices).
//!
//! ```text
//! /etc/cdi, /var/run/cdi ─read─> [Source] ─spec::parse─> Spec ─units::gather─> Devices ─tree::equip─> Devices
//!                                                                       the driver's files in one place
//! ```
//!
//! The format is the CNCF's Container Device Interface, 0.3.0 to 1.1.0. `read` and `tree` touch the disk, the rest is
//! pure.

pub mod edits;
pub mod known;
pub mod read;
pub mod spec;
pub mod tree;
pub mod units;

#[cfg(test)]
mod tests;
