//! GPUs of a worker: what is there, what is missing, what is advertised.
//!
//! ```text
//! / (sysfs, /proc, /dev) ─scan─> Facts ─┐
//! NVML, in a child with a deadline ─────┴─ inventory ─> Inventory ─┬─ generate ─> Devices for the wrapper
//!                                                                  └─ ladder, selection, tags, exports
//! ```
//!
//! `scan`, `nvml`, `ask`, `persistence` and `refresh` touch the machine, the rest is pure. The program `concourse-gpu` is `refresh` and
//! the child.

pub mod ask;
pub mod decide;
pub mod export;
pub mod facts;
pub mod generate;
pub mod hsa;
pub mod inventory;
pub mod lacks;
pub mod ladder;
pub mod left;
pub mod nvml;
pub mod persistence;
pub mod refresh;
pub mod said;
pub mod scan;
pub mod select;
pub mod settle;
pub mod summary;
pub mod tags;
pub mod tell;
pub mod trial;
pub mod wanted;

/// What the system says, without the number that says it again.
fn said_by(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
