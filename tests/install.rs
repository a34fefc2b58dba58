//! Archives become installed versions: over a real file system, real child processes and a small HTTP server whose
//! every misbehaviour is scripted. Run as root, also on a full disk.

#[path = "install/archives.rs"]
mod archives;
#[path = "install/disk.rs"]
mod disk;
#[path = "install/interrupted.rs"]
mod interrupted;
#[path = "install/kit.rs"]
mod kit;
#[path = "install/network.rs"]
mod network;
#[path = "install/refusals.rs"]
mod refusals;
#[path = "install/tls.rs"]
mod tls;
#[path = "install/versions.rs"]
mod versions;
