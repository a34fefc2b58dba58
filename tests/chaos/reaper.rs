//! Children, and what is left behind of them. As a shim does, the test takes in processes whose parent was killed, and
//! reaps them at once: else each of them would be a zombie for as long as the machine's init pleases.

use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::Duration;

/// Nothing that a shim starts takes as long.
const HANGS: Duration = Duration::from_secs(150);

/// All children of this process.
#[derive(Default)]
pub struct Reaper {
    /// By pid, how it ended: whether well.
    children: Mutex<BTreeMap<i32, Option<bool>>>,
    changed: Condvar,
}

impl Reaper {
    /// The one of this process: nobody else may wait for a child in it.
    pub fn get() -> &'static Self {
        static REAPER: OnceLock<Reaper> = OnceLock::new();
        static RUNS: OnceLock<()> = OnceLock::new();
        let reaper = REAPER.get_or_init(Reaper::default);
        RUNS.get_or_init(|| {
            set_child_subreaper(true).unwrap();
            std::thread::spawn(|| reaper.reap());
        });
        reaper
    }

    fn reap(&self) {
        loop {
            let ended = match waitpid(None, None) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, code == 0),
                Ok(WaitStatus::Signaled(pid, ..)) => (pid, false),
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(_) => {
                    // No child at all.
                    let children = self.children.lock().unwrap();
                    drop(self.changed.wait_timeout(children, Duration::from_millis(5)).unwrap());
                    continue;
                }
            };
            if let Some(child) = self.children.lock().unwrap().get_mut(&ended.0.as_raw()) {
                *child = Some(ended.1);
                self.changed.notify_all();
            }
        }
    }

    pub fn spawn(&self, command: &mut Command) -> i32 {
        let mut children = self.children.lock().unwrap();
        let pid = i32::try_from(command.spawn().unwrap().id()).unwrap();
        children.insert(pid, None);
        self.changed.notify_all();
        pid
    }

    /// Whether it ended well.
    pub fn wait(&self, pid: i32) -> bool {
        self.wait_for(pid, HANGS)
    }

    /// The same for one that may take so long.
    pub fn wait_for(&self, pid: i32, limit: Duration) -> bool {
        let mut children = self.children.lock().unwrap();
        while children[&pid].is_none() {
            let (now, late) = self.changed.wait_timeout(children, limit).unwrap();
            let command = || std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
            assert!(!late.timed_out() || now[&pid].is_some(), "{pid} hangs: {:?}", command());
            children = now;
        }
        children.remove(&pid).flatten().unwrap()
    }

    pub fn run(&self, command: &mut Command) -> bool {
        self.wait(self.spawn(command))
    }

    /// Kills it where it is, if it is still there, and says which program it was by then.
    pub fn kill(&self, pid: i32) -> Option<String> {
        let children = self.children.lock().unwrap();
        let program = match children[&pid] {
            None => program(pid),
            Some(_) => None,
        };
        let killed = program.filter(|_| kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok());
        drop(children);
        self.wait(pid);
        killed
    }
}

/// The name of a process's program.
pub fn program(pid: i32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    // runc runs from a copy of itself in memory: `/memfd:runc_cloned:/proc/self/exe (deleted)`.
    let name = match path.to_string_lossy() {
        text if text.contains("runc_cloned") => "runc".to_owned(),
        _ => path.file_name()?.to_string_lossy().into_owned(),
    };
    Some(name)
}
