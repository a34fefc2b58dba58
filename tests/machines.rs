//! The charm on machines: real systemd, containerd, runc and PostgreSQL in LXD containers, an emulated Juju around
//! them. `make machines` runs these; they need root.

#![allow(missing_docs, dead_code)]

#[path = "machines/cases/mod.rs"]
mod cases;
#[path = "machines/kit/mod.rs"]
mod kit;
#[path = "packages/kit.rs"]
mod packages;
