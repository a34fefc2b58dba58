//! What tests look at on machines, beside what `Cloud` itself needs.

use super::cloud::{Cloud, kit, run, wait};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

impl Cloud {
    /// The main process of a service; the same number later means that nothing was restarted.
    pub fn pid(&self, machine: &str, service: &str) -> String {
        self.exec(machine, &format!("systemctl show --value -p MainPID {service}")).trim().to_owned()
    }

    /// The environment that a service's main process was started with, byte for byte.
    pub fn environment(&self, machine: &str, service: &str) -> BTreeMap<String, String> {
        let text =
            self.exec(machine, &format!("cat /proc/$(systemctl show --value -p MainPID {service})/environ"));
        let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Logs in at the web node of a machine, as `fly login` does.
    pub fn login(&self, machine: &str, password: &str) -> String {
        let script = format!(
            "printf %s '{password}' | curl -sSf --noproxy '*' -m 60 -u fly:Zmx5 http://{}:8080/sky/issuer/token -d grant_type=password \
             -d username=admin --data-urlencode password@- --data-urlencode 'scope=openid profile email federated:id groups'",
            self.address(machine)
        );
        let answer: Value = serde_json::from_str(&run(Command::new("bash").args(["-c", &script]))).unwrap();
        answer["access_token"].as_str().unwrap().to_owned()
    }

    /// The workers' rows, as the web node of a machine tells them.
    pub fn worker_rows(&self, machine: &str, token: &str) -> Vec<Value> {
        self.try_worker_rows(machine, token).unwrap_or_else(|why| panic!("{why}"))
    }

    /// The same; or why not to this token, or not now.
    ///
    /// # Errors
    /// What curl says.
    pub fn try_worker_rows(&self, machine: &str, token: &str) -> Result<Vec<Value>, String> {
        let url = format!("http://{}:8080/api/v1/workers", self.address(machine));
        let bearer = format!("Authorization: Bearer {token}");
        let args = ["-sSf", "--noproxy", "*", "-m", "30", "-H", &bearer, &url];
        let answer = Command::new("curl").args(args).output().unwrap();
        if !answer.status.success() {
            return Err(String::from_utf8_lossy(&answer.stderr).into_owned());
        }
        Ok(serde_json::from_slice::<Value>(&answer.stdout).unwrap().as_array().unwrap().clone())
    }

    /// Waits until exactly these workers run and no other is known.
    pub fn wait_workers(&self, machine: &str, token: &str, names: &[&str]) {
        wait(&format!("the workers {names:?}"), Duration::from_secs(60), || {
            let rows = self.worker_rows(machine, token);
            let mut seen: Vec<String> = rows
                .iter()
                .map(|row| {
                    format!(
                        "{} {}",
                        row["name"].as_str().unwrap_or("?"),
                        row["state"].as_str().unwrap_or("?")
                    )
                })
                .collect();
            seen.sort();
            let wanted: Vec<String> = names.iter().map(|name| format!("{name} running")).collect();
            if seen == wanted { Ok(()) } else { Err(format!("{seen:?}")) }
        });
    }

    /// Adds a machine and a unit on it.
    pub fn add_unit(&self, app: &str) -> String {
        let machine = self.machine(false);
        self.juju(&["add-unit", app, "--to", &machine]);
        machine
    }

    /// Gives the database's users a password, character for character, which no command line could say.
    pub fn rotate_database_password(&self, password: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), serde_json::json!({ "password": password }).to_string()).unwrap();
        self.run("postgresql/0", &["rotate-password", "--params", file.path().to_str().unwrap()]);
        self.settle();
    }

    /// All that the controller knows.
    pub fn dump(&self) -> Value {
        serde_json::from_str(&self.juju(&["emulate", "dump"])).unwrap()
    }

    /// The hooks that ran on a unit since the history was last reset, by their names.
    pub fn hooks(&self, unit: &str) -> Vec<String> {
        let hooks: Value = serde_json::from_str(&self.juju(&["emulate", "hooks", unit, "--json"])).unwrap();
        hooks.as_array().unwrap().iter().map(|hook| hook["hook"].as_str().unwrap().to_owned()).collect()
    }

    /// The charm again, as a new revision.
    pub fn refresh(&self, app: &str) {
        self.juju(&["refresh", app, "--path", kit("concourse-ci-machine.charm").to_str().unwrap()]);
        self.settle();
    }
}

/// Packs a charm that does nothing: something else in the model, which speaks by `juju exec`.
pub fn mute_charm(metadata: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let manifest = "bases:\n- {name: ubuntu, channel: \"24.04\", architectures: [amd64]}\n";
    for (name, text) in
        [("metadata.yaml", metadata), ("manifest.yaml", manifest), ("dispatch", "#!/bin/sh\n")]
    {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    run(Command::new("chmod").arg("+x").arg(dir.path().join("dispatch")));
    run(Command::new("zip")
        .args(["-qX", "mute.charm", "metadata.yaml", "manifest.yaml", "dispatch"])
        .current_dir(&dir));
    dir
}
