//! A child process is fed, heard and waited for in one loop: no thread, and no look at the clock but its deadline.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{ErrorKind, Read, Result, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ExitStatus};
use std::time::{Duration, Instant};

/// All that a child wrote until it ended.
pub struct Told {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

/// Gives the child its input and collects what it writes; `None`: it overran the deadline and was killed.
/// What it started and left running may hold its outputs open: that is not waited for.
///
/// # Errors
/// The kernel refuses; needs Linux 5.3.
pub fn talk(child: &mut Child, input: Vec<u8>, deadline: Duration) -> Result<Option<Told>> {
    let end = Instant::now() + deadline;
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let mut stdin = Feed::new(child.stdin.take(), input)?;
    let mut stdout = Heard::new(child.stdout.take())?;
    let mut stderr = Heard::new(child.stderr.take())?;
    loop {
        let (over, left) = {
            let mut polled = vec![PollFd::new(&ended, PollFlags::IN)];
            polled.extend(stdin.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
            polled.extend(stdout.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            polled.extend(stderr.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            let left = end.saturating_duration_since(Instant::now());
            match poll(&mut polled, left.try_into().ok().as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
            (!polled[0].revents().is_empty(), left)
        };
        stdin.feed()?;
        stdout.listen()?;
        stderr.listen()?;
        if over {
            let status = child.wait()?;
            return Ok(Some(Told { status, stdout: stdout.bytes, stderr: stderr.bytes }));
        }
        if left.is_zero() {
            child.kill()?;
            if ends(child, DYING)? {
                child.wait()?;
            }
            return Ok(None);
        }
    }
}

/// A killed process ends in less, unless it sleeps in the kernel, as in a driver that hangs: then nobody can wait for it.
pub const DYING: Duration = Duration::from_millis(500);

/// Whether a child ends in time; it is not yet reaped then.
///
/// # Errors
/// The kernel refuses; needs Linux 5.3.
pub fn ends(child: &Child, within: Duration) -> Result<bool> {
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let end = Instant::now() + within;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let mut polled = [PollFd::new(&ended, PollFlags::IN)];
        match poll(&mut polled, left.try_into().ok().as_ref()) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(why) => return Err(why.into()),
        }
    }
}

/// The child's standard input, and what is still to go into it.
struct Feed {
    pipe: Option<ChildStdin>,
    input: Vec<u8>,
    given: usize,
}

impl Feed {
    fn new(pipe: Option<ChildStdin>, input: Vec<u8>) -> Result<Self> {
        if let Some(pipe) = &pipe {
            fcntl_setfl(pipe, OFlags::NONBLOCK)?;
        }
        Ok(Feed { pipe, input, given: 0 })
    }

    fn feed(&mut self) -> Result<()> {
        while let Some(pipe) = &mut self.pipe {
            match pipe.write(&self.input[self.given..]) {
                Ok(0) => self.pipe = None,
                Ok(n) => self.given += n,
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                // A child that ends without reading all of it is judged by its exit code.
                Err(why) if why.kind() == ErrorKind::BrokenPipe => self.pipe = None,
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }
}

/// One of the child's outputs, and what came out of it.
struct Heard<R> {
    pipe: Option<R>,
    bytes: Vec<u8>,
}

impl<R: Read + AsFd> Heard<R> {
    fn new(pipe: Option<R>) -> Result<Self> {
        if let Some(pipe) = &pipe {
            fcntl_setfl(pipe, OFlags::NONBLOCK)?;
        }
        Ok(Heard { pipe, bytes: vec![] })
    }

    fn listen(&mut self) -> Result<()> {
        if let Some(pipe) = &mut self.pipe {
            match pipe.read_to_end(&mut self.bytes) {
                Ok(_) => self.pipe = None,
                Err(why) if why.kind() == ErrorKind::WouldBlock => {}
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }
}
