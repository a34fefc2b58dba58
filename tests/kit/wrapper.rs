//! A bundle, a policy and a call in a directory of their own; and what came of the call. tests/oci/README.md has the form.

#![allow(missing_docs)]

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A runtime that writes down what it was called with.
const RUNTIME: &str = "#!/bin/sh\n[ $# = 0 ] || printf '%s\\0' \"$@\" > \"$TMP/argv.new\"\n[ $# != 0 ] || : > \"$TMP/argv.new\"\nmv \"$TMP/argv.new\" \"$TMP/argv\"\n";

pub struct Case {
    pub dir: TempDir,
    pub bundle: PathBuf,
    pub argv: Vec<OsString>,
    cwd: PathBuf,
    journal: UnixDatagram,
}

type Files = BTreeMap<&'static str, (u64, String)>;

pub struct Outcome {
    pub code: Option<i32>,
    /// What the next runtime was called with; `None`: it was not started.
    pub argv: Option<Vec<OsString>>,
    log: String,
    stderr: String,
    journal: Vec<String>,
    before: Files,
    after: Files,
    tmp: String,
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oci").join(path)
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn make(path: &Path, what: &Value) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    match what.as_str().unwrap() {
        "directory" => fs::create_dir_all(path).unwrap(),
        "file" => fs::write(path, "").unwrap(),
        link => symlink(link.strip_prefix("-> ").expect("directory, file or -> target"), path).unwrap(),
    }
}

impl Case {
    pub fn new(spec: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tmp = dir.path().canonicalize().unwrap();
        let bundle = tmp.join("b1");
        let fill = |text: &str| {
            text.replace("@BUNDLE@", bundle.to_str().unwrap())
                .replace("@RUNC@", tmp.join("runtime/runc").to_str().unwrap())
                .replace("@ID@", "b1")
                .replace("@TMP@", tmp.to_str().unwrap())
        };
        for name in ["b1", "image", "srv", "driver", "bin", "first", "runtime", "state/b1"] {
            fs::create_dir_all(tmp.join(name)).unwrap();
        }
        symlink(env!("CARGO_BIN_EXE_runc-gpu-wrapper"), tmp.join("bin/runc")).unwrap();
        fs::write(tmp.join("runtime/runc"), RUNTIME).unwrap();
        fs::set_permissions(tmp.join("runtime/runc"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(
            tmp.join("state/b1/state.json"),
            fill(r#"{"id":"b1","config":{"labels":["bundle=@BUNDLE@"]}}"#),
        )
        .unwrap();
        for file in fs::read_dir(here("bundles").join(spec["bundle"].as_str().unwrap())).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), bundle.join(file.file_name())).unwrap();
        }
        let mut config = read(&bundle.join("config.json"));
        // The order of serde_json's map is not the file's, so the file is touched only where a case says so.
        let text = fs::read_to_string(bundle.join("config.json")).unwrap();
        let mut text = text.replacen(config["root"]["path"].as_str().unwrap(), &fill("@TMP@/image"), 1);
        for (at, own) in
            [("env", config["process"]["env"].take()), ("annotations", config["annotations"].take())]
        {
            if let Some(other) = spec.get(at) {
                let old = serde_json::to_string(&own).unwrap().replace('>', "\\u003e");
                assert!(text.contains(&old), "{old} is not in the bundle");
                text = text.replacen(&old, &serde_json::to_string(other).unwrap(), 1);
            }
        }
        fs::write(bundle.join("config.json"), text).unwrap();
        match spec.get("policy") {
            None | Some(Value::Null) => {}
            Some(Value::String(broken)) => fs::write(tmp.join("policy.json"), broken).unwrap(),
            Some(policy) => fs::write(tmp.join("policy.json"), fill(&policy.to_string())).unwrap(),
        }
        let devices = spec.get("devices").cloned().unwrap_or_else(|| read(&here("devices.json")));
        if !devices.is_null() {
            fs::write(tmp.join("devices.json"), fill(&devices.to_string())).unwrap();
        }
        for (name, what) in spec["srv"].as_object().into_iter().flatten() {
            make(&tmp.join("srv").join(name), what);
        }
        for (path, what) in spec["image"].as_object().into_iter().flatten() {
            make(&tmp.join("image").join(fill(path).trim_start_matches('/')), what);
        }
        let shim = json!([
            "--root",
            "@TMP@/r",
            "--log",
            "@BUNDLE@/log.json",
            "--log-format",
            "json",
            "create",
            "--bundle",
            "@BUNDLE@",
            "--pid-file",
            "@BUNDLE@/init.pid",
            "--no-new-keyring",
            "@ID@"
        ]);
        let argv = spec.get("argv").unwrap_or(&shim).as_array().unwrap();
        Case {
            argv: argv.iter().map(|arg| fill(arg.as_str().unwrap()).into()).collect(),
            cwd: spec["cwd"].as_str().map_or_else(|| bundle.clone(), |cwd| fill(cwd).into()),
            journal: UnixDatagram::bind(tmp.join("journal")).unwrap(),
            bundle,
            dir,
        }
    }

