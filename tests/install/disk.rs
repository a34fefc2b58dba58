//! A disk that is too small: asked before, and survived when it fills up in the middle.

use crate::kit::*;
use concourse_ci_machine::install::{Order, installed};
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A file system of `megabytes` that goes with this value.
struct Small(TempDir);

impl Small {
    /// `None`, loudly, where this user may not mount.
    fn new(megabytes: u32) -> Option<Small> {
        let dir = TempDir::new().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(dir.path())
            .status()
            .is_ok_and(|s| s.success());
        if !mounted {
            eprintln!("SKIPPED: no tmpfs can be mounted here; run as root to test a full disk");
        }
        mounted.then_some(Small(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(self.path()).status());
    }
}

fn assert_no_room(text: &str) {
    assert!(text.contains("free in /opt/concourse") && text.contains("make room"), "{text}");
}

/// Refused for lack of room, with what was there before untouched.
fn refused_without_loss(m: &Machine, order: &Order) -> String {
    let before = installed(&m.root).unwrap();
    let text = m.refused(order);
    assert_no_room(&text);
    assert_eq!(installed(&m.root).unwrap(), before);
    assert!(m.list("versions").iter().all(|n| !n.starts_with('.')), "no staging directory is left");
    text
}

fn with_a_version(m: &Machine) {
    let small = m.resource("small.tgz", &Tgz::new().concourse("8.2.4").pack());
    m.install(&from_file("8.2.4", &small)).unwrap();
    fs::remove_file(small).unwrap();
}

#[test]
fn an_archive_that_will_not_fit_is_not_begun() {
    let Some(disk) = Small::new(8) else { return };
    let m = Machine::at(disk.path());
    with_a_version(&m);
    let elsewhere = TempDir::new().unwrap();
    let big = Tgz::new().concourse("8.2.5").file("concourse/zeros", 0o644, &vec![0; 20_000_000]).pack();
    let path = elsewhere.path().join("c.tgz");
    fs::write(&path, big).unwrap();
    let text = refused_without_loss(&m, &from_file("8.2.5", &path));
    assert!(text.contains("needs about 23 MB free") && text.contains("8 MB are free"), "{text}");

    let bytes = noise(3_000_000, 5);
    let server = Server::of(vec![("/c.tgz", bytes.clone())]);
    let mut order = from_url("8.2.5", server.url("/c.tgz"));
    order.sha256 = Some(sha256(&bytes));
    let (done, told) = m.install_told(&order);
    let text = done.unwrap_err();
    assert!(text.contains("needs about 11 MB free"), "{text}");
    assert_eq!(told, [""; 0], "the archive's length was enough to know");
}

#[test]
fn a_disk_that_fills_up_while_unpacking_loses_nothing() {
    let Some(disk) = Small::new(8) else { return };
    let m = Machine::at(disk.path());
    with_a_version(&m);
    // Two gzip members: the length at the end is that of the second only.
    let tar = Tgz::new().concourse("8.2.5").file("concourse/zeros", 0o644, &vec![0; 20_000_000]).tar();
    let bytes = [gzip(&tar[..tar.len() - 512]), gzip(&tar[tar.len() - 512..])].concat();
    let elsewhere = TempDir::new().unwrap();
    let path = elsewhere.path().join("c.tgz");
    fs::write(&path, &bytes).unwrap();
    refused_without_loss(&m, &from_file("8.2.5", &path));

    let server = Server::of(vec![("/c.tgz", bytes.clone())]);
    let mut order = from_url("8.2.5", server.url("/c.tgz"));
    order.sha256 = Some(sha256(&bytes));
    refused_without_loss(&m, &order);
    assert_eq!(m.parts(), ["c.tgz.part"], "what was downloaded and checked stays");
    refused_without_loss(&m, &order);
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn a_disk_that_fills_up_while_downloading_is_freed() {
    let Some(disk) = Small::new(4) else { return };
    let m = Machine::at(disk.path());
    with_a_version(&m);
    let server = Server::new(|_, stream| {
        head(stream, "200 OK", &[]); // no length that would tell
        drop(std::io::Write::write_all(stream, &noise(6_000_000, 5)));
    });
    let mut order = from_url("8.2.5", server.url("/c.tgz"));
    order.sha256 = Some("ab".repeat(32));
    refused_without_loss(&m, &order);
    assert_eq!(m.parts(), [""; 0]);
    assert_eq!(server.seen().len(), 1, "a full disk is not tried again");
}

#[test]
fn a_disk_without_programs_is_told() {
    let Some(disk) = Small::new(8) else { return };
    let remount = ["-o", "remount,noexec"];
    assert!(Command::new("mount").args(remount).arg(disk.path()).status().unwrap().success());
    let m = Machine::at(disk.path());
    let path = m.resource("c.tgz", &release("8.2.5"));
    assert!(m.refused(&from_file("8.2.5", &path)).contains("without noexec"));
}
