//! Measures what a hook costs, and what each program that it starts costs. `benches/run` compiles this with rustc alone.
//!
//! Called `dispatch`, it is packed into a charm in place of the charm's own dispatch, which it runs as `dispatch.real`.
//! Called anything else, it runs the program of that name: a directory of such links is put first in PATH, but only
//! while `/run/meter/split` exists, so that times are also taken with nothing between the charm and its tools.
//!
//! The CPU clock of a process counts user and system time of all its threads, in nanoseconds and without its children,
//! also of one that has ended and was not waited for yet. So `self` is dispatch alone, and a tool is the tool alone.
//! `all` is dispatch with everything that it waited for, to check that nothing was missed. A program that was started
//! through a link is left to init as a zombie: its memory then does not count as the largest among dispatch's children.

use std::env;
use std::ffi::{c_int, c_long};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, exit};
use std::time::Instant;

const LINKS: &str = "/opt/meter/bin";
const HERE: &str = "/run/meter";

unsafe extern "C" {
    fn waitid(kind: c_int, id: u32, info: *mut [u64; 16], options: c_int) -> c_int;
    fn wait4(pid: c_int, status: *mut c_int, options: c_int, usage: *mut [c_long; 18]) -> c_int;
    fn clock_getcpuclockid(pid: c_int, clock: *mut c_int) -> c_int;
    fn clock_gettime(clock: c_int, time: *mut [c_long; 2]) -> c_int;
}

fn main() {
    let name = env::args().next().unwrap_or_default();
    let (folder, name) = name.rsplit_once('/').unwrap_or(("", &name));
    let log = OpenOptions::new().create(true).append(true).open(Path::new(HERE).join("log")).expect("the log");
    let path = env::var("PATH").unwrap_or_default();
    let is_dispatch = name == "dispatch";
    let split = Path::new(HERE).join("split").exists();
    let mut command = if is_dispatch {
        let mut command = Command::new(format!("{folder}/dispatch.real"));
        if split {
            command.env("PATH", format!("{LINKS}:{path}"));
        }
        command
    } else {
        let real = path.split(':').filter(|folder| *folder != LINKS).map(|folder| Path::new(folder).join(name));
        let mut command = Command::new(real.filter(|path| path.exists()).next().expect("the real program"));
        command.arg0(name);
        command
    };

    let begin = Instant::now();
    let child = command.args(env::args_os().skip(1)).spawn().expect("the real program starts");
    let cpu = ended(child.id());
    let wall = begin.elapsed();
    let (rc, status, more) = if is_dispatch {
        let (status, all, rss) = reap(child.id());
        let status = ExitStatus::from_raw(status);
        let hook = env::var("JUJU_DISPATCH_PATH").unwrap_or_default();
        let more = format!(r#""hook": "{hook}", "all": {all}, "rss": {rss}, "split": {split}, "#);
        (status.code().unwrap_or(-1), status.signal(), more)
    } else {
        let (rc, signal) = cpu.1;
        (rc, signal, String::new())
    };
    let context = env::var("JUJU_CONTEXT_ID").unwrap_or_default();
    let unit = env::var("JUJU_UNIT_NAME").unwrap_or_default();
    let line = format!(
        "{{\"program\": \"{name}\", \"unit\": \"{unit}\", \"context\": \"{context}\", {more}\"self\": {}, \"wall\": {}, \"rc\": {rc}}}\n",
        cpu.0,
        wall.as_nanos()
    );
    (&log).write_all(line.as_bytes()).expect("the log takes a line");
    exit(status.map_or(rc, |signal| 128 + signal));
}

/// Waits for the end of a child, without taking it away; gives its CPU time in ns, and its exit code or signal.
fn ended(pid: u32) -> (u64, (i32, Option<i32>)) {
    const P_PID: c_int = 1;
    const WEXITED_WNOWAIT: c_int = 4 | 0x0100_0000;
    const CLD_EXITED: u32 = 1;
    let (mut info, mut clock, mut time) = ([0; 16], 0, [0; 2]);
    // SAFETY: each pointer is to a local at least as large as what the call writes on 64-bit Linux.
    unsafe {
        while waitid(P_PID, pid, &mut info, WEXITED_WNOWAIT) != 0 {}
        assert_eq!(clock_getcpuclockid(pid as c_int, &mut clock), 0);
        assert_eq!(clock_gettime(clock, &mut time), 0);
    }
    // siginfo_t: si_signo, si_errno, si_code, padding, si_pid, si_uid, si_status.
    let (code, status) = (info[1] as u32, info[3] as i32);
    let how = if code == CLD_EXITED { (status, None) } else { (-1, Some(status)) };
    ((time[0] * 1_000_000_000 + time[1]) as u64, how)
}

/// Takes a child away: its status, CPU time in ns with everything that it waited for, and peak memory in KiB.
fn reap(pid: u32) -> (i32, u64, c_long) {
    let (mut status, mut usage) = (0, [0; 18]);
    // SAFETY: as above.
    assert_eq!(unsafe { wait4(pid as c_int, &mut status, 0, &mut usage) }, pid as c_int);
    let cpu = (usage[0] + usage[2]) * 1_000_000 + usage[1] + usage[3];
    (status, cpu as u64 * 1_000, usage[4])
}
