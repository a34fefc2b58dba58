//! The container as the runtime sees it. Shapes follow what a real worker was seen to write.

use crate::protocol::Task;
use serde_json::{Value, json};
use std::path::Path;

const CAPABILITIES: &[&str] = &[
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];
const MORE_CAPABILITIES: &[&str] = &[
    "CAP_AUDIT_CONTROL",
    "CAP_AUDIT_READ",
    "CAP_BLOCK_SUSPEND",
    "CAP_DAC_READ_SEARCH",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_LEASE",
    "CAP_LINUX_IMMUTABLE",
    "CAP_MAC_ADMIN",
    "CAP_MAC_OVERRIDE",
    "CAP_NET_ADMIN",
    "CAP_NET_BROADCAST",
    "CAP_SYSLOG",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_MODULE",
    "CAP_SYS_NICE",
    "CAP_SYS_PACCT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_WAKE_ALARM",
];
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Everything a container is made of.
pub struct Container<'a> {
    /// What runs in it.
    pub task: &'a Task,
    /// Its name.
    pub handle: &'a str,
    /// Its root file system.
    pub rootfs: &'a Path,
    /// The program that is its first process.
    pub init: &'a Path,
    /// The volume at `/scratch`.
    pub scratch: &'a Path,
    /// The volume of the working folder, unless it is a check.
    pub build: Option<&'a Path>,
    /// The folder with its hosts, hostname and resolv.conf.
    pub network: &'a Path,
    /// Eight hex digits for a task's working folder.
    pub hex: &'a str,
    /// Whether it has all rights.
    pub privileged: bool,
    /// Further device rules.
    pub devices: &'a [String],
}

