//! A controller and its agents, as processes.

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The program.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_emulated-juju");
const DEADLINE: Duration = Duration::from_secs(30);

const DISPATCH: &str = r#"#!/bin/bash
case "$JUJU_DISPATCH_PATH" in
  hooks/install) status-set maintenance "installing stuff"; open-port 8080; state-set k1=v1; echo out; echo err >&2;;
  hooks/*-relation-created) relation-set foo=bar; [ "$(is-leader)" = True ] && relation-set --app appkey=$JUJU_UNIT_NAME;;
  hooks/config-changed)
    case "$(config-get str-def)" in
      boom) status-set blocked "before failing"; state-set lost=1; exit 7;;
      slow) echo ran >> "$(config-get str-none)"; sleep 1;;
    esac;;
  hooks/start) status-set active; is-leader && status-set --application active "app is fine";;
  actions/bad) action-log done; action-set r=partial; action-fail second;;
  actions/sleepy) sleep 20;;
  actions/crash) echo boom >&2; exit 3;;
  actions/probe) action-log progress one; action-set a=1 b.c=two b.d=three "sp=x y" 'j={"k":1}'; echo to stdout; echo to stderr >&2;;
esac
exit 0
"#;

/// A controller with its agents; all end with it.
pub struct Lab {
    /// Where everything is.
    pub folder: tempfile::TempDir,
    /// The controller.
    pub controller: Child,
    /// The agents.
    pub agents: Vec<Child>,
    /// Where the controller listens.
    pub address: String,
}

impl Drop for Lab {
    fn drop(&mut self) {
        for child in self.agents.iter_mut().chain([&mut self.controller]) {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Lab {
    /// A controller without agents.
    pub fn new() -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let controller = start_controller(folder.path(), "127.0.0.1:0");
        let mut lab = Lab { folder, controller, agents: Vec::new(), address: String::new() };
        lab.address = lab.dump()["api_address"].as_str().unwrap().into();
        lab.charm("probe", 0o755);
        lab
    }

    /// Starts an agent.
    pub fn agent(&mut self, machine: usize) {
        let root = self.folder.path().join(format!("m{machine}"));
        let child = Command::new(PROGRAM)
            .args(["jujud", "--controller", &self.address, "--machine", &machine.to_string(), "--root"])
            .arg(root)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.agents.push(child);
    }

    /// Packs the probe charm with a dispatch of this mode.
    pub fn charm(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.folder.path().join(format!("{name}.charm"));
        let mut zip = zip::ZipWriter::new(fs::File::create(&path).unwrap());
        let options = |mode| zip::write::SimpleFileOptions::default().unix_permissions(mode);
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/charms/probe");
        for file in ["metadata.yaml", "config.yaml", "actions.yaml", "manifest.yaml"] {
            zip.start_file(file, options(0o644)).unwrap();
            zip.write_all(&fs::read(dir.join(file)).unwrap()).unwrap();
        }
        zip.start_file("dispatch", options(mode)).unwrap();
        zip.write_all(DISPATCH.as_bytes()).unwrap();
        zip.finish().unwrap();
        path
    }

    /// Runs a command.
    pub fn juju(&self, line: &str) -> Output {
        let mut command = Command::new(PROGRAM);
        command.arg("juju").args(line.split(' ').map(|word| word.replace('\u{1}', " ")));
        command.env("JUJU_EMULATED_SOCKET", self.folder.path().join("sock")).current_dir(self.folder.path());
        command.output().unwrap()
    }

    /// Runs a command that must succeed; returns its standard output.
    pub fn ok(&self, line: &str) -> String {
        let output = self.juju(line);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "juju {line}: {err}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must fail; returns its exit code and standard error.
    pub fn refused(&self, line: &str) -> (i32, String) {
        let output = self.juju(line);
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap().trim().into())
    }

    /// Waits for rest.
    pub fn settle(&self) {
        self.ok("emulate settle --timeout 20s");
    }

    /// The whole model.
    pub fn dump(&self) -> Value {
        serde_json::from_str(&self.ok("emulate dump")).unwrap()
    }

    /// Names of the hooks that a unit ran.
    pub fn hooks(&self, unit: &str) -> Vec<String> {
        let all: Value = serde_json::from_str(&self.ok(&format!("emulate hooks {unit} --json"))).unwrap();
        all.as_array().unwrap().iter().map(|hook| hook["hook"].as_str().unwrap().into()).collect()
    }

    /// Waits for a condition; fails after the deadline.
    pub fn wait_for(&self, what: &str, condition: impl Fn(&Lab) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !condition(self) {
            assert!(Instant::now() < deadline, "never: {what}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Starts a controller and waits until it listens.
pub fn start_controller(folder: &Path, listen: &str) -> Child {
    let socket = folder.join("sock");
    // It is left over from the controller before.
    let _ = fs::remove_file(&socket);
    let mut child = Command::new(PROGRAM)
        .args(["juju-controller", "--listen", listen, "--retry-base", "0.2"])
        .args([
            "--socket".as_ref(),
            socket.as_os_str(),
            "--state-dir".as_ref(),
            folder.join("state").as_os_str(),
        ])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + DEADLINE;
    while !socket.exists() {
        assert!(
            Instant::now() < deadline && child.try_wait().unwrap().is_none(),
            "the controller does not start"
        );
        thread::sleep(Duration::from_millis(10));
    }
    child
}
