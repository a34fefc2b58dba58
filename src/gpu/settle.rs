//! When to look, and when to look again.
//!
//! LXD hands on a node in two acts, an empty file in `/dev` and the node mounted over it, and only the first of them wakes
//! who watches the directory. And systemd (252) forgets what changes in a directory that a path unit watches while
//! the service that it has started runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// Far longer than the second act takes, also where everything is slow.
const PATIENCE: Duration = Duration::from_secs(10);

/// What `concourse-gpu.path` watches.
const WATCHED: [&str; 5] = ["dev", "dev/dri", "dev/nvidia-caps", "etc/cdi", "run/cdi"];

/// What is in the watched directories, by times of change.
#[derive(Debug, PartialEq, Eq)]
pub struct Stamp(BTreeMap<PathBuf, SystemTime>);

impl Stamp {
    /// Now, on the machine whose `/` is that directory. Of nodes their coming and going counts, not their use; of
    /// specs also what is written into them.
    pub fn of(root: &Path) -> Self {
        let changed = |path: PathBuf| Some((path.clone(), path.metadata().ok()?.modified().ok()?));
        let dirs = WATCHED.iter().map(|dir| root.join(dir));
        let specs = WATCHED[3..].iter().flat_map(|dir| listed(root.join(dir)));
        Stamp(dirs.chain(specs.map(|entry| entry.path())).filter_map(changed).collect())
    }
}

fn listed(dir: PathBuf) -> impl Iterator<Item = std::fs::DirEntry> {
    std::fs::read_dir(dir).into_iter().flatten().flatten()
}

/// Waits, for some seconds at most, until no file stands where a GPU's node is to be.
pub fn settle(dev: &Path) {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end && places(dev).iter().any(|path| is_empty_file(path)) {
        sleep(Duration::from_millis(20));
    }
}

fn places(dev: &Path) -> Vec<PathBuf> {
    let gpu = |name: &str| name.starts_with("nvidia") || ["kfd", "dxg"].contains(&name);
    let own = listed(dev.to_owned()).filter(|entry| entry.file_name().to_str().is_some_and(gpu));
    own.chain(listed(dev.join("dri"))).map(|entry| entry.path()).collect()
}

fn is_empty_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_file() && meta.len() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_comes_goes_and_is_written_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("dev")).unwrap();
        fs::create_dir_all(root.join("etc/cdi")).unwrap();
        fs::write(root.join("dev/nvidia0"), "").unwrap();
        fs::write(root.join("etc/cdi/nvidia.yaml"), "").unwrap();
        // Times are those of the kernel's tick: these are of another day, so that each change differs.
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let settled = || {
            for path in ["dev/nvidia0", "etc/cdi/nvidia.yaml", "dev", "etc/cdi"] {
                fs::File::open(root.join(path)).unwrap().set_modified(old).unwrap();
            }
            Stamp::of(root)
        };
        let before = settled();
        fs::write(root.join("dev/nvidia0"), "used").unwrap();
        assert_eq!(Stamp::of(root), before);
        fs::write(root.join("etc/cdi/nvidia.yaml"), "written").unwrap();
        assert_ne!(Stamp::of(root), before);
        assert_eq!(settled(), before);
        fs::write(root.join("dev/nvidia1"), "").unwrap();
        assert_ne!(Stamp::of(root), before);
        assert_eq!(settled(), before);
        fs::remove_file(root.join("dev/nvidia1")).unwrap();
        assert_ne!(Stamp::of(root), before);
        fs::create_dir(root.join("dev/dri")).unwrap();
        assert_ne!(settled(), before);
    }

    #[test]
    fn an_empty_file_is_waited_for_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("dri")).unwrap();
        fs::write(dir.path().join("core"), "").unwrap();
        fs::write(dir.path().join("nvidia-note"), "not a place for a node").unwrap();
        assert!(!places(dir.path()).iter().any(|path| is_empty_file(path)));
        let place = dir.path().join("dri/renderD128");
        fs::write(&place, "").unwrap();
        assert!(places(dir.path()).iter().any(|path| is_empty_file(path)));
        std::thread::scope(|scope| {
            scope.spawn(|| settle(dir.path()));
            fs::remove_file(&place).unwrap();
        });
    }
}
