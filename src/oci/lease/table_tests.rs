use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use tempfile::TempDir;

const BOOT: &str = "a boot";

fn stored() -> (TempDir, Table) {
    let dir = tempfile::tempdir().unwrap();
    let table = Table { given: 3, ..Table::new(BOOT) };
    Locked::open(dir.path()).unwrap().store(&table).unwrap();
    (dir, table)
}

fn lost(dir: &Path) -> String {
    match load(dir, BOOT) {
        Stored::Lost(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_stored_is_read() {
    let (dir, table) = stored();
    assert_eq!(load(dir.path(), BOOT), Stored::Table(table));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "a table and a lock");
}

#[test]
fn what_cant_be_trusted_is_lost() {
    let (dir, table) = stored();
    let path = dir.path().join(TABLE);
    let text = fs::read_to_string(&path).unwrap();
    let written = |text: &str| {
        fs::write(&path, text).unwrap();
        lost(dir.path())
    };
    for length in 0..text.len() {
        assert!(written(&text[..length]).contains("leases.json"));
    }
    for (broken, why) in [
        ("\u{0}\u{0}", "expected value"),
        ("[]", "invalid length"),
        (&text.replace("\"format\":1", "\"format\":0"), "has format 0, this wrapper reads 1"),
        (&text.replace("\"format\":1", "\"format\":2"), "has format 2, this wrapper reads 1"),
        (&text.replace(BOOT, "another"), "before the last boot"),
    ] {
        assert!(written(broken).contains(why), "{broken}: {}", written(broken));
    }
    fs::write(&path, &text).unwrap();
    assert_eq!(load(dir.path(), BOOT), Stored::Table(table));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(lost(dir.path()).contains("others than its owner"));
    if nix::unistd::geteuid().is_root() {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
        assert!(lost(dir.path()).contains("others than its owner"));
    }
    let aside = dir.path().join("aside");
    fs::rename(&path, &aside).unwrap();
    assert!(lost(dir.path()).contains("No such file"));
    symlink(&aside, &path).unwrap();
    assert!(lost(dir.path()).contains("leases.json"));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(lost(dir.path()).contains("others than its owner"));
}

#[test]
fn what_cant_be_read_is_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    // Neither missing nor another's: nobody knows what would be there.
    for place in ["file", &"long/".repeat(1000)] {
        let stored = load(&dir.path().join(place), BOOT);
        assert!(matches!(stored, Stored::Unreadable(_)), "{stored:?}");
    }
}

#[test]
fn what_cant_be_written_changes_nothing() {
    let (dir, table) = stored();
    let locked = Locked::open(dir.path()).unwrap();
    // A place for the new table that can't be had, as on a full disk.
    fs::create_dir_all(dir.path().join(".leases.json.new/x")).unwrap();
    let why = locked.store(&Table::new(BOOT)).unwrap_err();
    assert!(why.contains("leases.json can't be written"), "{why}");
    assert_eq!(load(dir.path(), BOOT), Stored::Table(table));
}

#[test]
fn a_directory_of_others_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(Locked::open(dir.path()).unwrap_err().contains("only its owner can write to"));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    if nix::unistd::geteuid().is_root() {
        let foreign = dir.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        std::os::unix::fs::chown(&foreign, Some(1234), None).unwrap();
        assert!(Locked::open(&foreign).unwrap_err().contains("belongs to uid 0"));
    }
    let link = dir.path().join("link");
    symlink(dir.path(), &link).unwrap();
    assert!(Locked::open(&link).is_err());
    fs::write(dir.path().join("file"), "").unwrap();
    assert!(Locked::open(&dir.path().join("file")).is_err());
    assert!(Locked::open(&dir.path().join("made/for/it")).is_ok());
}

#[test]
fn one_at_a_time_and_the_next_when_it_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let first = Locked::open(dir.path()).unwrap();
    let path = dir.path().to_owned();
    let (told, tell) = std::sync::mpsc::channel();
    let second = std::thread::spawn(move || {
        let locked = Locked::open(&path);
        told.send(()).unwrap();
        locked.map(drop)
    });
    assert!(tell.recv_timeout(Duration::from_millis(100)).is_err(), "two have the lock");
    drop(first);
    tell.recv_timeout(Duration::from_secs(10)).unwrap();
    second.join().unwrap().unwrap();
}

#[test]
fn a_lock_that_was_removed_locks_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let first = Locked::open(dir.path()).unwrap();
    let path = dir.path().to_owned();
    let second = std::thread::spawn(move || Locked::open(&path).unwrap());
    while fs::read_to_string("/proc/locks").unwrap().lines().filter(|l| l.contains("->")).count() == 0 {
        std::thread::yield_now();
    }
    fs::remove_file(dir.path().join(LOCK)).unwrap();
    drop(first);
    let second = second.join().unwrap();
    let held = second._lock.metadata().unwrap().ino();
    assert_eq!(
        held,
        fs::metadata(dir.path().join(LOCK)).unwrap().ino(),
        "it has the lock that others will see"
    );
}
