//! The edge to the machine: files under a root, child processes, systemd, the network.

pub mod cmd;
pub mod fs;
pub mod http;
pub mod systemd;
pub mod talk;
