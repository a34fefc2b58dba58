//! What stands first as `runc` in the worker's PATH: see [`concourse_ci_machine::oci`].
//!
//! It has C's entry point, without the set-up that the standard library does before `main` (a look at the own memory
//! map, signal handlers, an alternate stack): none of it is used here, and it is a sixth of what a call costs. glibc
//! has the arguments ready for `args_os` by then.

#![no_main]

use concourse_ci_machine::oci::bundle;
use std::ffi::{c_char, c_int};

/// Called by the C library.
#[expect(
    unsafe_code,
    reason = "the only way to name the entry point; nothing unsafe is done with the arguments"
)]
#[unsafe(no_mangle)]
pub extern "C" fn main(_count: c_int, _args: *const *const c_char) -> c_int {
    bundle::run(std::env::args_os()).into()
}
