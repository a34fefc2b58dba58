//! Archives that are damaged, hostile, or of another version.

use crate::kit::*;
use concourse_ci_machine::install::installed;
use proptest::prelude::*;
use std::fs;
use std::time::Duration;
use tar::EntryType;

/// Refused for `why`, a second time too, and nothing of it left.
fn turned_down(bytes: &[u8], why: &str) {
    let m = Machine::new();
    let path = m.resource("c.tgz", bytes);
    for _ in 0..2 {
        let text = m.refused(&from_file("8.2.5", &path));
        assert!(text.contains(why), "{text:?} lacks {why:?}");
    }
    assert_eq!(m.list("versions"), [""; 0]);
    assert_eq!(m.parts(), [""; 0]);
}

#[test]
fn nothing_is_written_outside() {
    let good = || Tgz::new().concourse("8.2.5");
    let fifo = EntryType::Fifo;
    let outside = "a link that leads outside";
    for (archive, why) in [
        (good().file("../evil", 0o644, b""), "`../evil` leads outside"),
        (good().file("concourse/../../evil", 0o644, b""), "leads outside"),
        (good().file("/etc/evil", 0o644, b""), "leads outside"),
        (good().file("other/evil", 0o644, b""), "is not in its folder"),
        (good().dir("/concourse/x"), "leads outside"),
        (good().file("concourse", 0o644, b""), "is no folder"),
        (good().symlink("concourse/l", "/etc"), outside),
        (good().symlink("concourse/l", "../../x"), outside),
        (good().symlink("concourse/l", "bin/../../../x"), outside),
        // Inside if one counts names, outside once `up` is followed.
        (good().symlink("concourse/a/b/up", "../..").symlink("concourse/a/b/l", "up/../x"), outside),
        (good().symlink("concourse/l", ".."), outside),
        (
            good().symlink("concourse/l", "bin").file("concourse/l/evil", 0o644, b""),
            "leads through a file or link",
        ),
        (good().symlink("concourse/l", "bin").dir("concourse/l"), "leads through a file or link"),
        (good().symlink("concourse/l", "bin/x").file("concourse/l", 0o644, b""), "is there twice"),
        (good().file("concourse/bin/concourse", 0o755, b""), "is there twice"),
        (good().file("concourse/bin/concourse/x", 0o755, b""), "leads through a file or link"),
        (good().hard_link("concourse/h", "/etc/passwd"), "leads outside"),
        (good().hard_link("concourse/h", "concourse/../x"), "leads outside"),
        (good().hard_link("concourse/h", "concourse/bin"), "hard link to no file"),
        (
            good().symlink("concourse/l", "bin").hard_link("concourse/h", "concourse/l/concourse"),
            "hard link to no",
        ),
        (
            good().symlink("concourse/l", "bin/concourse").hard_link("concourse/h", "concourse/l"),
            "hard link to no",
        ),
        (good().entry(fifo, "concourse/f", 0o644, "", b""), "neither file, folder nor link"),
        (good().entry(EntryType::Char, "concourse/c", 0o644, "", b""), "neither file, folder nor link"),
        (good().entry(EntryType::Block, "concourse/b", 0o644, "", b""), "neither file, folder nor link"),
    ] {
        turned_down(&archive.pack(), why);
    }
}

#[test]
fn damaged_archives_are_refused() {
    let whole = release("8.2.5");
    let mut flipped = whole.clone();
    let last = flipped.len() - 6;
    flipped[last] ^= 1; // in the checksum behind the last entry
    let cut_tar = {
        let tar = Tgz::new().concourse("8.2.5").file("concourse/x", 0o644, &noise(5000, 1)).tar();
        gzip(&tar[..3000])
    };
    for bytes in [
        b"<html>Please log in</html>".to_vec(),
        b"x".to_vec(),
        whole[..whole.len() / 2].to_vec(),
        whole[..whole.len() - 3].to_vec(),
        flipped,
        cut_tar,
        gzip(&noise(4000, 3)),
    ] {
        turned_down(&bytes, "damaged or no .tgz");
    }
    turned_down(&gzip(b""), "bin/concourse is missing");
}

#[test]
fn what_is_unpacked_must_run_here() {
    let with = |mode, body: &[u8]| Tgz::new().file("concourse/bin/concourse", mode, body).pack();
    turned_down(&Tgz::new().dir("concourse/bin").pack(), "bin/concourse is missing");
    turned_down(&Tgz::new().symlink("concourse/bin/concourse", "x").pack(), "bin/concourse is missing");
    turned_down(&with(0o644, b"#!/bin/sh\necho 8.2.5"), "not executable");
    turned_down(&with(0o755, b"\x7fELF of another machine"), "no program for this machine");
    turned_down(&with(0o755, b"#!/no/such/shell"), "can't be started");
    turned_down(&Tgz::new().script("echo no disk >&2; exit 3").pack(), "fails (3) on this machine: no disk");
    turned_down(&Tgz::new().script("echo hello").pack(), "tells no version (`hello`)");
    turned_down(&Tgz::new().script("echo 8.2.5+gpu").pack(), "tells no version (`8.2.5+gpu`)");
    turned_down(&Tgz::new().script("true").pack(), "tells no version (``)");
}

