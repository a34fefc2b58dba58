//! The runtime wrapper: stands in for runc and gives GPUs and folders to the containers that should have them.
//!
//! ```text
//! argv ─args─> Call ── create, exec? no ─────────────────────────────> exec the real runc, argv untouched
//!                │ yes
//!   config.json ─> Tree ─ edit(Policy, Devices) ─> changed? ─ temp file, rename ─> exec
//!                            └ refused ─> a line in runc's --log and on stderr, exit 1
//! ```
//!
//! Everything here is small and synchronous: the program is started for every container and every process in one.

pub mod able;
pub mod args;
pub mod below;
pub mod bundle;
pub mod create;
pub mod devices;
pub mod edit;
pub mod exec;
pub mod folders;
pub mod give;
pub mod hook;
pub mod inside;
pub mod json;
pub mod lease;
pub mod next;
pub mod policy;
pub mod report;
pub mod request;
pub mod require;

use std::fmt;

/// Why a container does not start: one line for the author of the pipeline, who reads it in the build's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl Refusal {
    /// Takes a sentence; line breaks in it become blanks.
    pub fn new(text: impl Into<String>) -> Self {
        let text: String = text.into();
        Refusal(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

/// What the system says, without the number that says it again.
fn said(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
