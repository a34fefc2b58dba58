//! What is installed, what counts as the same, and what may go.

use crate::kit::*;
use concourse_ci_machine::install::{
    Source, clean_leftovers, has_leftovers, in_use, installed, remove_version, resource_stamp, version_dir,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Command};

#[test]
fn a_resource_becomes_a_version() {
    let m = Machine::new();
    let bytes = Tgz::new()
        .dir("./")
        .dir("concourse/")
        .concourse("8.2.5")
        .file("concourse/bin/init", 0o4777, b"x")
        .file("concourse/resource-types/git/privileged", 0o600, b"false")
        .symlink("concourse/bin/self", "concourse")
        .symlink("concourse/resource-types/up", "../bin/init")
        .hard_link("concourse/bin/twin", "concourse/bin/init")
        .pack();
    let path = m.resource("concourse.tgz", &bytes);

    let (done, told) = m.install_told(&from_file("8.2.5", &path));

    assert_eq!(done, Ok(v("8.2.5")));
    assert_eq!(told, ["Unpacking Concourse 8.2.5…"]);
    let mode = |p: &str| fs::symlink_metadata(m.opt("versions/8.2.5").join(p)).unwrap().mode() & 0o7777;
    assert_eq!(mode(""), 0o755);
    assert_eq!(mode("bin"), 0o755);
    assert_eq!(mode("bin/concourse"), 0o755);
    assert_eq!(mode("bin/init"), 0o755, "neither setuid nor writable for all");
    assert_eq!(mode("resource-types/git/privileged"), 0o600);
    assert_eq!(fs::read_link(m.opt("versions/8.2.5/bin/self")).unwrap().to_str(), Some("concourse"));
    assert_eq!(fs::metadata(m.opt("versions/8.2.5/bin/twin")).unwrap().nlink(), 2);
    assert_eq!(
        fs::metadata(m.opt("versions/8.2.5/bin/init")).unwrap().uid(),
        nix::unistd::geteuid().as_raw()
    );

    let all = installed(&m.root).unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].version, v("8.2.5"));
    assert_eq!(all[0].sha256, sha256(&bytes));
    assert_eq!(all[0].origin.url, None);
    assert_eq!(all[0].origin.stamps, [resource_stamp(&path).unwrap()]);
    assert_eq!(m.list("versions"), ["8.2.5"]);
    assert_eq!(m.list("downloads"), [""; 0]);
}

#[test]
fn the_same_again_is_no_work() {
    let m = Machine::new();
    let path = m.resource("c.tgz", &release("8.2.5"));
    m.install(&from_file("8.2.5", &path)).unwrap();
    let before = fs::metadata(m.opt("versions/8.2.5")).unwrap().ino();

    let mut whatever = from_file("8.2.5", &path);
    whatever.version = None;
    for order in [from_file("8.2.5", &path), whatever] {
        assert_eq!(m.install_told(&order), (Ok(v("8.2.5")), vec![]));
    }
    // The resource of a second unit: another file, the same bytes.
    let other = m.resource("other.tgz", &release("8.2.5"));
    assert_eq!(m.install_told(&from_file("8.2.5", &other)), (Ok(v("8.2.5")), vec![]));
    let stamps = &installed(&m.root).unwrap()[0].origin.stamps;
    assert_eq!(stamps, &[resource_stamp(&path).unwrap(), resource_stamp(&other).unwrap()]);
    assert_eq!(fs::metadata(m.opt("versions/8.2.5")).unwrap().ino(), before);
}

#[test]
fn versions_stand_side_by_side() {
    let m = Machine::new();
    for version in ["8.10.0", "8.2.5", "8.2.5-rc.1"] {
        let path = m.resource("c.tgz", &release(version));
        let mut order = from_file(version, &path);
        order.version = None;
        assert_eq!(m.install(&order), Ok(v(version)));
    }
    let all: Vec<_> = installed(&m.root).unwrap().into_iter().map(|i| i.version.to_string()).collect();
    assert_eq!(all, ["8.2.5-rc.1", "8.2.5", "8.10.0"]);
    assert_eq!(version_dir(&m.root, &v("8.10.0")), m.opt("versions/8.10.0"));
}

