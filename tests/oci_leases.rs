//! Leases by the real program, with a runtime that only lives as long as it is told to: `runc` that makes a container.

#![allow(missing_docs)]

use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

struct Worker {
    dir: TempDir,
}

impl Worker {
    fn new(rules: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let worker = Worker { dir };
        for name in ["bundles", "untagged", "leases"] {
            fs::create_dir(worker.path(name)).unwrap();
        }
        // Says that it was started, and goes on as long as the bundle has no `end`.
        let runc = "#!/bin/sh\n: > \"$PWD/started\"\nuntil [ -e \"$PWD/end\" ]; do sleep 0.01; done\n";
        fs::write(worker.path("runc"), runc).unwrap();
        fs::set_permissions(worker.path("runc"), fs::Permissions::from_mode(0o755)).unwrap();
        let unit = |id: &str, name: &str, arch: &str| json!({"id": id, "names": [name], "vendor": "nvidia", "model": "NVIDIA T4", "memory_mib": 16_000, "compute_capability": arch, "edits": {}});
        let units = json!([unit("GPU-a", "0", "7.5"), unit("GPU-b", "1", "9.0")]);
        fs::write(
            worker.path("devices.json"),
            json!({"format": 1, "vendors": {}, "units": units}).to_string(),
        )
        .unwrap();
        let bundles = [worker.path("bundles"), worker.path("untagged")];
        let mut leases =
            json!({"dir": worker.path("leases"), "default_count": "none", "wait_s": 60, "bundles": bundles});
        rules.as_object().unwrap().iter().for_each(|(name, value)| leases[name] = value.clone());
        let policy = json!({"format": 1, "runc": worker.path("runc"), "folders": {"steps": "none", "root": "/srv"},
            "gpus": {"access": "exclusive", "devices": worker.path("devices.json"), "leases": leases}});
        fs::write(worker.path("policy.json"), policy.to_string()).unwrap();
        worker
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn bundle(&self, id: &str) -> PathBuf {
        self.path(if id.starts_with("untagged-") { "untagged" } else { "bundles" }).join(id)
    }

    fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runc-gpu-wrapper"));
        command
            .env("CONCOURSE_RUNTIME_POLICY", self.path("policy.json"))
            .env("CONCOURSE_RUNTIME_JOURNAL", "/dev/null");
        command.stdin(Stdio::null());
        command
    }

    fn write_bundle(&self, id: &str, env: &[&str]) {
        let bundle = self.bundle(id);
        fs::create_dir(&bundle).unwrap();
        let env: Vec<&str> = ["ATC_EXTERNAL_URL=http://ci"].iter().chain(env).copied().collect();
        let config = json!({"process": {"env": env}, "mounts": [{"destination": "/tmp/build/0123abcd"}]});
        fs::write(bundle.join("config.json"), config.to_string()).unwrap();
    }

