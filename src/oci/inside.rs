//! Paths of an image, resolved by the kernel with the image as root (`openat2`, Linux 5.6): no link of it leads out, and
//! none of proc is followed.

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// How often the kernel may have been disturbed: a rename or mount anywhere on the machine does, while `..` is resolved.
const TRIES: u32 = 64;

/// Opens what the image has at a path.
///
/// # Errors
/// As the kernel says; see [`is_absence`].
pub fn open(image: impl AsFd, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    undisturbed(|| openat2(image.as_fd(), path, how))
}

/// Whether the image just has nothing there. Whatever else fails says nothing about the image.
pub fn is_absence(error: Errno) -> bool {
    matches!(error, Errno::ENOENT | Errno::ENOTDIR)
}

fn undisturbed<T>(mut attempt: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 1..TRIES {
        match attempt() {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            done => return done,
        }
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_again_where_that_helps() {
        let after = |disturbed: u32, then: Result<u32, Errno>| {
            let mut asked = 0;
            let answer = undisturbed(|| {
                asked += 1;
                if asked > disturbed { then } else { Err(Errno::EAGAIN) }
            });
            (answer, asked)
        };
        assert_eq!(after(0, Ok(7)), (Ok(7), 1));
        assert_eq!(after(5, Ok(7)), (Ok(7), 6));
        assert_eq!(after(0, Err(Errno::ENOENT)), (Err(Errno::ENOENT), 1));
        assert_eq!(after(TRIES, Ok(7)), (Err(Errno::EAGAIN), TRIES));
    }
}
