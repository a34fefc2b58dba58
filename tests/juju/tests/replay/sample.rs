//! Reading the captured samples.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// One call of a tool with what the real one answered.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// The command line, as it was printed.
    pub line: String,
    /// Standard output.
    pub out: String,
    /// Standard error; without a line end.
    pub err: String,
    /// Exit code.
    pub rc: i32,
}

/// A hook that was captured.
pub struct Sample {
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// Calls in order.
    pub steps: Vec<Step>,
}

/// The text of a sample.
pub fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A `hook-*.txt`.
pub fn hook(name: &str) -> Sample {
    let mut sample = Sample { env: BTreeMap::new(), steps: Vec::new() };
    let mut in_env = false;
    for line in text(&format!("hook-{name}.txt")).lines() {
        if let Some(section) = line.strip_prefix("--- ") {
            in_env = section == "full env";
        } else if let Some(command) = line.strip_prefix("$ ") {
            sample.steps.push(Step { line: command.into(), ..Step::default() });
        } else if let Some((key, value)) = line.split_once('=').filter(|_| in_env) {
            sample.env.insert(key.into(), value.into());
        } else if let Some(step) = sample.steps.last_mut() {
            step.take(line);
        }
    }
    sample
}

impl Step {
    fn take(&mut self, line: &str) {
        if let Some(out) = line.strip_prefix("O| ") {
            match out.strip_suffix("  <no trailing newline>") {
                Some(out) => self.out.push_str(out),
                None => self.out.push_str(&format!("{out}\n")),
            }
        } else if let Some(err) = line.strip_prefix("E| ") {
            let (err, rc) = err.split_once("rc=").unwrap_or((err, ""));
            self.err.push_str(err);
            self.rc = rc.parse().unwrap_or_default();
        } else if let Some(rc) = line.strip_prefix("rc=") {
            self.rc = rc.parse().unwrap_or_default();
        }
    }
}

/// The `place`-th `juju exec` of a `cli-*.txt` that ran a list of `r TOOL …` lines: standard error of all stands at
/// the end, one line for each call that failed.
pub fn exec(name: &str, place: usize) -> Vec<Step> {
    let all = text(name);
    let block = all.split("\n$ juju ").filter(|block| block.contains("\n[rc=")).nth(place);
    let mut steps: Vec<Step> = Vec::new();
    let mut errors = Vec::new();
    let mut open = false;
    for line in block.expect("no such exec").lines() {
        if let Some(command) = line.strip_prefix("$ ").filter(|command| !command.starts_with("juju ")) {
            steps.push(Step { line: command.into(), ..Step::default() });
            open = true;
        } else if let Some(rc) = line.strip_prefix("[rc=") {
            open = false;
            if let Some(step) = steps.last_mut() {
                step.rc = rc.trim_end_matches(']').parse().unwrap_or_default();
            }
        } else if line.starts_with("ERROR ") {
            errors.push(line.to_string());
        } else if let Some(step) = steps.last_mut().filter(|_| open) {
            step.out.push_str(&format!("{line}\n"));
        }
    }
    let mut errors = errors.into_iter();
    for step in steps.iter_mut().filter(|step| step.rc != 0) {
        step.err = errors.next().unwrap_or_default();
    }
    steps
}
