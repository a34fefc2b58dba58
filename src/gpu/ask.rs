//! Starts the child that asks NVML, and gives up on it in time.

use super::said::{Answer, Reason};
use crate::host::talk::{DYING, ends};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The child's program, with its arguments; tests have another one.
#[derive(Clone, Debug)]
pub struct Asker {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments.
    pub args: Vec<String>,
    /// How long it may take.
    pub deadline: Duration,
    /// Where it is noted that a child can't be killed, since it waits in the kernel.
    pub stuck: PathBuf,
}

impl Asker {
    /// Asks, unless a child of before still hangs: each would hold the driver some more.
    pub fn ask(&self, questions: &[String]) -> Answer {
        if still_stuck(&self.stuck) {
            return Answer::Hung;
        }
        let failed = |why: std::io::Error| Answer::Failed { reason: Reason::Other, text: why.to_string() };
        self.run(questions).unwrap_or_else(failed)
    }

    fn run(&self, questions: &[String]) -> std::io::Result<Answer> {
        // A file, not a pipe: a child that can't be killed would hold that open, and nothing has to be emptied.
        let mut told = tempfile::tempfile()?;
        let mut child = Command::new(&self.program)
            .args(&self.args)
            .args(questions)
            .stdin(Stdio::null())
            .stdout(told.try_clone()?)
            .stderr(Stdio::null())
            .spawn()?;
        if !ends(&child, self.deadline)? {
            child.kill()?;
            if ends(&child, DYING)? {
                child.wait()?;
            } else if let Some(start) = started(child.id()) {
                fs::write(&self.stuck, format!("{} {start}", child.id()))?;
            }
            return Ok(Answer::Hung);
        }
        let status = child.wait()?;
        use std::io::{Read, Seek};
        told.rewind()?;
        let mut text = String::new();
        told.take(16 << 20).read_to_string(&mut text)?;
        let crashed = || Answer::Failed {
            reason: Reason::Other,
            text: format!("{} ended with {status} and without an answer", self.program.display()),
        };
        Ok(serde_json::from_str(&text).unwrap_or_else(|_| crashed()))
    }
}

/// The process that was noted is there, and is the same one.
fn still_stuck(note: &Path) -> bool {
    let Ok(text) = fs::read_to_string(note) else { return false };
    let same = text
        .split_once(' ')
        .is_some_and(|(pid, start)| pid.parse().ok().and_then(started).is_some_and(|found| found == start));
    if !same {
        // Best effort: the next look decides as this one did.
        let _gone = fs::remove_file(note);
    }
    same
}

/// When a process that still lives began, in ticks since the boot.
fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    fields.nth(18).filter(|_| state != "Z").map(str::to_owned)
}