#[test]
fn a_placeholder_is_no_resource() {
    let m = Machine::new();
    let empty = m.resource("empty", b"");
    let dir = m.dir.join("dir");
    fs::create_dir(&dir).unwrap();
    for path in [empty, dir, m.dir.join("absent")] {
        assert_eq!(resource_stamp(&path), None);
        assert!(m.refused(&from_file("8.2.5", &path)).contains("juju attach-resource"));
    }
}

#[test]
fn another_resource_of_the_same_version_replaces_it() {
    let m = Machine::new();
    let first = m.resource("c.tgz", &release("8.2.5"));
    m.install(&from_file("8.2.5", &first)).unwrap();
    let patched = Tgz::new().concourse("8.2.5").file("concourse/patched", 0o644, b"").pack();
    let second = m.resource("d.tgz", &patched);

    assert_eq!(m.install(&from_file("8.2.5", &second)), Ok(v("8.2.5")));

    assert!(m.opt("versions/8.2.5/patched").exists());
    assert!(!m.opt("versions/8.2.5/resource-types").exists());
    assert_eq!(m.list("versions"), ["8.2.5"]);
}

#[test]
fn what_runs_stays_until_it_ends() {
    let m = Machine::new();
    let path = m.resource("c.tgz", &release("8.2.5"));
    m.install(&from_file("8.2.5", &path)).unwrap();
    assert!(!in_use(&m.root, &v("8.2.5")));
    assert!(!in_use(&m.root, &v("9.9.9")));
    let shim = m.opt("versions/8.2.5/bin/containerd-shim");
    fs::copy("/bin/sleep", &shim).unwrap();
    let mut running = start(&shim);
    until("the shim", || in_use(&m.root, &v("8.2.5")));

    assert!(!remove_version(&m.root, &v("8.2.5")).unwrap());
    assert!(shim.exists());

    // Replaced under the running program, which goes on in the directory that was moved aside.
    let patched = Tgz::new().concourse("8.2.5").pack();
    let path = m.resource("d.tgz", &patched);
    assert_eq!(m.install(&from_file("8.2.5", &path)), Ok(v("8.2.5")));
    assert!(!in_use(&m.root, &v("8.2.5")));
    assert_eq!(m.list("versions"), [".old-8.2.5-0", "8.2.5"]);
    assert!(!has_leftovers(&m.root).unwrap(), "nothing that could go");
    clean_leftovers(&m.root).unwrap();
    assert!(m.opt("versions/.old-8.2.5-0/bin/containerd-shim").exists());
    assert!(running.0.try_wait().unwrap().is_none());
    assert_eq!(installed(&m.root).unwrap().len(), 1, "what was moved aside is no version");

    drop(running);
    clean_leftovers(&m.root).unwrap();
    assert_eq!(m.list("versions"), ["8.2.5"]);
    assert!(remove_version(&m.root, &v("8.2.5")).unwrap());
    assert!(remove_version(&m.root, &v("8.2.5")).unwrap(), "absence is what was wanted");
    assert_eq!(m.list("versions"), [""; 0]);
}

/// A running program that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn start(program: &std::path::Path) -> Running {
    // Another test may fork while the copy is still open for writing there: text file busy.
    let mut child = None;
    until("the program's start", || {
        child = Command::new(program).arg("600").spawn().ok();
        child.is_some()
    });
    Running(child.unwrap())
}

#[test]
fn a_mirror_of_the_same_version_is_no_reason_to_download() {
    let m = Machine::new();
    let server = Server::release("8.2.5");
    m.install(&from_url("8.2.5", server.url("/c.tgz"))).unwrap();
    let asked = server.seen().len();

    let mut other = from_url("8.2.5", server.url("/mirror/c.tgz"));
    assert_eq!(m.install(&other), Ok(v("8.2.5")));
    other.sha256 = Some(sha256(&release("8.2.5")));
    assert_eq!(m.install(&other), Ok(v("8.2.5")));
    assert_eq!(server.seen().len(), asked);

    other.sha256 = Some("0".repeat(64));
    other.source = Source::Url(server.url("/c.tgz"));
    assert!(m.refused(&other).contains("concourse-sha256"), "another digest is another archive");
    assert_eq!(installed(&m.root).unwrap().len(), 1);
}

