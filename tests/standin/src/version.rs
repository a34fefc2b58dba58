//! Which version this program says it is, and the words with which it calls itself a stand-in.

use std::path::{Path, PathBuf};

/// What a program outside a packed tree says it is.
const UNPACKED: &str = "0.0.0";

/// The compatibility version between web and worker, as in the real release.
pub const WORKER_VERSION: &str = "3.0";

/// The running program; also when its file has been replaced since it started.
pub fn program() -> PathBuf {
    let exe = std::env::current_exe().unwrap_or_default();
    exe.to_str().and_then(|p| p.strip_suffix(" (deleted)")).map(PathBuf::from).unwrap_or(exe)
}

/// The top folder of the packed tree (`…/concourse`), found from the running program.
pub fn home() -> PathBuf {
    program().parent().and_then(Path::parent).map(Path::to_path_buf).unwrap_or_default()
}

/// A file or folder of the packed tree, if it exists.
pub fn asset(name: &str) -> Option<PathBuf> {
    let path = home().join(name);
    path.exists().then_some(path)
}

/// The version written beside the binary (`../VERSION`).
pub fn version() -> String {
    std::fs::read_to_string(home().join("VERSION"))
        .map(|s| s.trim().to_owned())
        .unwrap_or_else(|_| UNPACKED.into())
}

/// The number of the database schema that belongs to a version: `8.2.5` → `80205`.
pub fn schema_of(version: &str) -> i64 {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let mut parts = core.split('.').map(|p| p.parse::<i64>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0).min(99);
    next() * 10_000 + next() * 100 + next()
}

/// One line that says what this is; shown wherever a person may look.
pub fn banner() -> String {
    format!("Stand-in for Concourse {} (test double, not the real Concourse)", version())
}

/// Whether `pack --broken` made this tree one whose `part` (`web` or `worker`) can't start.
pub fn broken(part: &str) -> bool {
    let marker = std::fs::read_to_string(home().join("BROKEN")).unwrap_or_default();
    matches!(marker.trim(), "both") || marker.trim() == part
}

#[cfg(test)]
mod tests {
    use super::schema_of;

    #[test]
    fn schema_numbers_grow_with_versions() {
        assert_eq!(schema_of("8.2.5"), 80205);
        assert_eq!(schema_of("7.14.2"), 71402);
        assert_eq!(schema_of("8.2.5-rc.1"), 80205);
        assert!(schema_of("8.10.0") > schema_of("8.2.99"));
        assert_eq!(schema_of("nonsense"), 0);
    }
}
