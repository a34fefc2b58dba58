//! Killed at any point: the next call ends in the same state as if nothing had happened.

use crate::kit::*;
use concourse_ci_machine::host::fs::Root;
use concourse_ci_machine::install::{Order, Source, install, installed};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Not a test of its own: the process that the others kill, or run in another environment.
#[test]
#[ignore = "run by the other tests"]
fn child() {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(root) = variable("CHILD_ROOT") else { return };
    let source = variable("CHILD_URL").map(Source::Url);
    let source = source.or_else(|| variable("CHILD_FILE").map(|p| Source::Resource(p.into()))).unwrap();
    let mut order = order("8.2.5", source);
    order.sha256 = variable("CHILD_SHA256");
    order.proxy.https = variable("CHILD_PROXY");
    order.limits.stall = std::time::Duration::from_secs(30);
    match install(&Root::new(root), &order, &mut |_| {}).unwrap() {
        Ok(version) => println!("installed {version}"),
        Err(refusal) => println!("refused: {refusal}"),
    }
}

fn spawn(m: &Machine, order: &Order) -> Child {
    command(m, order).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// An installation in a process of its own.
pub fn command(m: &Machine, order: &Order) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "interrupted::child", "--ignored", "--nocapture"]).env("CHILD_ROOT", &m.dir);
    match &order.source {
        Source::Url(url) => command.env("CHILD_URL", url),
        Source::Resource(path) => command.env("CHILD_FILE", path),
    };
    if let Some(sha256) = &order.sha256 {
        command.env("CHILD_SHA256", sha256);
    }
    if let Some(proxy) = &order.proxy.https {
        command.env("CHILD_PROXY", proxy);
    }
    command
}

fn kill(mut child: Child) {
    child.kill().unwrap(); // -9
    child.wait().unwrap();
}

/// The state that every story must end in.
fn assert_whole(m: &Machine, bytes: &[u8]) {
    let all = installed(&m.root).unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].sha256, sha256(bytes));
    assert_eq!(m.list("versions"), ["8.2.5"]);
    assert_eq!(m.list("downloads"), [""; 0]);
    let said = Command::new(m.opt("versions/8.2.5/bin/concourse")).arg("--version").output().unwrap();
    assert_eq!(said.stdout, b"8.2.5\n");
}

#[test]
fn killed_while_downloading() {
    let m = Machine::new();
    let bytes = release("8.2.5");
    let count = AtomicUsize::new(0);
    let sent = bytes.clone();
    let server = Server::new(move |request, stream| {
        // The first two callers are left hanging after 60 kB more.
        if count.fetch_add(1, Ordering::SeqCst) < 2 {
            send(request, stream, &sent, "\"one\"", 60_000);
            hang(stream);
        } else {
            send(request, stream, &sent, "\"one\"", usize::MAX);
        }
    });
    let mut order = from_url("8.2.5", server.url("/c.tgz"));
    order.sha256 = Some(sha256(&bytes));
    for killed in 1..=2 {
        let child = spawn(&m, &order);
        let part = m.opt("downloads/c.tgz.part");
        until("the part", || fs::metadata(&part).is_ok_and(|p| p.len() == killed * 60_000));
        kill(child);
        assert_eq!(installed(&m.root).unwrap(), []);
    }

    assert_eq!(m.install(&order), Ok(v("8.2.5")));

    let from: Vec<_> = server.seen().iter().map(|r| r.from()).collect();
    assert_eq!(from, [None, Some(60_000), Some(120_000)]);
    assert_whole(&m, &bytes);
}

#[test]
fn killed_while_checking_what_was_unpacked() {
    let m = Machine::new();
    let flag = m.dir.join("asked");
    // The first caller is left hanging.
    let script =
        format!("if [ ! -e {0} ]; then echo $$ >{0}; exec sleep 600; fi; echo 8.2.5", flag.display());
    let bytes = Tgz::new().script(&script).file("concourse/x", 0o644, &noise(100_000, 3)).pack();
    let order = from_file("8.2.5", &m.resource("c.tgz", &bytes));

    let child = spawn(&m, &order);
    until("the check", || fs::read_to_string(&flag).is_ok_and(|pid| pid.ends_with('\n')));
    kill(child);
    let orphan = fs::read_to_string(&flag).unwrap();
    assert!(Command::new("kill").args(["-9", orphan.trim()]).status().unwrap().success());
    assert!(m.list("versions")[0].starts_with(".staging-"));
    assert_eq!(installed(&m.root).unwrap(), []);

    assert_eq!(m.install(&order), Ok(v("8.2.5")));
    assert_whole(&m, &bytes);
}

/// Kills at many instants, wherever they fall; a file system has no other way to say "between two system calls".
#[test]
fn killed_anywhere() {
    let bytes = release("8.2.5");
    let server = Server::release("8.2.5");
    for step in 0..40_u32 {
        let m = Machine::new();
        let order = from_url("8.2.5", server.url("/c.tgz"));
        let child = spawn(&m, &order);
        std::thread::sleep(std::time::Duration::from_millis(2) * step); // the instant is what varies
        kill(child);
        for there in installed(&m.root).unwrap() {
            assert_eq!(there.sha256, sha256(&bytes));
        }
        assert_eq!(m.install(&order), Ok(v("8.2.5")), "killed after {} ms", 2 * step);
        concourse_ci_machine::install::clean_leftovers(&m.root).unwrap();
        assert_whole(&m, &bytes);
    }
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[test]
fn killed_before_the_last_rename() {
    let m = Machine::new();
    let server = Server::release("8.2.5");
    let order = from_url("8.2.5", server.url("/c.tgz"));
    m.install(&order).unwrap();
    let asked = server.seen().len();
    let place = m.opt("versions/8.2.5");

    // Complete, checked and recorded, but not yet in its place; beside it the one that it replaces.
    copy(&place, &m.opt("versions/.old-8.2.5-0"));
    fs::rename(&place, m.opt("versions/.staging-abc")).unwrap();
    assert_eq!(installed(&m.root).unwrap(), []);
    assert_eq!(m.install(&order), Ok(v("8.2.5")));
    assert_eq!(server.seen().len(), asked, "nothing was downloaded twice");
    assert_whole(&m, &release("8.2.5"));

    // Before the first of the two renames: the old one is still there, the new one is dropped and made again.
    copy(&place, &m.opt("versions/.staging-abc"));
    assert_eq!(m.install(&order), Ok(v("8.2.5")));
    assert_whole(&m, &release("8.2.5"));

    // Unpacked in part.
    fs::create_dir_all(m.opt("versions/.staging-def/bin")).unwrap();
    fs::copy(place.join("bin/concourse"), m.opt("versions/.staging-def/bin/concourse")).unwrap();
    assert_eq!(m.install(&order), Ok(v("8.2.5")));
    assert_whole(&m, &release("8.2.5"));

    // Killed while the new staging's record was written.
    fs::rename(&place, m.opt("versions/.staging-ghi")).unwrap();
    let record = m.opt("versions/.staging-ghi/.installed.json");
    fs::rename(&record, m.opt("versions/.staging-ghi/.new-x")).unwrap();
    assert_eq!(m.install(&order), Ok(v("8.2.5")));
    assert_whole(&m, &release("8.2.5"));
}