    fn again(&self, id: &str) -> Child {
        let bundle = self.bundle(id);
        let mut command = self.program();
        command.args(["--log", "log", "--log-format", "json", "create", "--bundle", ".", id]);
        command.current_dir(&bundle).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn create(&self, id: &str, env: &[&str]) -> Child {
        self.write_bundle(id, env);
        self.again(id)
    }

    fn started(&self, id: &str) -> bool {
        self.bundle(id).join("started").exists()
    }

    fn wait_started(&self, id: &str) {
        until(&format!("{id} starts"), || self.started(id));
    }

    /// What the container was given.
    fn units(&self, id: &str) -> String {
        let config: Value =
            serde_json::from_str(&fs::read_to_string(self.bundle(id).join("config.json")).unwrap()).unwrap();
        let env: Vec<&str> =
            config["process"]["env"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        env.iter().find_map(|v| v.strip_prefix("NVIDIA_VISIBLE_DEVICES=")).unwrap_or("none").to_owned()
    }

    fn refused(&self, id: &str, mut child: Child) -> String {
        assert!(!child.wait().unwrap().success(), "{id} was not refused");
        let line: Value =
            serde_json::from_str(&fs::read_to_string(self.bundle(id).join("log")).unwrap()).unwrap();
        line["msg"].as_str().unwrap().to_owned()
    }

    fn end(&self, id: &str, mut child: Child) {
        fs::write(self.bundle(id).join("end"), "").unwrap();
        child.wait().unwrap();
    }

    fn leases(&self, args: &[&str]) -> (bool, String) {
        let done = self.program().arg("leases").args(args).output().unwrap();
        let text = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
        (done.status.success(), text)
    }

    fn waiting(&self) -> usize {
        let shown: Value = serde_json::from_str(&self.leases(&["--json"]).1).unwrap();
        shown["waiters"].as_array().unwrap().len()
    }
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn only_what_the_image_can_use_is_waited_for() {
    let worker = Worker::new(&json!({}));
    let new = ["GPU_COUNT=1", "NVIDIA_REQUIRE_ARCH=arch>=9.0"];
    let a = worker.create("a", &new);
    worker.wait_started("a");
    assert_eq!(worker.units("a"), "GPU-b");
    let b = worker.create("b", &new);
    until("it stands in line", || worker.waiting() == 1);
    let none = worker.create("none", &["GPU_COUNT=1", "NVIDIA_REQUIRE_ARCH=arch>=10.0"]);
    let why = worker.refused("none", none);
    assert!(why.starts_with("GPU: the image needs arch>=10.0"), "{why}");
    // The other GPU is free all the while, and stays so for those who can use it.
    let c = worker.create("c", &["GPU_COUNT=1"]);
    worker.wait_started("c");
    assert_eq!((worker.units("c").as_str(), worker.started("b")), ("GPU-a", false));
    worker.end("a", a);
    worker.wait_started("b");
    assert_eq!(worker.units("b"), "GPU-b");
    worker.end("b", b);
    worker.end("c", c);
}

#[test]
fn first_come_first_served() {
    let worker = Worker::new(&json!({}));
    let a = worker.create("a", &["GPU_COUNT=2"]);
    worker.wait_started("a");
    assert_eq!(worker.units("a"), "GPU-a,GPU-b");
    let mut line: Vec<(String, Child)> = vec![];
    for at in 0..4 {
        let id = format!("w{at}");
        // The third asks for more than will be free at first: those behind it wait with it.
        let child = worker.create(&id, &[if at == 2 { "GPU_COUNT=2" } else { "GPU_COUNT=1" }]);
        line.push((id, child));
        until("it stands in line", || worker.waiting() == at + 1);
    }
    assert!(line.iter().all(|(id, _)| !worker.started(id)));
    kill(a);
    worker.wait_started("w0");
    worker.wait_started("w1");
    assert_ne!(worker.units("w0"), worker.units("w1"));
    let mut line = line.into_iter();
    let mut next = || line.next().unwrap();
    let (id, child) = next();
    worker.end(&id, child);
    until("the table is settled", || worker.waiting() == 2);
    assert!(!worker.started("w2") && !worker.started("w3"), "the last overtook the third");
    let (id, child) = next();
    worker.end(&id, child);
    worker.wait_started("w2");
    assert!(!worker.started("w3"));
    let (id, child) = next();
    kill(child);
    assert!(id == "w2");
    worker.wait_started("w3");
    let (id, child) = next();
    worker.end(&id, child);
}

#[test]
fn one_that_dies_in_line_holds_nobody_up() {
    let worker = Worker::new(&json!({}));
    let a = worker.create("a", &["GPU_COUNT=2"]);
    worker.wait_started("a");
    let first = worker.create("first", &["GPU_COUNT=2"]);
    until("it stands in line", || worker.waiting() == 1);
    let second = worker.create("second", &["GPU_COUNT=1"]);
    until("it stands in line", || worker.waiting() == 2);
    kill(first);
    kill(a);
    worker.wait_started("second");
    worker.end("second", second);
}

#[test]
fn a_waiter_ends_with_its_caller() {
    let worker = Worker::new(&json!({}));
    let a = worker.create("a", &["GPU_COUNT=2"]);
    worker.wait_started("a");
    worker.write_bundle("b", &["GPU_COUNT=1"]);
    let script = format!("{} create --bundle . b & wait", env!("CARGO_BIN_EXE_runc-gpu-wrapper"));
    let mut shim = Command::new("sh");
    shim.args(["-c", &script]).env("CONCOURSE_RUNTIME_POLICY", worker.path("policy.json"));
    let shim = shim.current_dir(worker.bundle("b")).stderr(Stdio::null()).spawn().unwrap();
    until("it stands in line", || worker.waiting() == 1);
    kill(shim);
    until("it has left", || worker.waiting() == 0);
    kill(a);
    assert!(!worker.started("b"));
}

#[test]
fn who_waits_too_long_is_told_who_has_what() {
    let worker = Worker::new(&json!({"wait_s": 1}));
    let a = worker.create("a", &["GPU_COUNT=1"]);
    worker.wait_started("a");
    let start = Instant::now();
    let b = worker.create("b", &["GPU_COUNT=2"]);
    let said = worker.refused("b", b);
    assert!(start.elapsed() >= Duration::from_secs(1));
    for part in [
        "GPU: the task asks for GPU_COUNT=2, and waited 1s for it in vain: container a has 0 (GPU-a) for ",
        "; free, but 1 of 2 is not enough: 1 (GPU-b)",
        "attempts",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(worker.waiting(), 0);
    kill(a);
}

#[test]
fn what_can_never_be_is_refused_at_once() {
    let worker = Worker::new(&json!({}));
    let a = worker.create("a", &["GPU_COUNT=2"]);
    worker.wait_started("a");
    for (at, (env, said)) in [
        ("GPU_COUNT=3", "only 2 GPUs fit on this worker"),
        ("GPU_MODEL=H200", "no GPU fits on this worker"),
        ("GPU_MEMORY_MIN=24GB", "no GPU fits on this worker"),
        ("NVIDIA_VISIBLE_DEVICES=7", "names \"7\""),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("b{at}");
        let child = worker.create(&id, &[env]);
        let found = worker.refused(&id, child);
        assert!(found.contains(said), "{env}: {found}");
    }
    fs::write(
        worker.path("leases/sick.json"),
        json!({"format": 1, "units": {"GPU-b": "XID 79"}}).to_string(),
    )
    .unwrap();
    let child = worker.create("c", &["GPU_COUNT=2"]);
    let said = worker.refused("c", child);
    assert!(
        said.contains("only 1 GPU that would do is in order") && said.contains("1 (GPU-b) (XID 79)"),
        "{said}"
    );
    kill(a);
}

#[test]
fn sick_units_are_not_leased_and_who_waits_for_them_is_told() {
    let worker = Worker::new(&json!({}));
    let sick = |id: &str| json!({"format": 1, "units": {id: "XID 79"}}).to_string();
    fs::write(worker.path("leases/sick.json"), sick("GPU-a")).unwrap();
    let a = worker.create("a", &["GPU_COUNT=1"]);
    worker.wait_started("a");
    assert_eq!(worker.units("a"), "GPU-b");
    // Each of the two files says of its own.
    fs::write(worker.path("leases/unclean.json"), sick("GPU-b")).unwrap();
    let both = worker.create("both", &["GPU_COUNT=1"]);
    assert!(worker.refused("both", both).contains("out of order: 0 (GPU-a) (XID 79), 1 (GPU-b) (XID 79)"));
    fs::remove_file(worker.path("leases/unclean.json")).unwrap();
    fs::write(worker.path("leases/sick.json"), "{").unwrap();
    let b = worker.create("b", &["GPU_COUNT=2"]);
    until("it stands in line", || worker.waiting() == 1);
    fs::write(worker.path("leases/sick.json"), sick("GPU-a")).unwrap();
    assert!(worker.refused("b", b).contains("is in order"));
    kill(a);
}

#[test]
fn who_names_no_number_has_all_that_are_in_order() {
    for (rule, env, one_sick, all_sick) in [
        (json!("all"), vec![], "GPU-b", "none"),
        (json!(2), vec![], "GPU-b", "none"),
        (json!(1), vec![], "GPU-b", "none"),
        (json!("none"), vec!["GPU_COUNT=all"], "GPU-b", "refused"),
        (json!("none"), vec!["NVIDIA_VISIBLE_DEVICES=all", "GPU_MODEL=t4"], "GPU-b", "refused"),
        (json!("all"), vec!["GPU_COUNT=2"], "refused", "refused"),
        (json!("all"), vec!["NVIDIA_VISIBLE_DEVICES=0,1"], "refused", "refused"),
    ] {
        let worker = Worker::new(&json!({"default_count": rule}));
        for (id, sick, gets) in [
            ("a", json!({"GPU-a": "XID 79"}), one_sick),
            ("b", json!({"GPU-a": "x", "GPU-b": "x"}), all_sick),
        ] {
            let sick = json!({"format": 1, "units": sick}).to_string();
            fs::write(worker.path("leases/sick.json"), sick).unwrap();
            let child = worker.create(id, &env);
            if gets == "refused" {
                let said = worker.refused(id, child);
                assert!(said.contains("in order on this worker; out of order: 0 (GPU-a)"), "{said}");
                continue;
            }
            worker.wait_started(id);
            assert_eq!(worker.units(id), gets, "{rule} {env:?}");
            worker.end(id, child);
        }
    }
}

#[test]
fn who_asks_for_nothing_takes_no_lock() {
    for (rules, env, units) in [
        (json!({}), vec![], "none"),
        (json!({}), vec!["GPU_COUNT=0"], "none"),
        (json!({"default_count": 1}), vec!["NVIDIA_VISIBLE_DEVICES=none"], "none"),
        (json!({"default_count": 1}), vec![], "GPU-a"),
        (json!({"default_count": 9}), vec![], "GPU-a,GPU-b"),
        (json!({"default_count": "all"}), vec![], "GPU-a,GPU-b"),
        (json!({"default_count": "all"}), vec!["GPU_COUNT=1"], "GPU-a"),
        (json!({}), vec!["NVIDIA_VISIBLE_DEVICES=1"], "GPU-b"),
        (json!({}), vec!["GPU_COUNT=1", "NVIDIA_VISIBLE_DEVICES=0,1"], "GPU-a"),
    ] {
        let worker = Worker::new(&rules);
        let child = worker.create("a", &env);
        worker.wait_started("a");
        assert_eq!(worker.units("a"), units, "{rules} {env:?}");
        let locked = worker.path("leases/leases.lock").exists();
        assert_eq!(locked, units != "none", "{rules} {env:?}");
        worker.end("a", child);
    }
    // Whoever has the lock, and for however long.
    let worker = Worker::new(&json!({}));
    let lock = fs::File::create(worker.path("leases/leases.lock")).unwrap();
    lock.lock().unwrap();
    let nothing = worker.create("nothing", &[]);
    worker.wait_started("nothing");
    let one = worker.create("one", &["GPU_COUNT=1"]);
    until("it waits for the lock", || {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| line.contains("->") && line.contains(&format!(" {} ", one.id())))
    });
    assert!(!worker.started("one"));
    drop(lock);
    worker.wait_started("one");
    [nothing, one].into_iter().for_each(kill);
    let worker = Worker::new(&json!({"names": false}));
    let child = worker.create("a", &["NVIDIA_VISIBLE_DEVICES=1"]);
    assert!(worker.refused("a", child).contains("names GPUs, which tasks may not on this worker"));
}

#[test]
fn the_same_container_again_has_the_same_units() {
    let worker = Worker::new(&json!({}));
    let first = worker.create("a", &["GPU_COUNT=1"]);
    worker.wait_started("a");
    fs::remove_file(worker.bundle("a").join("started")).unwrap();
    let second = worker.again("a");
    worker.wait_started("a");
    assert_eq!(worker.units("a"), "GPU-a");
    let b = worker.create("b", &["GPU_COUNT=1"]);
    worker.wait_started("b");
    assert_eq!(worker.units("b"), "GPU-b");
    kill(first);
    let c = worker.create("c", &["GPU_COUNT=1"]);
    until("it stands in line", || worker.waiting() == 1);
    kill(second);
    worker.wait_started("c");
    assert_eq!(worker.units("c"), "GPU-a");
    // Its units are another's now: it waits for those that it has devices of.
    fs::remove_file(worker.bundle("a").join("started")).unwrap();
    let third = worker.again("a");
    until("it stands in line", || worker.waiting() == 1);
    kill(c);
    worker.wait_started("a");
    assert_eq!(worker.units("a"), "GPU-a");
    [third, b].into_iter().for_each(kill);
}

#[test]
fn replicas_are_given_to_so_many() {
    let worker = Worker::new(&json!({"replicas": 2}));
    let children: Vec<Child> = (0..4).map(|at| worker.create(&format!("c{at}"), &["GPU_COUNT=1"])).collect();
    (0..4).for_each(|at| worker.wait_started(&format!("c{at}")));
    let mut units: Vec<String> = (0..4).map(|at| worker.units(&format!("c{at}"))).collect();
    units.sort();
    assert_eq!(units, ["GPU-a", "GPU-a", "GPU-b", "GPU-b"]);
    let fifth = worker.create("c4", &["GPU_COUNT=1"]);
    until("it stands in line", || worker.waiting() == 1);
    children.into_iter().for_each(kill);
    worker.wait_started("c4");
    kill(fifth);
}

#[test]
fn fewer_replicas_count_for_those_who_wait_already() {
    let worker = Worker::new(&json!({"replicas": 2}));
    let mut holders = vec![];
    for at in 0..4 {
        let id = format!("c{at}");
        holders.push((worker.create(&id, &["GPU_COUNT=1"]), id.clone()));
        worker.wait_started(&id);
    }
    let waits = worker.create("waits", &["GPU_COUNT=1"]);
    until("it stands in line", || worker.waiting() == 1);
    let policy = fs::read_to_string(worker.path("policy.json")).unwrap();
    fs::write(worker.path("policy.json"), policy.replace("\"replicas\":2", "\"replicas\":1")).unwrap();
    let mut end_one = |unit: &str| {
        let at = holders.iter().position(|(_, id)| worker.units(id) == unit).unwrap();
        kill(holders.remove(at).0);
    };
    end_one("GPU-a");
    until("it looks", || {
        let table = fs::read_to_string(worker.path("leases/leases.json")).unwrap();
        serde_json::from_str::<Value>(&table).unwrap()["leases"].as_array().unwrap().len() == 3
    });
    assert_eq!(worker.waiting(), 1, "it has a unit that another one has too");
    end_one("GPU-a");
    worker.wait_started("waits");
    assert_eq!(worker.units("waits"), "GPU-a");
    holders.into_iter().for_each(|(child, _)| kill(child));
    kill(waits);
}

#[test]
fn nobody_leaves_a_bell_behind() {
    let worker = Worker::new(&json!({}));
    let bells = || {
        let entries = fs::read_dir(worker.path("leases")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut bells: Vec<String> = names.filter(|name| name.starts_with("waits-")).collect();
        bells.sort();
        bells
    };
    let a = worker.create("a", &["GPU_COUNT=2"]);
    worker.wait_started("a");
    let served = worker.create("served", &["GPU_COUNT=2"]);
    until("it stands in line with a bell", || worker.waiting() == 1 && bells().len() == 1);
    // It is served by others, and dies before it comes to know.
    let pid = nix::unistd::Pid::from_raw(i32::try_from(served.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    kill(a);
    let last = worker.create("last", &["GPU_COUNT=2"]);
    until("the other one is served", || worker.leases(&[]).1.contains("T4\n  container served for "));
    kill(served);
    worker.wait_started("last");
    until("its bell is gone", || bells().is_empty());
    // Those of a time that no table tells of.
    fs::write(worker.path("leases/waits-999999999-5"), "").unwrap();
    let waits = worker.create("waits", &["GPU_COUNT=1"]);
    until("it stands in line with a bell", || worker.waiting() == 1 && bells().len() == 2);
    let own = bells().into_iter().find(|bell| !bell.contains("999999999")).unwrap();
    fs::write(worker.path("leases/leases.json"), "{").unwrap();
    let other = worker.create("other", &["GPU_COUNT=2"]);
    until("it was swept", || !bells().iter().any(|bell| bell.contains("999999999")));
    assert!(bells().contains(&own), "{:?} of one that waits", bells());
    [last, waits, other].into_iter().for_each(kill);
}

#[test]
fn the_operator_sees_and_breaks_only_what_is_not_in_use() {
    let worker = Worker::new(&json!({}));
    assert_eq!(worker.leases(&[]), (true, "0 (GPU-a)  NVIDIA T4  free\n1 (GPU-b)  NVIDIA T4  free\n".into()));
    let a = worker.create("a", &["GPU_COUNT=1"]);
    worker.wait_started("a");
    let (well, text) = worker.leases(&[]);
    assert!(
        well && text.contains("container a for ") && text.contains(&format!("made by {}", a.id())),
        "{text}"
    );
    let (well, text) = worker.leases(&["break", "0"]);
    assert!(!well && text.contains("0 is in use") && text.contains(&a.id().to_string()), "{text}");
    assert_eq!(worker.leases(&["break", "GPU-b"]), (true, "GPU-b is free\n".into()));
    assert!(
        worker
            .leases(&["break", "7"])
            .1
            .contains("tasks have no unit 7 on this worker; they have: 0 (GPU-a)")
    );
    assert!(worker.leases(&["brake"]).1.starts_with("usage:"));
    kill(a);
    assert!(worker.leases(&[]).1.contains("0 (GPU-a)  NVIDIA T4  free"));
}

#[test]
fn units_that_are_no_longer_given_are_seen_while_someone_has_them() {
    let worker = Worker::new(&json!({}));
    let a = worker.create("a", &["GPU_COUNT=1"]);
    worker.wait_started("a");
    let list = fs::read_to_string(worker.path("devices.json")).unwrap();
    let mut list: Value = serde_json::from_str(&list).unwrap();
    list["units"].as_array_mut().unwrap().remove(0);
    fs::write(worker.path("devices.json"), list.to_string()).unwrap();
    let (_, text) = worker.leases(&[]);
    let rest = "1 (GPU-b)  NVIDIA T4  free\nGPU-a  no longer given to tasks\n  container a for ";
    assert!(text.starts_with(rest), "{text}");
    let (well, text) = worker.leases(&["break", "GPU-a"]);
    assert!(!well && text.contains("GPU-a is in use"), "{text}");
    kill(a);
    assert_eq!(worker.leases(&[]).1, "1 (GPU-b)  NVIDIA T4  free\n");
}

#[test]
fn containers_of_both_workers_are_found_again() {
    let worker = Worker::new(&json!({"wait_s": 1}));
    for (first, second) in [("a", "untagged-a"), ("untagged-b", "b")] {
        let holder = worker.create(first, &["GPU_COUNT=1"]);
        worker.wait_started(first);
        assert_eq!(worker.units(first), "GPU-a");
        fs::write(worker.path("leases/leases.json"), "{").unwrap();
        let other = worker.create(second, &["GPU_COUNT=1"]);
        worker.wait_started(second);
        assert_eq!(worker.units(second), "GPU-b", "{second} was given what {first} has");
        let listed = worker.leases(&[]).1;
        assert!(listed.contains(&format!("container {first} for ")), "{listed}");
        [holder, other].into_iter().for_each(kill);
        for id in [first, second] {
            fs::remove_dir_all(worker.bundle(id)).unwrap();
        }
    }
}

#[test]
fn a_table_that_cant_be_used_refuses_or_is_put_together_again() {
    let worker = Worker::new(&json!({"wait_s": 1}));
    let a = worker.create("a", &["GPU_COUNT=1"]);
    worker.wait_started("a");
    let table = worker.path("leases/leases.json");
    for broken in ["", "{", "{\"format\":99}", "\u{0}"] {
        fs::write(&table, broken).unwrap();
        // `a` may still be in the making: nobody knows. Its unit is not given, the other one is.
        let id = format!("b{}", broken.len());
        let b = worker.create(&id, &["GPU_COUNT=1"]);
        worker.wait_started(&id);
        assert_eq!(worker.units(&id), "GPU-b", "{broken:?}");
        kill(b);
        fs::remove_dir_all(worker.bundle(&id)).unwrap();
    }
    fs::set_permissions(worker.path("leases"), fs::Permissions::from_mode(0o777)).unwrap();
    let c = worker.create("c", &["GPU_COUNT=1"]);
    let said = worker.refused("c", c);
    assert!(
        said.contains("lease table can't be used") && said.contains("only its owner can write to"),
        "{said}"
    );
    kill(a);
}

/// Prints figures: what a create pays for its lease when 64 come at once, and whether all were served.
#[test]
fn sixty_four_at_once() {
    let worker = Worker::new(&json!({"wait_s": 120}));
    let children: Vec<Child> = (0..64).map(|at| worker.create(&format!("c{at}"), &["GPU_COUNT=1"])).collect();
    let mut left: Vec<(usize, Child)> = children.into_iter().enumerate().collect();
    let mut most = 0;
    while !left.is_empty() {
        let running: Vec<usize> =
            left.iter().map(|(at, _)| *at).filter(|at| worker.started(&format!("c{at}"))).collect();
        most = most.max(running.len());
        assert!(running.len() <= 2, "{running:?} have two units");
        for at in running {
            let place = left.iter().position(|(number, _)| *number == at).unwrap();
            let (_, child) = left.remove(place);
            worker.end(&format!("c{at}"), child);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(most > 0);
}
