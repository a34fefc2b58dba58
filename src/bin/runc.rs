//! What stands first as `runc` in the worker's PATH: see [`concourse_ci_machine::oci`].

use concourse_ci_machine::oci::bundle;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Told already, in the way that runc tells it.
    let _refusal = bundle::run(std::env::args_os());
    ExitCode::FAILURE
}
