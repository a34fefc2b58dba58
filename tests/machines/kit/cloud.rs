//! Machines, an emulated Juju, a database and a mirror: what a test on machines stands on. All of it goes when the
//! test ends, also by a panic.

use super::mirror::Mirror;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The repository.
pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Where `make test-tools` puts programs, charms and releases; `CCM_RELEASES` names other releases.
pub fn kit(name: &str) -> PathBuf {
    let releases = std::env::var_os("CCM_RELEASES").filter(|_| name == "releases");
    let path = releases.map_or_else(|| repository().join("target/kit").join(name), PathBuf::from);
    assert!(path.exists(), "{} is missing: run `make test-tools`", path.display());
    path
}

/// One model with its machines.
pub struct Cloud {
    model: &'static str,
    /// Where units download Concourse from.
    pub mirror: Mirror,
    /// Of the last login. It ends when the web node has forgotten it, and then there is another one.
    token: Mutex<Option<String>>,
}

impl Cloud {
    /// Starts a controller; machines come when they are asked for.
    pub fn start(model: &'static str) -> Self {
        Self::of_juju(model, "4.0.15.1")
    }

    /// The same, with a controller of that version.
    pub fn of_juju(model: &'static str, version: &str) -> Self {
        let cloud = Cloud { model, mirror: Mirror::start(&kit("releases")), token: Mutex::default() };
        cloud.script(&["down"]);
        run(cloud.command(&["up"]).env("JUJU_VERSION", version));
        cloud
    }

    /// A web node with its database, and nothing else: machines 0 and 1.
    pub fn with_web(model: &'static str, options: &[&str]) -> Self {
        let cloud = Self::start(model);
        cloud.database();
        cloud.deploy("web", &cloud.machine(false), &[&["deployment-mode=web"], options].concat());
        cloud.juju(&["integrate", "web:database", "postgresql:database"]);
        cloud
    }

    /// The same with workers, each an application of its own on a machine of its own.
    pub fn with_workers(model: &'static str, workers: &[(&str, bool)]) -> Self {
        let cloud = Self::with_web(model, &[]);
        for (app, privileged) in workers {
            cloud.deploy(app, &cloud.machine(*privileged), &["deployment-mode=worker"]);
            cloud.juju(&["integrate", "web:web-tsa", &format!("{app}:worker-tsa")]);
        }
        cloud.settle();
        cloud.wait_active("web/0");
        for (app, _) in workers {
            cloud.wait_active(&format!("{app}/0"));
        }
        cloud
    }

    /// Deploys PostgreSQL as `postgresql` on a new machine.
    pub fn database(&self) {
        let machine = self.machine(false);
        self.juju(&["deploy", &kit("postgresql.charm").to_string_lossy(), "postgresql", "--to", &machine]);
    }

    /// Deploys the charm, downloading from the mirror.
    pub fn deploy(&self, app: &str, machine: &str, options: &[&str]) {
        let url = format!("concourse-download-url={}", self.mirror_url());
        let charm = kit("concourse-ci-machine.charm");
        let mut args = vec!["deploy", charm.to_str().unwrap(), app, "--to", machine, "--config", &url];
        args.extend(options.iter().flat_map(|option| ["--config", option]));
        self.juju(&args);
    }

    /// The option's value for this cloud's mirror.
    pub fn mirror_url(&self) -> String {
        let host = run(machines().arg("host-address"));
        format!("http://{}:{}/concourse-{{version}}-linux-{{arch}}.tgz", host.trim(), self.mirror.port)
    }

    /// Adds a machine and gives its number.
    pub fn machine(&self, privileged: bool) -> String {
        let args: &[&str] = if privileged { &["--privileged"] } else { &[] };
        self.script(&[&["machine"], args].concat()).trim().to_owned()
    }

    /// A `juju` command that must succeed.
    pub fn juju(&self, args: &[&str]) -> String {
        self.script(&[&["juju"], args].concat())
    }

    /// A `juju` command, whatever comes of it.
    pub fn try_juju(&self, args: &[&str]) -> Output {
        self.command(&[&["juju"], args].concat()).output().unwrap()
    }

    /// A command on a machine that must succeed.
    pub fn exec(&self, machine: &str, command: &str) -> String {
        self.script(&["exec", machine, "--", "bash", "-c", command])
    }

    /// A command on a machine, whatever comes of it.
    pub fn try_exec(&self, machine: &str, command: &str) -> Output {
        self.command(&["exec", machine, "--", "bash", "-c", command]).output().unwrap()
    }

    /// A machine's reboot, as the operator would see it.
    pub fn reboot(&self, machine: &str) {
        run(machines().args(["restart", &format!("{}-{machine}", self.model)]));
    }

    /// A machine's address, which its services are reached at from here.
    pub fn address(&self, machine: &str) -> String {
        run(machines().args(["address", &format!("{}-{machine}", self.model)])).trim().to_owned()
    }

    /// Waits until Juju has nothing left to run.
    pub fn settle(&self) {
        self.juju(&["emulate", "settle", "--timeout", "180s"]);
    }

