//! Packages for GPUs, through the machine's own apt. It ensures:
//!
//! - the operator's sources come first, as they are: a mirror that has the packages needs nothing else. NVIDIA's own
//!   repositories are added only where those have not, with the key that is known, and serve nothing but what is ordered;
//! - nothing that the charm did not install is removed, upgraded or downgraded: apt is asked first what it would do;
//! - what is about to be installed is written down before it is, so that a killed hook forgets nothing, and all of it,
//!   and nothing else, goes again;
//! - apt asks no questions, waits for locks with a bound, and ends in time; every expected "no" is a [`Refusal`].
//!
//! What is not installed, and why: AMD's container toolkit makes CDI data of nothing but device nodes, which
//! the charm makes as well, and ROCm is in the task's image; so are Level Zero and OpenCL for Intel's GPUs.
//!
//! `choose`, `read`, `key` and `source` are pure; `apt`, `install` and `remove` act.

mod apt;
mod choose;
mod install;
mod key;
mod ledger;
mod read;
mod remove;
mod source;

use crate::install::Proxy;
use crate::parse::DriverBranch;
pub use apt::Limits;
pub use choose::branch_of;
pub use install::install;
pub use ledger::{Entry, Ledger, Purpose};
pub use remove::remove;
pub use source::{Repository, Source};
use std::fmt;

/// What is to be installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// NVIDIA's libraries for programs, of exactly this version: the loaded kernel module's.
    Libraries(String),
    /// NVIDIA's kernel driver.
    Driver {
        /// `None`: the newest branch for servers.
        branch: Option<DriverBranch>,
        /// PCI ids of the GPUs.
        devices: Vec<u16>,
    },
    /// NVIDIA's generator of CDI specs.
    Toolkit,
}

impl What {
    /// Under which purpose it is written down.
    pub fn purpose(&self) -> Purpose {
        match self {
            What::Libraries(_) => Purpose::Libraries,
            What::Driver { .. } => Purpose::Driver,
            What::Toolkit => Purpose::Toolkit,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Libraries(version) => write!(f, "NVIDIA's libraries {version}"),
            What::Driver { branch: Some(branch), .. } => write!(f, "NVIDIA's driver {branch}"),
            What::Driver { branch: None, .. } => write!(f, "NVIDIA's driver"),
            What::Toolkit => write!(f, "NVIDIA's container toolkit"),
        }
    }
}

/// What is to be installed, and how. A proxy may hold a password, so there is no `Debug`.
#[derive(Clone)]
pub struct Order {
    /// What.
    pub what: What,
    /// How the network is reached; what apt's own configuration says of proxies goes before it.
    pub proxy: Proxy,
    /// How long to be patient.
    pub limits: Limits,
    /// NVIDIA's repository, for what no other source has.
    pub repository: Option<Repository>,
    /// Tells one boot of the machine from another.
    pub boot: String,
}

/// An expected "no": one sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

/// How the sentence of a refusal begins that time mends.
const WAITING: &str = "Waiting for ";

/// Whether the sentence of a refusal tells of something that passes by itself.
pub fn passes(sentence: &str) -> bool {
    sentence.starts_with(WAITING)
}