impl Container<'_> {
    /// The working folder inside.
    pub fn cwd(&self) -> String {
        match self.task.step.as_str() {
            "task" => format!("/tmp/build/{}", self.hex),
            "check" => "/".into(),
            step => format!("/tmp/build/{step}"),
        }
    }

    /// The process's name: what the real one uses for each step.
    pub fn exec_id(&self) -> &'static str {
        if self.task.step == "task" { "task" } else { "resource" }
    }

    /// Whether the process gets a terminal.
    pub fn terminal(&self) -> bool {
        self.task.step == "task"
    }

    fn capabilities(&self) -> Value {
        let more = if self.privileged { MORE_CAPABILITIES } else { &[] };
        let all: Vec<&str> = CAPABILITIES.iter().chain(more).copied().collect();
        json!({"bounding": all, "effective": all, "inheritable": all, "permitted": all})
    }

    fn env(&self) -> Vec<String> {
        let t = self.task;
        let build: Vec<String> = match t.step.as_str() {
            "task" => Vec::new(),
            step => vec![
                format!("BUILD_ID={}", t.id),
                format!("BUILD_NAME={}", if step == "check" { "check" } else { "1" }),
                "BUILD_TEAM_NAME=main".into(),
            ],
        };
        let url = (!t.external_url.is_empty()).then(|| format!("ATC_EXTERNAL_URL={}", t.external_url));
        let params = t.params.iter().map(|(k, v)| format!("{k}={v}"));
        t.image_env.iter().cloned().chain(build).chain(url).chain(params).collect()
    }

    /// The process that runs the task's command.
    pub fn process(&self) -> Value {
        let mut env = self.env();
        env.push("USER=root".into());
        if !env.iter().any(|e| e.starts_with("PATH=")) {
            env.push(PATH.into());
        }
        let cwd = if self.terminal() { self.cwd() } else { "/".into() };
        let mut process = json!({
            "user": {"uid": 0, "gid": 0}, "args": self.task.cmd, "env": env, "cwd": cwd, "capabilities": self.capabilities(),
        });
        if self.terminal() {
            process["terminal"] = true.into();
            process["consoleSize"] = json!({"height": 500, "width": 500});
        }
        process
    }

    fn mounts(&self) -> Vec<Value> {
        let system = |destination: &str, kind: &str, source: &str, options: &[&str]| json!({"destination": destination, "type": kind, "source": source, "options": options});
        let bind = |destination: &str, source: &Path| json!({"destination": destination, "type": "bind", "source": source, "options": ["bind", "rw"]});
        let (sys, cgroup): (&[&str], &[&str]) = match self.privileged {
            true => (&["nosuid", "noexec", "nodev"], &["nosuid", "noexec", "nodev"]),
            false => (&["nosuid", "noexec", "nodev", "ro"], &["ro", "nosuid", "noexec", "nodev"]),
        };
        let mut mounts = vec![
            system("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
            system("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
            system(
                "/dev/pts",
                "devpts",
                "devpts",
                &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
            ),
            system("/dev/shm", "tmpfs", "shm", &["nosuid", "noexec", "nodev", "mode=1777"]),
            system("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
            system("/sys", "sysfs", "sysfs", sys),
            system("/sys/fs/cgroup", "cgroup", "cgroup", cgroup),
            json!({"destination": "/tmp/gdn-init", "type": "bind", "source": self.init, "options": ["bind"]}),
            bind("/scratch", self.scratch),
        ];
        mounts.extend(self.build.map(|b| bind(&self.cwd(), b)));
        mounts.extend(
            ["hosts", "hostname", "resolv.conf"].map(|f| bind(&format!("/etc/{f}"), &self.network.join(f))),
        );
        mounts
    }

    /// The whole container.
    pub fn spec(&self) -> Value {
        let mut rules = vec![json!({"allow": true, "type": "c", "major": 10, "minor": 229, "access": "rwm"})];
        rules.extend(self.devices.iter().filter_map(|d| device_rule(d)));
        let mut spaces = vec!["pid", "ipc", "uts", "mount", "network"];
        if !self.privileged {
            spaces.extend(["user", "cgroup"]);
        }
        let spaces: Vec<Value> = spaces.iter().map(|s| json!({"type": s})).collect();
        let mut linux = json!({"resources": {"devices": rules}, "namespaces": spaces});
        if self.privileged {
            linux["devices"] =
                json!([{"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229, "fileMode": 0o666}]);
        } else {
            let max = max_id();
            let map = json!([{"containerID": 0, "hostID": max, "size": 1}, {"containerID": 1, "hostID": 1, "size": max - 1}]);
            linux["uidMappings"] = map.clone();
            linux["gidMappings"] = map;
            linux["cgroupsPath"] = format!("garden/{}", self.handle).into();
        }
        json!({
            "ociVersion": "1.0.2",
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["/tmp/gdn-init"], "env": self.env(), "cwd": "/", "capabilities": self.capabilities()},
            "root": {"path": self.rootfs}, "hostname": self.handle, "mounts": self.mounts(), "hooks": {}, "annotations": {"user": "root"}, "linux": linux,
        })
    }
}

/// `c 195:0 rwm` as a rule; `*` stands for any number.
fn device_rule(text: &str) -> Option<Value> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [kind, numbers, access] = words.as_slice() else { return None };
    let (major, minor) = numbers.split_once(':')?;
    let mut rule = json!({"allow": true, "type": kind, "access": access});
    for (name, value) in [("major", major), ("minor", minor)] {
        if value != "*" {
            rule[name] = value.parse::<i64>().ok()?.into();
        }
    }
    Some(rule)
}

/// The last user of our own namespace: the real one makes it the root of its containers.
pub fn max_id() -> u32 {
    max_of(&std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default())
        .min(max_of(&std::fs::read_to_string("/proc/self/gid_map").unwrap_or_default()))
}

fn max_of(map: &str) -> u32 {
    let last = |line: &str| {
        let mut numbers = line.split_whitespace().map(|n| n.parse::<u64>().unwrap_or(0));
        let (first, _, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
        u32::try_from(first + count - 1).ok()
    };
    map.lines().filter_map(last).max().unwrap_or(u32::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_users() {
        assert_eq!(max_of("         0          0 4294967295\n"), 4_294_967_294);
        assert_eq!(max_of("0 1000000 65536\n"), 65535);
    }

    #[test]
    fn rules() {
        assert_eq!(
            device_rule("c 195:* rwm"),
            Some(json!({"allow": true, "type": "c", "access": "rwm", "major": 195}))
        );
        assert_eq!(device_rule("c 195"), None);
    }

    #[test]
    fn a_task_looks_like_the_real_one() {
        let task = Task {
            step: "task".into(),
            image_env: vec!["A=image".into()],
            external_url: "http://w".into(),
            params: [("P".to_string(), "1".to_string())].into(),
            ..Task::default()
        };
        let p = Path::new("/x");
        let c = Container {
            task: &task,
            handle: "h",
            rootfs: p,
            init: p,
            scratch: p,
            build: Some(p),
            network: p,
            hex: "0a1b2c3d",
            privileged: false,
            devices: &[],
        };
        let spec = c.spec();
        assert_eq!(spec["process"]["env"], json!(["A=image", "ATC_EXTERNAL_URL=http://w", "P=1"]));
        assert!(
            spec["mounts"]
                .as_array()
                .is_some_and(|m| m.iter().any(|m| m["destination"] == "/tmp/build/0a1b2c3d"))
        );
        assert_eq!(spec["linux"]["cgroupsPath"], "garden/h");
        let process = c.process();
        assert_eq!((&process["cwd"], &process["terminal"]), (&json!("/tmp/build/0a1b2c3d"), &json!(true)));
        assert!(c.process()["env"].as_array().is_some_and(|e| e.contains(&json!("USER=root"))));
    }
}
