//! LXD hands on a node in two acts, an empty file in `/dev` and the node mounted over it, and only the first of them wakes
//! who watches the directory.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Far longer than the second act takes.
const PATIENCE: Duration = Duration::from_secs(3);

/// Waits, for some seconds at most, until no file stands where a GPU's node is to be.
pub fn settle(dev: &Path) {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end && places(dev).iter().any(|path| is_empty_file(path)) {
        sleep(Duration::from_millis(20));
    }
}

fn places(dev: &Path) -> Vec<PathBuf> {
    let listed = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten();
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
