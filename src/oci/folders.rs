//! Folders of the worker that steps see: the directories in `/srv`, each at the path that it has on the worker.

use super::below;
use super::devices::Mount;
use super::edit::{Mounted, normal};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// What stands in the root directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// What it is.
    pub kind: Kind,
}

/// What an [`Entry`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A symlink, and what it says.
    Link(PathBuf),
    /// A file, a socket…
    Other,
}

/// A folder that steps see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// In the container, and on the worker.
    pub path: PathBuf,
    /// The directory itself.
    pub source: PathBuf,
    /// Its name ends in `_writable` or `_rw`.
    pub writable: bool,
    /// Something is mounted below the directory.
    pub above_mounts: bool,
}

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// By path.
    pub folders: Vec<Folder>,
    /// Sentences about what an operator may have meant to be a folder and is none.
    pub skipped: Vec<String>,
}

impl Folder {
    /// The mount in a container.
    pub fn mount(&self) -> Mount {
        let options: &[&str] = match (self.writable, self.above_mounts) {
            (true, _) => &["rbind", "rw"],
            (false, false) => &["rbind", "ro"],
            // `rro` needs runc 1.1, which fails before Linux 5.12; an older runc ignores it and goes by `ro`.
            (false, true) => &["rbind", "ro", "rro"],
        };
        Mount {
            host: self.source.clone(),
            path: self.path.clone(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        }
    }
}

/// Links from one to the next; more are a loop, or nobody's intention.
const LINKS: usize = 8;

/// Decides what is a folder (PURE). A symlink counts only if it names a directory right in `root`, or another such link:
/// any other way could go through a writable folder, where a task could change it between this look and the mount.
pub fn choose(root: &Path, entries: Vec<Entry>) -> Found {
    let mut found = Found::default();
    let kinds: BTreeMap<OsString, Kind> = entries.iter().map(|e| (e.name.clone(), e.kind.clone())).collect();
    for Entry { name, kind } in entries {
        let path = root.join(&name);
        let Some(text) = name.to_str() else {
            found.skipped.push(format!("{} has a name that is not UTF-8: no step sees it", path.display()));
            continue;
        };
        if text.starts_with('.') || text == "lost+found" {
            continue;
        }
        let writable = text.ends_with("_writable") || text.ends_with("_rw");
        let source = match kind {
            Kind::Other => continue,
            Kind::Directory => path.clone(),
            Kind::Link(target) => {
                match led_to(root, &target, &kinds).filter(|source| source.to_str().is_some()) {
                    Some(source) => source,
                    None => {
                        found.skipped.push(format!(
                    "{} is a symlink to {}, not to a folder in {}: no step sees it; use a bind mount instead",
                    path.display(),
                    target.display(),
                    root.display()
                ));
                        continue;
                    }
                }
            }
        };
        found.folders.push(Folder { path, source, writable, above_mounts: false });
    }
    found.folders.sort_by(|a, b| a.path.cmp(&b.path));
    found.skipped.sort();
    found
}

/// The directory right in `root` that a link to `target` means, by what stands in `root` alone.
fn led_to(root: &Path, target: &Path, kinds: &BTreeMap<OsString, Kind>) -> Option<PathBuf> {
    let mut target = target;
    for _ in 0..LINKS {
        let inside = if target.is_absolute() { target.strip_prefix(root).ok()? } else { target };
        let mut parts = inside.components().filter(|part| *part != Component::CurDir);
        let (Some(Component::Normal(name)), None) = (parts.next(), parts.next()) else { return None };
        match kinds.get(name)? {
            Kind::Directory => return Some(root.join(name)),
            Kind::Link(next) => target = next,
            Kind::Other => return None,
        }
    }
    None
}

/// Looks into `root`; a root that does not exist has no folders.
///
/// # Errors
/// It can't be read.
pub fn scan(root: &Path) -> io::Result<Found> {
    let listed = match fs::read_dir(root) {
        Ok(listed) => listed,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::default()),
        Err(e) => return Err(e),
    };
    let mut entries = vec![];
    for entry in listed {
        let entry = entry?;
        let kind = entry.file_type()?;
        let kind = if kind.is_dir() {
            Kind::Directory
        } else if kind.is_symlink() {
            Kind::Link(fs::read_link(entry.path())?)
        } else {
            Kind::Other
        };
        entries.push(Entry { name: entry.file_name(), kind });
    }
    let mut found = choose(root, entries);
    if found.folders.iter().any(|folder| !folder.writable) {
        let names = below::look(root)?;
        for folder in &mut found.folders {
            folder.above_mounts = folder
                .source
                .file_name()
                .is_some_and(|name| name.to_str().is_some_and(|name| names.contains(name)));
        }
    }
    Ok(found)
}

