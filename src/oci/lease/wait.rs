//! Waiting for a turn. Nothing here decides: it sleeps until looking at the table again may be worth it.
//!
//! The first in line watches the processes that hold units, and serves everybody when one has ended. The others watch the one
//! before them, to take its place if it dies. Whoever changes the table rings for those to whom the change matters, so a line
//! of many costs no more than one of a few. A ring that gets lost, for whatever reason, costs [`COARSE`].

use super::live::{FIRST_PROCESS, Kernel, now};
use super::model::{Lease, Picture, Proc, Table, World};
use super::table::{Stored, load};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The named pipe by which one in line is woken, in the table's directory.
fn bell(dir: &Path, process: &Proc) -> PathBuf {
    dir.join(format!("waits-{}-{}", process.pid, process.start))
}

/// Opens a named pipe. (inotify would do without, but the kernel takes tens of milliseconds to end it.)
fn pipe(path: &Path, read: bool) -> std::io::Result<File> {
    OpenOptions::new().read(read).write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)
}

/// Wakes those in line to whom something changed between two tables; takes away what others left who died there.
pub fn ring(dir: &Path, before: &Table, after: &Table, kernel: &Kernel) {
    let changed = before.waiters.iter().map(|waiter| waiter.caller.me);
    for process in changed.filter(|process| before.picture(process) != after.picture(process)) {
        let bell = bell(dir, &process);
        if kernel.lives(&process) {
            // One that is just being made is not missed: who makes it looks at the table once more.
            let _ = pipe(&bell, false).and_then(|mut bell| bell.write(b"!"));
        } else {
            let _ = fs::remove_file(&bell);
        }
    }
    // Those who were killed after they were served, and before they could take theirs away.
    let movers = |table: &Table| -> BTreeSet<Proc> {
        table.leases.iter().flat_map(|lease| lease.movers.iter().copied()).collect()
    };
    for process in movers(before).difference(&movers(after)).filter(|process| !kernel.lives(process)) {
        let _ = fs::remove_file(bell(dir, process));
    }
}

/// Takes away what those left who died in line, where no table says any more who stood there.
pub fn sweep(dir: &Path, kernel: &Kernel) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let mut numbers = name.to_str().and_then(|name| name.strip_prefix("waits-")).unwrap_or("").split('-');
        let (pid, start) = (numbers.next().map(str::parse), numbers.next().map(str::parse));
        let (Some(Ok(pid)), Some(Ok(start))) = (pid, start) else { continue };
        if !kernel.lives(&Proc { pid, start, namespace: kernel.namespace }) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The longest sleep, in milliseconds.
const COARSE: u64 = 5_000;

/// What wakes a waiter.
#[derive(Debug)]
pub struct Watch {
    dir: PathBuf,
    me: Proc,
    boot: String,
    /// Our bell. There may be no room for it: then the long sleep has to do.
    bell: Option<File>,
    /// Who started us.
    parent: (Option<Pid>, Option<OwnedFd>),
}

/// The program that started us has ended: nobody waits for the container any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan;

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = fs::remove_file(bell(&self.dir, &self.me));
    }
}

impl Watch {
    /// Begins to watch. What happens to us in the table from now on is not missed.
    pub fn new(dir: &Path, me: Proc, boot: &str) -> Self {
        let parent = getppid();
        let path = bell(dir, &me);
        let made = mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
        // Open for both, so that it never comes to its end.
        let bell = made.ok().and_then(|()| pipe(&path, true).ok());
        let fd = parent.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Watch { dir: dir.to_owned(), me, boot: boot.to_owned(), bell, parent: (parent, fd) }
    }

