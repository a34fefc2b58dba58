//! Files of an image that nobody trusts.
//!
//! The container's root is not yet `/`, and proc of its pid namespace is already mounted in it: `/proc/1/root` there is
//! the worker. So each path is resolved by the kernel with the image's root as root (`openat2`, Linux 5.6), and the
//! magic links of proc are refused; what is made, is made by name in a directory that was resolved so.

use crate::oci::inside;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat, renameat};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The largest file that is read of an image: caches have some 100 KiB.
const LARGEST: u64 = 16 << 20;

/// A container's root.
pub struct Root(OwnedFd);

/// A directory in it.
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

fn at(path: &Path) -> impl Fn(Errno) -> String + '_ {
    move |e| match e {
        Errno::ENOSYS => "openat2 is missing; Linux 5.6 or newer is needed".into(),
        e => format!("{} in the image: {}", path.display(), e.desc()),
    }
}

fn same(a: &FileStat, b: &FileStat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

impl Root {
    /// Any directory but the worker's own root.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let fd =
            openat(AT_FDCWD, path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        if same(&fstat(&fd)?, &nix::sys::stat::stat("/")?) { Err(Errno::EINVAL) } else { Ok(Self(fd)) }
    }

    /// Whether the path in it is that very directory of the worker.
    pub fn holds(&self, path: &str, directory: &Path) -> bool {
        let inside = self.resolve(Path::new(path), OFlag::O_PATH).and_then(|fd| fstat(&fd));
        inside.is_ok_and(|inside| nix::sys::stat::stat(directory).is_ok_and(|it| same(&inside, &it)))
    }

    fn resolve(&self, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
        inside::open(&self.0, path, flags)
    }

    /// Whether there is something; a link that leads nowhere is nothing.
    pub fn has(&self, path: &Path) -> bool {
        self.resolve(path, OFlag::O_PATH).is_ok()
    }

    /// A directory; `None` if it isn't there.
    pub fn dir(&self, path: &Path) -> Result<Option<Dir>, String> {
        match self.resolve(path, OFlag::O_PATH | OFlag::O_DIRECTORY) {
            Ok(fd) => Ok(Some(Dir { fd, path: path.into() })),
            Err(Errno::ENOENT) => Ok(None),
            Err(e) => Err(at(path)(e)),
        }
    }

    /// Where the container has the directory, without links on the way.
    pub fn path_of(&self, dir: &Dir) -> Option<PathBuf> {
        let root = std::fs::read_link(format!("/proc/self/fd/{}", self.0.as_raw_fd())).ok()?;
        let path = std::fs::read_link(dir.as_seen()).ok()?;
        Some(Path::new("/").join(path.strip_prefix(root).ok()?))
    }

    /// A directory, made with its parents where it is missing.
    pub fn make_dir(&self, path: &Path) -> Result<Dir, String> {
        if let Some(dir) = self.dir(path)? {
            return Ok(dir);
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(format!("{} is no directory", path.display()));
        };
        let parent = self.make_dir(parent)?;
        mkdirat(&parent.fd, name, Mode::from_bits_truncate(0o755)).map_err(at(path))?;
        self.dir(path)?.ok_or_else(|| at(path)(Errno::ENOENT))
    }

    /// A regular file's content; `None` if there is none.
    pub fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, String> {
        // Opening a device or a pipe does something, so it is looked at first. No program of the image runs that
        // could change it meanwhile.
        let found = match self.resolve(path, OFlag::O_PATH).and_then(|fd| fstat(&fd)) {
            Ok(found) => found,
            Err(Errno::ENOENT) => return Ok(None),
            Err(e) => return Err(at(path)(e)),
        };
        if SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
            return Err(format!("{} in the image is no file", path.display()));
        }
        let file = File::from(self.resolve(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK).map_err(at(path))?);
        let mut content = vec![];
        let size = file.take(LARGEST + 1).read_to_end(&mut content);
        let size = size.map_err(|e| format!("{} in the image: {e}", path.display()))? as u64;
        if size > LARGEST {
            Err(format!("{} in the image is too large", path.display()))
        } else {
            Ok(Some(content))
        }
    }

    /// Lets `path`, a file of proc, be the file `from`.
    pub fn cover(&self, path: &Path, from: &Path) -> Result<(), String> {
        let target = match self.resolve(path, OFlag::O_PATH) {
            Err(Errno::ENOENT) => return Ok(()),
            target => target.map_err(at(path))?,
        };
        if fstatfs(&target).map_err(at(path))?.filesystem_type() != PROC_SUPER_MAGIC {
            return Err(format!("{} in the image is not of proc", path.display()));
        }
        let source = self.resolve(from, OFlag::O_PATH).map_err(at(from))?;
        let name = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
        // The tree is mounted read-only, and so is what is bound from it.
        let none: Option<&str> = None;
        mount(Some(name(&source).as_str()), name(&target).as_str(), none, MsFlags::MS_BIND, none)
            .map_err(at(path))
    }
}

impl Dir {
    /// Where a program of the worker sees the directory.
    pub fn as_seen(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd()).into()
    }

    /// Makes the name a link to the target, in place of anything but a directory.
    pub fn link(&self, name: &str, target: &str) -> Result<(), String> {
        let error = |e| at(&self.path.join(name))(e);
        match symlinkat(target, &self.fd, name) {
            Err(Errno::EEXIST) => {}
            done => return done.map_err(error),
        }
        if readlinkat(&self.fd, name).is_ok_and(|now| now == target) {
            return Ok(());
        }
        let new = self.free(name)?;
        symlinkat(target, &self.fd, new.as_str()).map_err(error)?;
        renameat(&self.fd, new.as_str(), &self.fd, name).map_err(error)
    }

    /// Makes the name a file of that content, whole or not at all.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), String> {
        let error = |e| at(&self.path.join(name))(e);
        let new = self.free(name)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut file = File::from(
            openat(&self.fd, new.as_str(), flags, Mode::from_bits_truncate(0o644)).map_err(error)?,
        );
        file.write_all(content)
            .map_err(|e| format!("{} in the image: {e}", self.path.join(name).display()))?;
        fchmod(file.as_fd(), Mode::from_bits_truncate(0o644)).map_err(error)?;
        renameat(&self.fd, new.as_str(), &self.fd, name).map_err(error)
    }

    /// A name that nothing has, for what is about to become `name`.
    fn free(&self, name: &str) -> Result<String, String> {
        let new = format!(".{name}.concourse-gpu");
        match unlinkat(&self.fd, new.as_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(new),
            Err(e) => Err(at(&self.path.join(&new))(e)),
        }
    }

    /// What `lstat` says of a name in it.
    pub fn stat(&self, name: &str) -> Option<FileStat> {
        fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()
    }

    /// Sets the mode of the directory itself.
    pub fn set_mode(&self, mode: u32) -> Result<(), String> {
        // fchmod takes no O_PATH descriptor.
        let fd =
            openat(&self.fd, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
        fchmod(fd.map_err(at(&self.path))?, Mode::from_bits_truncate(mode)).map_err(at(&self.path))
    }
}
