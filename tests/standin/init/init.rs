//! The first process of a container: waits for ever and buries the dead. Built by itself, statically, without crates.

use std::ffi::c_int;

unsafe extern "C" {
    fn pause() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn signal(number: c_int, handler: usize) -> usize;
}

extern "C" fn bury(_: c_int) {
    const NOHANG: c_int = 1;
    // SAFETY: waitpid is async-signal-safe; a null status is allowed.
    while unsafe { waitpid(-1, std::ptr::null_mut(), NOHANG) } > 0 {}
}

fn main() {
    const SIGCHLD: c_int = 17;
    // SAFETY: `bury` only calls async-signal-safe functions.
    unsafe { signal(SIGCHLD, bury as extern "C" fn(c_int) as usize) };
    loop {
        // SAFETY: pause has no preconditions.
        unsafe { pause() };
    }
}