/// A folder that can't be mounted, and why: a stale NFS, a FUSE without its program. A scan does not notice, since the
/// name is that of a directory, and runc's own message names nothing that the author of a pipeline knows.
pub fn broken(folders: &[Folder]) -> Option<(&Folder, io::Error)> {
    let why = |folder: &Folder| match fs::metadata(&folder.source) {
        Ok(found) if found.is_dir() => None,
        Ok(_) => Some(io::ErrorKind::NotADirectory.into()),
        Err(e) => Some(e),
    };
    folders.iter().find_map(|folder| Some((folder, why(folder)?)))
}

/// A mount of the bundle that has a folder's place, or the root's or one above it, where folders would be put into a
/// step's own volume; and that place on the worker (PURE). One from the folder's own source is ours: the bundle has been
/// equipped before.
pub fn taken(mounts: &[Mounted], root: &Path, folders: &[Folder]) -> Option<(String, PathBuf)> {
    let last = folders.last()?;
    mounts.iter().find_map(|mount| {
        let place = mount.place();
        let path = match folders.iter().find(|folder| normal(&folder.path) == place) {
            Some(folder) if mount.source.as_deref() == folder.source.to_str() => return None,
            Some(folder) => &folder.path,
            None if !place.is_empty() && last.path.starts_with(&place) => root,
            None => return None,
        };
        Some((mount.destination.clone(), path.to_owned()))
    })
}

/// The folders in whose place an image has something of its own, which a mount would hide. Symlinks of the image are
/// followed inside of it only, as runc does.
pub fn hidden(rootfs: &Path, root: &Path, folders: &[Folder]) -> Vec<PathBuf> {
    let Ok(image) = File::open(rootfs) else { return vec![] };
    // The usual image has nothing in /srv: one look for all folders.
    let Some(names) = names(image.as_fd(), root) else { return vec![] };
    let has = |folder: &&Folder| {
        folder.path.file_name().is_some_and(|name| names.iter().any(|n| n == name))
            && self::names(image.as_fd(), &folder.path).is_none_or(|inside| !inside.is_empty())
    };
    folders.iter().filter(has).map(|folder| folder.path.clone()).collect()
}