    /// Sets an option and waits for the hooks.
    pub fn config(&self, app: &str, option: &str) {
        self.juju(&["config", app, option]);
        self.settle();
    }

    /// Runs a hook now.
    pub fn fire(&self, unit: &str, hook: &str) {
        self.juju(&["emulate", "fire", unit, hook]);
        self.settle();
    }

    /// A unit's status: `active: Worker ready`.
    pub fn status(&self, unit: &str) -> String {
        let status: Value = serde_json::from_str(&self.juju(&["status", "--format", "json"])).unwrap();
        let app = unit.split('/').next().unwrap();
        let workload = &status["applications"][app]["units"][unit]["workload-status"];
        let text = |key: &str| workload[key].as_str().unwrap_or_default();
        format!("{}: {}", text("current"), text("message"))
    }

    /// Waits for a status, with update-status hooks as Juju would run them.
    pub fn wait_status(&self, unit: &str, start: &str) {
        wait(&format!("{unit} to say {start:?}"), Duration::from_secs(90), || {
            let said = self.status(unit);
            if said.starts_with(start) {
                return Ok(());
            }
            self.fire(unit, "update-status");
            Err(said)
        });
    }

    /// Waits for `active`.
    pub fn wait_active(&self, unit: &str) {
        self.wait_status(unit, "active: ");
    }

    /// Runs an action that must succeed and gives its results.
    pub fn run(&self, unit: &str, action: &[&str]) -> Value {
        let (results, failure) = self.try_run(unit, action);
        assert_eq!(failure, None, "{unit} {action:?}: {results}");
        results
    }

    /// Runs an action; gives results and the reason of a failure.
    pub fn try_run(&self, unit: &str, action: &[&str]) -> (Value, Option<String>) {
        let text = self.juju(&[&["run", unit, "--format", "json"], action].concat());
        let all: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let task = &all[unit];
        let failed = task["status"] != "completed";
        (task["results"].clone(), failed.then(|| task["message"].as_str().unwrap_or("failed").to_owned()))
    }

    /// Names, states and tags of the registered workers, as the web node's own API tells them.
    pub fn workers(&self) -> Vec<String> {
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let known = token.as_ref().and_then(|token| self.try_worker_rows("1", token).ok());
        let rows = known.unwrap_or_else(|| {
            let new = token.insert(self.login("1", &self.password("web/0")));
            self.worker_rows("1", new)
        });
        let mut lines: Vec<String> = rows.iter().map(line_of).collect();
        lines.sort();
        lines
    }

    /// The administrator's password.
    pub fn password(&self, unit: &str) -> String {
        self.run(unit, &["get-admin-password"])["stdout"].as_str().unwrap().trim().to_owned()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(repository().join("tests/cloud"));
        command.arg(args[0]).arg(self.model).args(&args[1..]).stdin(Stdio::null());
        command.env("EMULATED_JUJU", kit("emulated-juju"));
        command.env("CHARM_PROFILE", repository().join("charm/lxd-profile.yaml"));
        command
    }

    fn script(&self, args: &[&str]) -> String {
        run(&mut self.command(args))
    }
}

fn line_of(worker: &Value) -> String {
    let tags: Vec<&str> = worker["tags"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let text = |key: &str| worker[key].as_str().unwrap_or_default();
    format!("{} {} [{}]", text("name"), text("state"), tags.join(" ")).replace(" []", "")
}

impl Drop for Cloud {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for args in [
                &["juju", "status"][..],
                &["juju", "debug-log", "--limit", "40"],
                &["juju", "emulate", "hooks"],
            ] {
                let out = self.command(args).output().map(|o| o.stdout).unwrap_or_default();
                eprintln!("{}", String::from_utf8_lossy(&out));
            }
            if std::env::var_os("KEEP_MACHINES").is_some() {
                return;
            }
        }
        drop(self.command(&["down"]).output());
    }
}

fn machines() -> Command {
    Command::new(repository().join("tests/machines/machines"))
}

/// Runs a program that must succeed.
pub fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    // What it said comes first: a log of a failure may be cut behind its first lines.
    assert!(out.status.success(), "{}\n{stdout}\n{}: {command:?}", stderr.trim_end(), out.status);
    stdout.into_owned()
}

/// Between two looks, at first and later.
const LOOKS: std::ops::Range<Duration> = Duration::from_millis(100)..Duration::from_secs(1);

/// Waits until `done` says so; what it says otherwise is told when time is up.
pub fn wait(what: &str, limit: Duration, mut done: impl FnMut() -> Result<(), String>) {
    let begun = Instant::now();
    loop {
        match done() {
            Ok(()) => return,
            Err(last) if begun.elapsed() > limit => panic!("gave up waiting for {what}; last: {last}"),
            // A look at a machine is work for those that are waited for: what takes longer is looked at less often.
            Err(_) => std::thread::sleep((begun.elapsed() / 5).clamp(LOOKS.start, LOOKS.end)),
        }
    }
}
