//! The program that a shim starts to keep a process's output: copies two pipes to a file and, when they have ended,
//! leaves a mark. It lives as long as the process, whatever becomes of worker and containerd.

use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::path::Path;

/// The address that makes a shim start this program for a file.
pub fn uri(log: &Path, terminal: bool) -> String {
    let program = crate::version::program();
    let kind = if terminal { "terminal" } else { "pipes" };
    let value = crate::http::percent_encode(&format!("{kind}:{}", log.display()));
    format!("binary://{}?--standin-task-log={value}", program.display())
}

/// The mark that a finished output has.
pub fn mark(log: &Path) -> std::path::PathBuf {
    log.with_extension("complete")
}

/// What the shim starts: output on descriptors 3 and 4; closing 5 says that we are ready.
pub fn run(args: &[String]) -> Result<()> {
    let (kind, path) = args.first().and_then(|a| a.split_once(':')).context("which file?")?;
    let path = Path::new(path);
    // When the shim lets the process go it also says SIGTERM to us, while output may still be in the pipes.
    // SAFETY: ignoring a signal has no preconditions.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    // SAFETY: the shim hands exactly these three descriptors to us.
    let (out, err, ready) = unsafe { (File::from_raw_fd(3), File::from_raw_fd(4), File::from_raw_fd(5)) };
    let open = || OpenOptions::new().create(true).append(true).open(path);
    let log = open()?;
    // With a terminal there is one stream, and the shim never closes the other pipe.
    let other = (kind == "pipes")
        .then(|| open().map(|log| std::thread::spawn(move || copy(err, log))))
        .transpose()?;
    drop(ready);
    copy(out, log);
    if let Some(other) = other {
        let _ = other.join();
    }
    File::create(mark(path))?;
    Ok(())
}

fn copy(mut from: File, mut to: File) {
    let mut buffer = [0; 8192];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
}
