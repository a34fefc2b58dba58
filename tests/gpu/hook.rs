//! The hook alone, as the runtime wrapper has it: `gpu-hook gpu-hook --tree DIR …`.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(2).collect();
    concourse_ci_machine::oci::hook::main(&args).into()
}