    /// Sleeps until the table may have something new for us, seen from `table`, at most until `deadline`.
    ///
    /// # Errors
    /// The caller has ended.
    pub fn sleep(&mut self, table: &Table, kernel: &Kernel, deadline: u64) -> Result<(), Orphan> {
        let Some((ends, until)) = self.ends(table, kernel) else { return Ok(()) };
        let until = until.min(deadline).min(now().saturating_add(COARSE));
        let seen = table.picture(&self.me);
        loop {
            if getppid() != self.parent.0 {
                return Err(Orphan);
            }
            let left = until.saturating_sub(now());
            if left == 0 {
                return Ok(());
            }
            let own = self.bell.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN));
            let parent = self.parent.1.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN));
            let first = usize::from(own.is_some()) + usize::from(parent.is_some());
            let others = ends.iter().map(|fd| PollFd::new(fd, PollFlags::IN));
            let mut fds: Vec<PollFd<'_>> = own.into_iter().chain(parent).chain(others).collect();
            let limit = Timespec {
                tv_sec: i64::try_from(left / 1000).unwrap_or(0),
                tv_nsec: i64::try_from(left % 1000).unwrap_or(0) * 1_000_000,
            };
            let woken = poll(&mut fds, Some(&limit));
            if fds.iter().skip(first).any(|fd| !fd.revents().is_empty()) {
                return Ok(());
            }
            drop(fds);
            if woken.is_err_and(|e| e != Errno::INTR) {
                std::thread::sleep(Duration::from_millis(left.min(COARSE)));
                return Ok(());
            }
            if woken.is_ok_and(|n| n > 0) && self.news() && self.picture_now() != Some(seen.clone()) {
                return Ok(());
            }
        }
    }

    /// Takes notices off the queue.
    fn news(&mut self) -> bool {
        let mut some = false;
        let mut buffer = [0; 4096];
        while let Some(Ok(1..)) = self.bell.as_mut().map(|fd| fd.read(&mut buffer)) {
            some = true;
        }
        some
    }

    fn picture_now(&self) -> Option<Picture> {
        match load(&self.dir, &self.boot) {
            Stored::Table(table) => Some(table.picture(&self.me)),
            Stored::Lost(_) | Stored::Unreadable(_) => None,
        }
    }

    /// What ends when our turn may have come, and when to look at the latest. `None`: look at once.
    fn ends(&self, table: &Table, kernel: &Kernel) -> Option<(Vec<OwnedFd>, u64)> {
        match table.picture(&self.me) {
            (false, ..) => None,
            (true, Some(before), _) => Some((opened(&before, kernel)?.into_iter().collect(), u64::MAX)),
            (true, None, _) => {
                let mut until = u64::MAX;
                let mut fds = vec![];
                for lease in &table.leases {
                    match holder(lease, kernel) {
                        Holder::Process(process) => fds.extend(opened(&process, kernel)?),
                        Holder::Unseen => {}
                        Holder::Time(end) => {
                            until = until.min(end);
                            if let Ok(Some(inside)) = kernel.inside(&lease.bundle, &lease.id) {
                                fds.extend(opened(&inside.init, kernel)?);
                            }
                        }
                        Holder::Nobody => return None,
                    }
                }
                Some((fds, until))
            }
        }
    }
}

/// What keeps a lease valid.
enum Holder {
    Process(Proc),
    Unseen,
    Time(u64),
    Nobody,
}

/// The process that will probably last the longest.
fn holder(lease: &Lease, kernel: &Kernel) -> Holder {
    if let Some(mover) = lease.movers.iter().find(|process| kernel.lives(process)) {
        return Holder::Process(*mover);
    }
    let inside = lease.inside.as_ref().map(|inside| kernel.inhabitants(inside)).unwrap_or_default();
    let oldest = inside.iter().flatten().min_by_key(|process| (process.start, process.pid));
    match oldest {
        Some(process) => Holder::Process(*process),
        None if !inside.is_empty() => Holder::Unseen,
        None if lease.valid(kernel) => Holder::Time(lease.since + FIRST_PROCESS),
        None => Holder::Nobody,
    }
}

/// A descriptor that tells when it ends, where there is one to be had; `None`: it has ended.
fn opened(process: &Proc, kernel: &Kernel) -> Option<Option<OwnedFd>> {
    let fd =
        Pid::from_raw(process.pid).ok_or(Errno::SRCH).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
    // The number may have been given again before it was opened. What the kernel refuses for another reason (before
    // 5.3, or with too many open files) must not have us look again and again: the long sleep has to do.
    (fd.as_ref().err() != Some(&Errno::SRCH) && kernel.lives(process)).then(|| fd.ok())
}