#[test]
fn without_its_resource_the_release_comes_back() {
    let m = Machine::new();
    let patched = Tgz::new().concourse("8.2.5").file("concourse/patched", 0o644, b"").pack();
    let path = m.resource("c.tgz", &patched);
    m.install(&from_file("8.2.5", &path)).unwrap();
    let server = Server::release("8.2.5");

    assert_eq!(m.install(&from_url("8.2.5", server.url("/c.tgz"))), Ok(v("8.2.5")));
    assert!(!m.opt("versions/8.2.5/patched").exists());

    // The same release as a resource: the same bytes, both ways known from now on.
    let path = m.resource("d.tgz", &release("8.2.5"));
    assert_eq!(m.install_told(&from_file("8.2.5", &path)), (Ok(v("8.2.5")), vec![]));
    let asked = server.seen().len();
    assert_eq!(m.install(&from_url("8.2.5", server.url("/c.tgz"))), Ok(v("8.2.5")));
    assert_eq!(server.seen().len(), asked);
}

#[test]
fn only_whole_versions_count() {
    let m = Machine::new();
    assert_eq!(installed(&m.root).unwrap(), []);
    let path = m.resource("c.tgz", &release("8.2.5"));
    m.install(&from_file("8.2.5", &path)).unwrap();
    let record = fs::read_to_string(m.opt("versions/8.2.5/.installed.json")).unwrap();
    for (dir, text) in [
        ("8.2.6", None),                       // no record
        ("8.2.7", Some("{\"version\":")),      // half a record
        ("8.2.8", Some(record.as_str())),      // another's record
        (".staging-x", Some(record.as_str())), // on its way
        ("notes", Some(record.as_str())),      // somebody's own
    ] {
        let dir = m.opt("versions").join(dir);
        fs::create_dir_all(dir.join("bin")).unwrap();
        fs::copy(m.opt("versions/8.2.5/bin/concourse"), dir.join("bin/concourse")).unwrap();
        if let Some(text) = text {
            fs::write(dir.join(".installed.json"), text).unwrap();
        }
    }
    assert_eq!(installed(&m.root).unwrap().len(), 1);

    // A damaged version is made whole by the next order for it.
    let path = m.resource("d.tgz", &release("8.2.7"));
    assert_eq!(m.install(&from_file("8.2.7", &path)), Ok(v("8.2.7")));
    assert_eq!(installed(&m.root).unwrap().len(), 2);
    fs::remove_file(m.opt("versions/8.2.5/bin/concourse")).unwrap();
    assert_eq!(installed(&m.root).unwrap().len(), 1);
    assert!(m.list("versions").contains(&"notes".to_owned()), "what isn't ours stays");
}

#[test]
fn two_units_take_turns() {
    let m = Machine::new();
    fs::create_dir_all(m.opt("")).unwrap();
    let other = fs::File::options().create(true).append(true).open(m.opt(".lock")).unwrap();
    other.lock().unwrap();
    let path = m.resource("c.tgz", &release("8.2.5"));

    assert!(m.refused(&from_file("8.2.5", &path)).contains("another unit"));
    drop(other);
    assert_eq!(m.install(&from_file("8.2.5", &path)), Ok(v("8.2.5")));
}

#[test]
fn leftovers_go_and_a_bare_machine_stays_bare() {
    let m = Machine::new();
    clean_leftovers(&m.root).unwrap();
    assert!(!m.opt("").exists());
    assert!(!has_leftovers(&m.root).unwrap());
    for dir in ["versions/.staging-a/bin", "versions/.old-8.2.5-0", "versions/8.2.5", "downloads"] {
        fs::create_dir_all(m.opt(dir)).unwrap();
    }
    fs::write(m.opt("downloads/x.tgz.part"), "x").unwrap();
    fs::write(m.opt("downloads/x.tgz.json"), "{}").unwrap();
    assert!(has_leftovers(&m.root).unwrap());

    clean_leftovers(&m.root).unwrap();
    assert!(!has_leftovers(&m.root).unwrap());

    assert_eq!(m.list("versions"), ["8.2.5"]);
    assert_eq!(m.list("downloads"), [""; 0]);
    let mode = fs::metadata(m.opt("versions")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o755);
}
