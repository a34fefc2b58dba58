//! What Juju runs for every hook and action.

use concourse_ci_machine::event::Context;
use concourse_ci_machine::hook;
use concourse_ci_machine::host::fs::Root;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Context::from_env(&std::env::vars().collect())
        .and_then(|context| hook::run(&Root::new("/"), &context))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