    pub fn owner(&self) -> (u32, u32) {
        let found = fs::metadata(&self.bundle).unwrap();
        (found.uid(), found.gid())
    }

    fn command(&self) -> Command {
        let tmp = self.bundle.parent().unwrap();
        let program = std::env::var_os("OCI_RUNTIME").map_or_else(|| tmp.join("bin/runc"), PathBuf::from);
        let mut command = Command::new(program);
        command
            .args(&self.argv)
            .current_dir(&self.cwd)
            .env("TMP", tmp)
            .env("WRAPPER", tmp.join("bin/runc"))
            .env("PATH", format!("{0}/first:{0}/bin:{0}/runtime:/usr/bin:/bin", tmp.display()))
            .env("CONCOURSE_RUNTIME_POLICY", tmp.join("policy.json"))
            .env("CONCOURSE_RUNTIME_JOURNAL", tmp.join("journal"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    fn files(&self) -> Files {
        let mut found = Files::new();
        for name in ["config.json", "process.json", "hijack.json"] {
            let path = self.bundle.join(name);
            if let Ok(text) = fs::read_to_string(&path) {
                found.insert(name, (fs::metadata(&path).unwrap().ino(), text));
            }
        }
        found
    }

    pub fn run(&self) -> Outcome {
        let tmp = self.bundle.parent().unwrap();
        let before = self.files();
        for old in [tmp.join("argv"), self.bundle.join("log.json")] {
            let _ = fs::remove_file(old);
        }
        let done = self.command().output().unwrap();
        let argv = fs::read(tmp.join("argv")).ok().map(|bytes| {
            let all = bytes.strip_suffix(b"\0").map(|b| b.split(|b| *b == 0).map(<[u8]>::to_vec).collect());
            let all: Vec<Vec<u8>> = all.unwrap_or_default();
            all.into_iter().map(OsString::from_vec).collect()
        });
        self.journal.set_nonblocking(true).unwrap();
        let mut journal = vec![];
        let mut buffer = [0; 8192];
        while let Ok(length) = self.journal.recv(&mut buffer) {
            journal.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
        }
        Outcome {
            code: done.status.code(),
            argv,
            log: fs::read_to_string(self.bundle.join("log.json")).unwrap_or_default(),
            stderr: String::from_utf8_lossy(&done.stderr).into_owned(),
            journal,
            before,
            after: self.files(),
            tmp: tmp.to_str().unwrap().to_owned(),
        }
    }

    /// Starts it and kills it after a while.
    pub fn run_killed(&self, after: Duration) {
        let mut child = self.command().stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(after);
        let _ = child.kill();
        child.wait().unwrap();
    }
}

impl Outcome {
    /// No file was changed, nor replaced by an equal one.
    pub fn untouched(&self) -> bool {
        self.before == self.after
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = match (&self.argv, self.code) {
            (Some(_), _) => "runtime: started\n".to_owned(),
            (None, code) => format!("runtime: not started, exit code {code:?}\n"),
        };
        for (name, lines) in [("log", &self.log), ("stderr", &self.stderr)] {
            lines.lines().for_each(|line| text += &format!("{name}: {}\n", untimed(line)));
        }
        for entry in &self.journal {
            text += &format!("journal: {}\n", entry.trim_end().replace('\n', " "));
        }
        for (name, (_, before)) in &self.before {
            let after = &self.after[name].1;
            match before == after {
                true => text += &format!("{name}: untouched\n"),
                false => {
                    text += &format!("{name}:\n");
                    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
                    compare("", &value(before), &value(after), &mut text);
                }
            }
        }
        f.write_str(&text.replace(&self.tmp, "@TMP@"))
    }
}

/// Without the time, whatever the format.
fn untimed(line: &str) -> String {
    let stamp =
        |at: &usize| line.get(*at..at + 20).is_some_and(|t| t.ends_with('Z') && t.as_bytes()[10] == b'T');
    match (0..line.len()).find(stamp) {
        Some(at) => format!("{}TIME{}", &line[..at], &line[at + 20..]),
        None => line.to_owned(),
    }
}

fn compare(path: &str, before: &Value, after: &Value, out: &mut String) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                let path = format!("{path}/{name}");
                match (old.get(name), new.get(name)) {
                    (Some(old), Some(new)) => compare(&path, old, new, out),
                    (Some(old), None) => *out += &format!("- {path}: {old}\n"),
                    (None, Some(new)) => *out += &format!("+ {path}: {new}\n"),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
            let rest = old.len().min(new.len()) - start;
            let end = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
            old[start..old.len() - end].iter().for_each(|v| *out += &format!("- {path}/{start}: {v}\n"));
            new[start..new.len() - end].iter().for_each(|v| *out += &format!("+ {path}/{start}: {v}\n"));
        }
        (old, new) if old != new => *out += &format!("- {path}: {old}\n+ {path}: {new}\n"),
        _ => {}
    }
}
