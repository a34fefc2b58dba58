//! The container: its bundle, as Concourse was seen to write one for a task (PURE).

use serde_json::{Value, json};
use std::path::Path;

/// Those of an unprivileged task.
const CAPABILITIES: [&str; 14] = [
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

/// The task's working folder: by this name the wrapper knows a task.
pub const WORK: &str = "/tmp/build/0a9c7e57";

/// Our program in the container.
pub const PROGRAM: &str = "/usr/bin/concourse-gpu";

/// What a bundle is made of.
pub struct Place<'a> {
    /// The container's name.
    pub id: &'a str,
    /// An empty root file system that belongs to the container's root.
    pub rootfs: &'a Path,
    /// A folder of its own.
    pub work: &'a Path,
    /// Concourse's first process.
    pub init: &'a Path,
    /// Files of the worker that are the image: from, to.
    pub image: &'a [(std::path::PathBuf, String)],
    /// The last user of our own namespace: Concourse makes it the root of its containers.
    pub last_user: u32,
    /// The task's params.
    pub params: &'a [(String, String)],
}

impl Place<'_> {
    fn env(&self) -> Vec<String> {
        let params = self.params.iter().map(|(name, value)| format!("{name}={value}"));
        ["ATC_EXTERNAL_URL=http://gpu-test.invalid".to_owned()].into_iter().chain(params).collect()
    }

    /// `config.json`
    pub fn config(&self) -> Value {
        let system = |destination: &str, kind: &str, source: &str, options: &[&str]| json!({"destination": destination, "type": kind, "source": source, "options": options});
        let bind = |destination: &str, source: &Path, options: &[&str]| json!({"destination": destination, "type": "bind", "source": source, "options": options});
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
            system("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
            system("/sys/fs/cgroup", "cgroup", "cgroup", &["ro", "nosuid", "noexec", "nodev"]),
            bind("/tmp/gdn-init", self.init, &["bind"]),
            bind(WORK, self.work, &["bind", "rw"]),
        ];
        mounts.extend(self.image.iter().map(|(from, to)| bind(to, from, &["bind", "ro"])));
        let spaces = ["pid", "ipc", "uts", "mount", "network", "user", "cgroup"];
        let spaces: Vec<Value> = spaces.iter().map(|kind| json!({"type": kind})).collect();
        let map = json!([{"containerID": 0, "hostID": self.last_user, "size": 1},
            {"containerID": 1, "hostID": 1, "size": self.last_user - 1}]);
        json!({
            "ociVersion": "1.0.2",
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["/tmp/gdn-init"], "env": self.env(), "cwd": "/",
                "capabilities": capabilities()},
            "root": {"path": self.rootfs},
            "hostname": self.id,
            "mounts": mounts,
            "hooks": {},
            "annotations": {"user": "root"},
            "linux": {"uidMappings": map, "gidMappings": map, "namespaces": spaces,
                "resources": {"devices": [{"allow": true, "type": "c", "major": 10, "minor": 229, "access": "rwm"}]},
                "cgroupsPath": format!("garden/{}", self.id)},
        })
    }

    /// The file of `runc exec --process`.
    pub fn process(&self) -> Value {
        let mut env = self.env();
        env.extend(["USER=root".to_owned(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned()]);
        json!({"user": {"uid": 0, "gid": 0}, "args": [PROGRAM, "probe"], "env": env, "cwd": WORK,
            "capabilities": capabilities()})
    }
}

fn capabilities() -> Value {
    json!({"bounding": CAPABILITIES, "effective": CAPABILITIES, "inheritable": CAPABILITIES, "permitted": CAPABILITIES})
}

/// The last user of a `uid_map` or `gid_map`.
pub fn last_user(map: &str) -> u32 {
    let last = |line: &str| {
        let mut numbers = line.split_whitespace().map(|n| n.parse::<u64>().unwrap_or(0));
        let (first, _, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
        u32::try_from((first + count).checked_sub(1)?).ok()
    };
    map.lines().filter_map(last).max().unwrap_or(u32::MAX - 1)
}
