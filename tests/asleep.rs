//! A child that sleeps in the kernel, where no signal reaches it, keeps nobody waiting beyond its deadline: one that writes to a
//! frozen file system sleeps as one does whose driver hangs.

use concourse_ci_machine::host::talk::{DYING, ends, talk};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A file system of its own that lets nobody write, for 20 s at most: who waits for it finds his child gone.
struct Frozen {
    at: PathBuf,
    thaw: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Frozen {
    fn new(dir: &Path) -> Self {
        let (image, at) = (dir.join("image"), dir.join("at"));
        std::fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
        std::fs::create_dir(&at).unwrap();
        run("mkfs.ext4", &["-q", image.to_str().unwrap()]);
        run("mount", &["-o", "loop", image.to_str().unwrap(), at.to_str().unwrap()]);
        run("fsfreeze", &["--freeze", at.to_str().unwrap()]);
        let (thaw, asked) = channel();
        let path = at.clone();
        let thawing = spawn(move || {
            // Asked to, or late: either way it is time.
            let _ = asked.recv_timeout(Duration::from_secs(20));
            run("fsfreeze", &["--unfreeze", path.to_str().unwrap()]);
        });
        Frozen { at, thaw: Some((thaw, thawing)) }
    }

    fn thaw(&mut self) {
        if let Some((thaw, thawing)) = self.thaw.take() {
            drop(thaw);
            thawing.join().unwrap();
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.thaw();
        // Who wrote may not have closed its file yet.
        drop(Command::new("umount").arg("--lazy").arg(&self.at).status());
    }
}

#[test]
#[ignore = "needs root"]
fn a_child_that_sleeps_in_the_kernel_is_left() {
    if !Command::new("losetup").arg("--find").output().unwrap().status.success() {
        eprintln!("SKIPPED: a_child_that_sleeps_in_the_kernel_is_left: no loop devices here");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut frozen = Frozen::new(dir.path());
    let mut child = Command::new("sh")
        .args(["-c", r#"echo it begins; : >"$1""#, "sh", frozen.at.join("file").to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (deadline, began) = (Duration::from_secs(1), Instant::now());
    assert!(talk(&mut child, vec![], deadline).unwrap().is_none());
    let took = began.elapsed();
    // It was given its time, killed, and given time to die.
    assert!(took >= deadline + DYING, "{took:?}");
    // It is what it was to be, killed and there: otherwise this test tells nothing.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    assert!(stat.contains(") D "), "{stat}");
    assert!(child.try_wait().unwrap().is_none());

    frozen.thaw();
    assert!(ends(&child, Duration::from_secs(60)).unwrap());
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
}
