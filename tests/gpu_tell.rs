//! `concourse-gpu tell`, with a `juju-exec` that runs commands as Juju's does.

#![allow(missing_docs)]

use concourse_ci_machine::gpu::decide::Report;
use concourse_ci_machine::paths;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use tempfile::TempDir;

struct Unit(TempDir);

impl Unit {
    /// With a report that is not told yet.
    fn new() -> Self {
        let unit = Unit(tempfile::tempdir().unwrap());
        unit.write(paths::CLAIM, "worker/3 4ae1-model\n");
        fs::create_dir_all(unit.path("/var/lib/juju/agents/unit-worker-3")).unwrap();
        unit.see("GPU: 2x NVIDIA");
        unit
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn see(&self, summary: &str) {
        let report = Report { summary: Some(summary.into()), ..Report::default() };
        self.write(paths::GPU_REPORT, &serde_json::to_string(&report).unwrap());
    }

    /// What a hook would write that has seen the report as it is.
    fn telling(summary: &str) -> String {
        Report { summary: Some(summary.into()), ..Report::default() }.telling()
    }

    /// `script` is what Juju does; it finds the unit in `$1` and the commands in `$2`.
    fn tell(&self, script: &str) -> Output {
        let tool = self.path("/bin/juju-exec");
        self.write(
            "/bin/juju-exec",
            &format!("#!/bin/sh\ncd {}\necho \"$1\" >>calls\n{script}\n", self.0.path().display()),
        );
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", tool.parent().unwrap().display());
        self.program("tell").env("PATH", path).output().unwrap()
    }

    fn program(&self, command: &str) -> Command {
        let mut program = Command::new(env!("CARGO_BIN_EXE_concourse-gpu"));
        program.args([command, "--root"]).arg(self.0.path());
        program
    }

    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path("/calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }
}

fn hook_tells(summary: &str) -> String {
    format!("cat >.{} <<'END'\n{}END", paths::GPU_TOLD, Unit::telling(summary))
}

#[test]
fn juju_runs_the_charm_once_and_then_knows() {
    let unit = Unit::new();
    assert!(unit.program("news").status().unwrap().success());
    let told = unit.tell(&hook_tells("GPU: 2x NVIDIA"));
    assert!(told.status.success(), "{told:?}");
    assert_eq!(unit.calls(), ["worker/3"]);
    assert!(!unit.program("news").status().unwrap().success(), "what is told is no news");
    assert!(unit.tell("exit 9").status.success());
    assert_eq!(unit.calls().len(), 1, "a charm that knows is not run");
}

#[test]
fn what_changes_meanwhile_is_told_too() {
    let unit = Unit::new();
    let one = serde_json::to_string(&Report { summary: Some("GPU: 1x NVIDIA".into()), ..Report::default() })
        .unwrap();
    let script = format!(
        "if [ $(wc -l <calls) = 1 ]; then {}\necho '{one}' >.{}\nelse {}\nfi",
        hook_tells("GPU: 2x NVIDIA"),
        paths::GPU_REPORT,
        hook_tells("GPU: 1x NVIDIA")
    );
    let told = unit.tell(&script);
    assert!(told.status.success(), "{told:?}");
    assert_eq!(unit.calls().len(), 2);
}

#[test]
fn a_failure_is_to_be_tried_again_and_a_charm_that_will_not_listen_is_not() {
    let unit = Unit::new();
    let told = unit.tell("echo no agent >&2; exit 1");
    assert!(!told.status.success());
    assert!(String::from_utf8_lossy(&told.stderr).contains("no agent"), "{told:?}");
    assert!(unit.tell("exit 0").status.success());
    assert_eq!(unit.calls().len(), 2);
}

#[test]
fn nobody_is_asked_where_there_is_nobody() {
    let unit = Unit::new();
    fs::remove_dir_all(unit.path("/var/lib/juju")).unwrap();
    assert!(unit.tell("exit 0").status.success());
    fs::remove_file(unit.path(paths::CLAIM)).unwrap();
    assert!(unit.tell("exit 0").status.success());
    assert_eq!(unit.calls(), Vec::<String>::new());
}

#[test]
fn the_commands_run_the_charm_as_a_hook_does() {
    let unit = Unit::new();
    unit.write("/charm/dispatch", "#!/bin/sh\necho \"$JUJU_DISPATCH_PATH\" >>../events\n");
    fs::set_permissions(unit.path("/charm/dispatch"), fs::Permissions::from_mode(0o755)).unwrap();
    // The program where it is on a machine is not there in a test: that is a unit with GPUs switched off by now.
    let charm = unit.path("/charm").display().to_string();
    assert!(unit.tell(&format!("export JUJU_CHARM_DIR={charm}; cd {charm}; sh -c \"$2\"")).status.success());
    assert!(!unit.path("/events").exists());
    let here = env!("CARGO_BIN_EXE_concourse-gpu");
    let script = format!(
        "set -- \"$1\" \"$(echo \"$2\" | sed 's#^if [^ ]* news#if {here} news --root {}#')\"",
        unit.0.path().display()
    );
    let told = unit.tell(&format!("{script}\nexport JUJU_CHARM_DIR={charm}; cd {charm}; sh -c \"$2\""));
    assert!(told.status.success(), "{told:?}");
    assert_eq!(fs::read_to_string(unit.path("/events")).unwrap(), "hooks/update-status\n");
}