/// Names in a directory of the image; `None`: it is no directory.
fn names(image: impl AsFd, path: &Path) -> Option<Vec<OsString>> {
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .mode(Mode::empty())
        .resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let dir: OwnedFd = openat2(image, path, how).ok()?;
    let listed = nix::dir::Dir::from_fd(dir).ok()?.into_iter().flatten();
    let named = listed.map(|entry| OsString::from(entry.file_name().to_string_lossy().into_owned()));
    Some(named.filter(|name| name != "." && name != "..").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: Kind) -> Entry {
        Entry { name: name.into(), kind }
    }

    #[test]
    fn what_is_a_folder_and_what_is_not() {
        let link = |to: &str| Kind::Link(to.into());
        let found = choose(
            Path::new("/srv"),
            vec![
                entry("out_rw", Kind::Directory),
                entry("cache_writable", Kind::Directory),
                entry("data", Kind::Directory),
                entry("rw", Kind::Directory),
                entry("latest", link("/srv/data")),
                entry("bare", link("./data/")),
                entry("twice", link("latest")),
                entry("away", link("/etc")),
                entry("deep", link("/srv/out_rw/x")),
                entry("up", link("/srv")),
                entry("gone", link("nothing")),
                entry("note", link("file")),
                // To a folder, but on a way that a task could turn another way.
                entry("round", link("out_rw/../data")),
                entry("through", link("/srv/out_rw/link-to-data")),
                entry("a", link("b")),
                entry("b", link("a")),
                entry("file", Kind::Other),
                entry(".hidden", Kind::Directory),
                entry("lost+found", Kind::Directory),
            ],
        );
        let folder =
            |f: &Folder| format!("{} < {} {:?}", f.path.display(), f.source.display(), f.mount().options);
        assert_eq!(
            found.folders.iter().map(folder).collect::<Vec<_>>(),
            [
                r#"/srv/bare < /srv/data ["rbind", "ro"]"#,
                r#"/srv/cache_writable < /srv/cache_writable ["rbind", "rw"]"#,
                r#"/srv/data < /srv/data ["rbind", "ro"]"#,
                r#"/srv/latest < /srv/data ["rbind", "ro"]"#,
                r#"/srv/out_rw < /srv/out_rw ["rbind", "rw"]"#,
                r#"/srv/rw < /srv/rw ["rbind", "ro"]"#,
                r#"/srv/twice < /srv/data ["rbind", "ro"]"#,
            ]
        );
        let told = |path: &str| found.skipped.iter().any(|s| s.starts_with(&format!("{path} ")));
        let skipped = ["away", "deep", "up", "gone", "note", "round", "through", "a", "b"];
        assert!(skipped.iter().all(|name| told(&format!("/srv/{name}"))), "{found:?}");
        assert_eq!(found.skipped.len(), skipped.len());
    }

    #[test]
    fn a_scan_of_real_directories() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        assert_eq!(scan(&root.join("none")).unwrap(), Found::default());
        fs::create_dir(root.join("a")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink("a", root.join("b_rw")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("etc")).unwrap();
        // As a task leaves it that may write to the one folder: where it leads now is not where it will.
        std::os::unix::fs::symlink("../a", root.join("a/link")).unwrap();
        std::os::unix::fs::symlink("a/link", root.join("c")).unwrap();
        let found = scan(&root).unwrap();
        assert_eq!(found.folders.len(), 2);
        assert_eq!((&found.folders[1].source, found.folders[1].writable), (&root.join("a"), true));
        assert_eq!(found.skipped.len(), 2, "{found:?}");
    }

    #[test]
    fn what_cant_be_mounted() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let folders = scan(dir.path()).unwrap().folders;
        assert!(broken(&folders).is_none());
        fs::remove_dir(dir.path().join("b")).unwrap();
        let (folder, why) = broken(&folders).unwrap();
        assert_eq!((folder, why.kind()), (&folders[1], io::ErrorKind::NotFound));
        fs::write(dir.path().join("b"), "").unwrap();
        assert_eq!(broken(&folders).unwrap().1.kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn what_a_step_has_in_the_same_place() {
        let folders = choose(
            Path::new("/srv"),
            vec![entry("data", Kind::Directory), entry("latest", Kind::Link("/srv/data".into()))],
        )
        .folders;
        let taken = |destination: &str, source: Option<&str>| {
            let mount = Mounted { destination: destination.into(), source: source.map(str::to_owned) };
            taken(&[mount], Path::new("/srv"), &folders).map(|(_, path)| path.display().to_string())
        };
        let volume = Some("/var/lib/concourse/volumes/live/x/volume");
        for place in ["/srv/data", "/srv//data/", "srv/data", "/srv/a/../data"] {
            assert_eq!(taken(place, volume).as_deref(), Some("/srv/data"), "{place}");
            assert_eq!(taken(place, Some("/srv/data")), None, "our own, from before");
        }
        assert_eq!(taken("/srv/latest", Some("/srv/latest")).as_deref(), Some("/srv/latest"));
        assert_eq!(taken("/srv/latest", Some("/srv/data")), None);
        assert_eq!(taken("/srv/data", None).as_deref(), Some("/srv/data"), "a tmpfs");
        assert_eq!(taken("/srv", volume).as_deref(), Some("/srv"));
        for other in ["/", "/srv/database", "/srv/data/model", "/sr", "/tmp/build/0123abcd/srv/data"] {
            assert_eq!(taken(other, volume), None, "{other}");
        }
    }

    #[test]
    fn what_an_image_has_in_the_same_place() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path();
        let folders = ["full", "empty", "file", "away"].map(|n| Folder {
            path: Path::new("/srv").join(n),
            source: "/".into(),
            writable: false,
            above_mounts: false,
        });
        assert_eq!(hidden(image, Path::new("/srv"), &folders), Vec::<PathBuf>::new());
        fs::create_dir_all(image.join("var/srv/full/x")).unwrap();
        fs::create_dir_all(image.join("var/srv/empty")).unwrap();
        fs::write(image.join("var/srv/file"), "").unwrap();
        // As some images have it: absolute, but inside of the image.
        std::os::unix::fs::symlink("/var/srv", image.join("srv")).unwrap();
        assert_eq!(
            hidden(image, Path::new("/srv"), &folders),
            [Path::new("/srv/full"), Path::new("/srv/file")]
        );
    }
}