#[test]
fn a_program_that_hangs_is_not_waited_for() {
    let m = Machine::new();
    let path = m.resource("c.tgz", &Tgz::new().script("exec sleep 600").pack());
    let mut order = from_file("8.2.5", &path);
    order.limits.probe = Duration::from_millis(200);
    assert!(m.refused(&order).contains("did not end"));
    assert_eq!(m.list("versions"), [""; 0]);
}

#[test]
fn another_version_is_refused_with_both_names() {
    let m = Machine::new();
    let path = m.resource("c.tgz", &release("8.2.4"));
    let (done, told) = m.install_told(&from_file("8.2.5", &path));
    let text = done.unwrap_err();
    assert!(text.contains("holds Concourse 8.2.4, but 8.2.5 was asked for"), "{text}");
    assert_eq!(told, ["Unpacking Concourse 8.2.5…"]);
    assert_eq!(m.list("versions"), [""; 0]);

    let (again, told) = m.install_told(&from_file("8.2.5", &path));
    assert_eq!(again.unwrap_err(), text);
    assert_eq!(told, [""; 0], "it is not unpacked every five minutes to find the same");

    assert_eq!(
        m.install(&from_file("8.2.4", &path)),
        Ok(v("8.2.4")),
        "what was wrong for one order suits another"
    );
    assert!(m.refused(&from_file("8.2.5", &path)).contains("holds Concourse 8.2.4"));
}

#[test]
fn the_operators_digest_is_the_law() {
    let m = Machine::new();
    let bytes = release("8.2.5");
    let path = m.resource("c.tgz", &bytes);
    let mut order = from_file("8.2.5", &path);
    order.sha256 = Some("ab".repeat(32));
    let (done, told) = m.install_told(&order);
    let text = done.unwrap_err();
    assert!(text.contains(&sha256(&bytes)) && text.contains(&"ab".repeat(32)), "{text}");
    assert_eq!(told, [""; 0], "the digest comes before unpacking");
    assert!(!m.opt("versions").exists());

    order.sha256 = Some(sha256(&bytes));
    assert_eq!(m.install(&order), Ok(v("8.2.5")));
    order.sha256 = Some("ab".repeat(32));
    assert!(m.refused(&order).contains("concourse-sha256"), "the law also holds for what is installed");
    assert_eq!(installed(&m.root).unwrap().len(), 1);
}

#[test]
fn archives_in_several_gzip_members_and_long_names_work() {
    let m = Machine::new();
    let long = format!("concourse/{}/{}", "a".repeat(90), "b".repeat(90));
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(4);
    header.set_mode(0o644);
    tar.append_data(&mut header, &long, &b"long"[..]).unwrap();
    let mut tar = tar.into_inner().unwrap();
    tar.truncate(tar.len() - 1024);
    tar.extend(Tgz::new().concourse("8.2.5").tar());
    let bytes = [gzip(&tar[..700]), gzip(&tar[700..])].concat();

    let path = m.resource("c.tgz", &bytes);
    assert_eq!(m.install(&from_file("8.2.5", &path)), Ok(v("8.2.5")));
    let file = m.opt("versions/8.2.5").join(long.strip_prefix("concourse/").unwrap());
    assert_eq!(fs::read_to_string(file).unwrap(), "long");
}

fn name() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["concourse", "a", "b", "..", ".", "bin"]);
    (prop::bool::weighted(0.9), prop::collection::vec(part, 1..5)).prop_map(|(inside, parts)| {
        let path = parts.join("/");
        if inside { format!("concourse/{path}") } else { path }
    })
}

fn target() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "b", "..", "..", ".", "/", "bin"]);
    prop::collection::vec(part, 1..6).prop_map(|parts| parts.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the entries: either the archive is refused, or each link ends inside; and outside nothing changes.
    #[test]
    fn no_archive_gets_out(entries in prop::collection::vec((0..4, name(), target()), 0..6)) {
        let m = Machine::new();
        let mut archive = Tgz::new().concourse("8.2.5");
        for (kind, name, target) in &entries {
            archive = match kind {
                0 => archive.file(name, 0o644, b"x"),
                1 => archive.dir(name),
                2 => archive.symlink(name, target),
                _ => archive.hard_link(name, &format!("concourse/{target}")),
            };
        }
        let path = m.resource("c.tgz", &archive.pack());
        let done = m.install(&from_file("8.2.5", &path));

        let mut beside: Vec<_> = fs::read_dir(&m.dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        beside.sort();
        prop_assert_eq!(beside, ["c.tgz", "opt"]);
        let in_opt = m.list("");
        prop_assert!(in_opt.iter().all(|n| [".lock", "downloads", "versions"].contains(&n.as_str())), "{:?}", in_opt);
        let expected = if done.is_ok() { vec!["8.2.5"] } else { vec![] };
        prop_assert_eq!(m.list("versions"), expected);
        let top = m.opt("versions/8.2.5");
        let mut dirs = vec![top.clone()];
        while let Some(dir) = dirs.pop().filter(|_| done.is_ok()) {
            for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(entry.path());
                } else if let Ok(real) = entry.path().canonicalize() {
                    prop_assert!(real.starts_with(top.canonicalize().unwrap()), "{:?}", real);
                }
            }
        }
    }
}
