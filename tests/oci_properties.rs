//! What holds for every bundle and every command line; and `fuzz`, which tries what nobody thought of.

#![allow(missing_docs)]

use concourse_ci_machine::oci::args::Call;
use concourse_ci_machine::oci::create::equip;
use concourse_ci_machine::oci::devices::{Devices, Hook, Mount, Node};
use concourse_ci_machine::oci::edit::{Additions, add, look};
use concourse_ci_machine::oci::exec::Equipment;
use concourse_ci_machine::oci::json::Tree;
use concourse_ci_machine::oci::policy::Policy;
use concourse_ci_machine::oci::request::Request;
use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Text of any JSON value, formatted in odd ways.
fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("-0.0".to_owned()),
        Just("1.50e+3".to_owned()),
        Just("123456789012345678901234567890".to_owned()),
        Just("\"\\u003e\\/ \\ud83d\\ude00\"".to_owned()),
        Just("\"\\ud800\"".to_owned()),
        "[a-zA-Z=/:]{0,12}".prop_map(|s| format!("\"{s}\"")),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        let name = prop_oneof![
            Just("process"),
            Just("env"),
            Just("user"),
            Just("mounts"),
            Just("destination"),
            Just("linux"),
            Just("resources"),
            Just("devices"),
            Just("path"),
            Just("hooks"),
            Just("annotations"),
            Just("namespaces"),
            Just("type"),
            Just("future"),
            Just("additionalGids"),
        ];
        let space = prop_oneof![Just(""), Just(" "), Just("\n\t")];
        let list = (prop::collection::vec(inner.clone(), 0..5), space.clone())
            .prop_map(|(all, space)| format!("[{space}{}{space}]", all.join(&format!("{space},"))));
        let object = (prop::collection::vec((name, inner), 0..6), space).prop_map(|(all, space)| {
            let all: Vec<String> = all.iter().map(|(n, v)| format!("\"{n}\"{space}:{space}{v}")).collect();
            format!("{{{space}{}{space}}}", all.join(","))
        });
        prop_oneof![list, object]
    })
}

/// A config.json that is almost right: each part is right, missing, or anything.
fn any_config() -> impl Strategy<Value = String> {
    let part = |right: &'static [&'static str]| prop_oneof![3 => proptest::sample::select(right).prop_map(str::to_owned), 1 => any_json()];
    let process = part(&[
        r#"{"env":["A=1", "NVIDIA_VISIBLE_DEVICES=all","ATC_EXTERNAL_URL=x"],"user":{"uid":0},"rlimits":[ ]}"#,
        r#"{"user":{"additionalGids":[5,44]},"env":null}"#,
        "{}",
    ]);
    let mounts = part(&[
        r#"[{"destination":"/proc"},{"destination":"/srv/a/inner","x":1.0}]"#,
        r#"[ {"destination" : "/srv//a/"} ]"#,
        "null",
    ]);
    let linux = part(&[
        r#"{"namespaces":[{"type":"user"}],"resources":{"devices":[{"allow":false}],"cpu":{"shares":1e2}}}"#,
        r#"{"devices":[{"path":"/dev/nvidia0","major":9}], "seccomp":{"a" : "\u003c"}}"#,
        "{}",
    ]);
    (process, mounts, linux, any_json(), any_json(), 0..31).prop_map(
        |(process, mounts, linux, hooks, other, leave)| {
            let all = [
                ("process", process),
                ("mounts", mounts),
                ("linux", linux),
                ("hooks", hooks),
                ("future", other),
            ];
            let parts = all.iter().enumerate().filter(|(at, _)| leave & (1 << at) == 0);
            let parts: Vec<String> = parts.map(|(_, (n, v))| format!("\"{n}\": {v}")).collect();
            format!("{{ {} }}\n", parts.join(" , "))
        },
    )
}

fn additions() -> Additions {
    let node = |path: &str, host: &str, minor| Node {
        path: path.into(),
        host: host.into(),
        kind: 'c',
        major: 195,
        minor,
        mode: 0o666,
        uid: 0,
        gid: 0,
        permissions: "rwm".into(),
    };
    let mount = |path: &str| Mount {
        host: "/srv/a".into(),
        path: path.into(),
        options: vec!["rbind".into(), "ro".into()],
    };
    Additions {
        nodes: vec![node("/dev/nvidia0", "/dev/nvidia0", 0), node("/dev/nvidia1", "/dev/other", 1)],
        mounts: vec![mount("/srv/a"), mount("/srv")],
        hooks: vec![Hook {
            stage: "createContainer".into(),
            path: "/bin/hook".into(),
            args: vec!["hook".into()],
            env: vec![],
            timeout: None,
        }],
        equipment: Some(Equipment {
            units: vec!["GPU-a".into()],
            env: BTreeMap::from([("NVIDIA_VISIBLE_DEVICES".into(), "GPU-a".into())]),
            defaults: BTreeMap::from([("HSA_OVERRIDE_GFX_VERSION".into(), "10.3.0".into())]),
            gids: vec![44],
            leases: None,
        }),
    }
}

fn edited(text: &str) -> Option<String> {
    let mut config = Tree::parse(text).ok()?;
    let seen = look(&mut config);
    assert_eq!(config.to_string(), text, "looking changed it");
    add(&mut config, &seen, &additions()).ok()?;
    Some(config.to_string())
}

/// Members in order, each with its exact text.
fn members(text: &str) -> Vec<(String, String)> {
    // A map would forget what stands twice; here names are single.
    let map: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
    map.into_iter().map(|(name, raw)| (name, raw.get().to_owned())).collect()
}

/// What is not ours: members at the top, of `process` and of `linux`, to the letter.
fn others(text: &str) -> Vec<(String, String)> {
    let mut found = vec![];
    for (name, raw) in members(text) {
        match name.as_str() {
            "process" => found.extend(members(&raw).into_iter().filter(|(n, _)| n != "env" && n != "user")),
            "linux" => {
                found.extend(members(&raw).into_iter().filter(|(n, _)| n != "devices" && n != "resources"))
            }
            "mounts" | "hooks" | "annotations" => {}
            _ => found.push((name, raw)),
        }
    }
    found
}

/// Elements of a list that stay: those whose key none of ours has.
fn kept(text: &str, path: &str, key: &str, ours: &[&str]) -> Vec<Value> {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let list = value.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default();
    let is_ours = |v: &Value| v[key].as_str().is_some_and(|k| ours.contains(&k));
    list.into_iter().filter(|v| !is_ours(v)).collect()
}

proptest! {
    #[test]
    fn twice_is_once(text in any_config()) {
        if let Some(once) = edited(&text) {
            prop_assert!(serde_json::from_str::<&RawValue>(&once).is_ok(), "{once}");
            prop_assert_eq!(edited(&once), Some(once));
        }
    }

    #[test]
    fn what_is_not_ours_stays_to_the_letter(text in any_config()) {
        if let Some(after) = edited(&text) {
            prop_assert_eq!(others(&text), others(&after));
            let mounts = ["/srv/a", "/srv", "/srv//a/", "/dev/nvidia1"];
            prop_assert_eq!(kept(&text, "/mounts", "destination", &mounts), kept(&after, "/mounts", "destination", &mounts));
            let nodes = ["/dev/nvidia0", "/dev/nvidia1"];
            prop_assert_eq!(
                kept(&text, "/linux/devices", "path", &nodes), kept(&after, "/linux/devices", "path", &nodes)
            );
        }
    }

    #[test]
    fn what_was_given_is_noted(text in any_config()) {
        if let Some(after) = edited(&text) {
            prop_assert_eq!(Equipment::noted(&after), additions().equipment);
        }
    }

    #[test]
    fn any_value_survives_being_looked_at(text in any_json()) {
        if let Ok(mut tree) = Tree::parse(&text) {
            look(&mut tree);
            prop_assert_eq!(tree.to_string(), text);
        }
    }

    #[test]
    fn any_command_line_is_read(args in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..8), 0..8)) {
        let _ = Call::parse(&args.into_iter().map(OsString::from_vec).collect::<Vec<_>>());
    }
}

/// A small generator of its own: the same seed tries the same inputs.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }

    /// Bytes changed, cut out, doubled, and words put in that mean something somewhere.
    fn mutate(&mut self, input: &[u8], words: &[&str]) -> Vec<u8> {
        let mut text = input.to_vec();
        for _ in 0..=self.below(6) {
            let at = self.below(text.len() + 1);
            let to = (at + self.below(40)).min(text.len());
            match self.below(5) {
                0 if at < text.len() => text[at] = self.below(256) as u8,
                1 => drop(text.drain(at..to)),
                2 => {
                    let piece = text[at..to].to_vec();
                    let into = self.below(text.len() + 1);
                    text.splice(into..into, piece);
                }
                3 => {
                    let word = words[self.below(words.len())];
                    text.splice(at..at, word.bytes());
                }
                _ => {
                    let word = words[self.below(words.len())];
                    text.splice(at..to, word.bytes());
                }
            }
        }
        text
    }
}

const WORDS: [&str; 28] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "null",
    "-1e999",
    "\\ud800",
    "\\u0000",
    "NVIDIA_VISIBLE_DEVICES=0,1,,",
    "GPU_COUNT=99999999999999999999",
    "GPU_MEMORY_MIN=18446744073709551615Gi",
    "ATC_EXTERNAL_URL=",
    "/tmp/build/00000000",
    "create",
    "exec",
    "--",
    "-b",
    "--bundle=",
    "--process",
    "--log",
    "é",
    "\"mounts\":",
    "\"process\":{}",
    "=",
    "\0",
];

const ENV: [&str; 12] = [
    "\"ATC_EXTERNAL_URL=x\"",
    "\"GPU_COUNT=2\"",
    "\"GPU_COUNT=99999999999999999999\"",
    "\"GPU_COUNT=-0\"",
    "\"=\"",
    "7",
    "\"NVIDIA_VISIBLE_DEVICES=0,,GPU-b\"",
    "\"NVIDIA_VISIBLE_DEVICES=\"",
    "\"AMD_VISIBLE_DEVICES=\\ud800\"",
    "\"GPU_MEMORY_MIN=18446744073709551615Gi\"",
    "\"GPU_MODEL=\\u0000é\"",
    "\"HSA_OVERRIDE_GFX_VERSION=\"",
];

/// Runs for `FUZZ_SECONDS` (else 10) and says how many inputs it tried. `FUZZ_SEED` repeats a run.
#[test]
#[ignore = "runs for a while: make fuzz"]
fn fuzz() {
    let number = |name: &str, or: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(or);
    let time = Duration::from_secs(number("FUZZ_SECONDS", 10));
    let seed = number("FUZZ_SEED", std::process::id().into());
    let mut random = Random(seed);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oci");
    let read = |path: &str| fs::read(root.join(path)).unwrap();
    // Without the seccomp profile, which nothing looks at, more changes hit what matters.
    let short = |path: &str| {
        let mut value: Value = serde_json::from_slice(&read(path)).unwrap();
        if let Some(linux) = value.get_mut("linux").and_then(Value::as_object_mut) {
            linux.remove("seccomp");
        }
        serde_json::to_vec(&value).unwrap()
    };
    let configs: Vec<Vec<u8>> = ["check", "get", "put", "task", "task-privileged"]
        .iter()
        .flat_map(|b| [short(&format!("bundles/{b}/config.json")), read(&format!("bundles/{b}/config.json"))])
        .collect();
    let processes = [read("bundles/task/process.json"), read("bundles/task/hijack.json")];
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("srv/data")).unwrap();
    let tmp = dir.path().to_str().unwrap();
    let devices = String::from_utf8(read("devices.json")).unwrap().replace("@TMP@/driver", tmp);
    fs::write(dir.path().join("devices.json"), &devices).unwrap();
    let policies: Vec<String> = ["shared", "request"]
        .iter()
        .map(|access| {
            json!({"format": 1, "runc": "/r", "folders": {"steps": "tasks", "root": dir.path().join("srv")},
                "gpus": {"access": access, "devices": dir.path().join("devices.json")}})
            .to_string()
        })
        .collect();
    let argv = b"--root\n/r\n--log\n/l\n--log-format\njson\ncreate\n--bundle\n/b\n--pid-file\n/p\nid";
    let equipment = additions().equipment.unwrap();

    let start = Instant::now();
    let (mut tried, mut changed, mut refused) = (0u64, 0u64, 0u64);
    println!("seed {seed}");
    while start.elapsed() < time {
        let words = random.mutate(argv, &WORDS);
        let args: Vec<OsString> =
            words.split(|b| *b == b'\n').map(|b| OsString::from_vec(b.to_vec())).collect();
        let _ = Call::parse(&args);
        let _ = serde_json::from_slice::<Devices>(&random.mutate(devices.as_bytes(), &WORDS));
        let policy = &policies[random.below(policies.len())];
        let _ = serde_json::from_slice::<Policy>(&random.mutate(policy.as_bytes(), &WORDS));
        let policy: Policy = serde_json::from_str(policy).unwrap();

        let at = random.below(configs.len());
        // Half of them get sound JSON with unsound words, to get past the parser.
        let text = match random.below(2) {
            0 => random.mutate(&configs[at], &WORDS),
            _ => {
                let words: String =
                    (0..random.below(4)).map(|_| format!("{},", ENV[random.below(ENV.len())])).collect();
                String::from_utf8(configs[at].clone())
                    .unwrap()
                    .replacen("\"env\":[", &format!("\"env\":[{words}"), 1)
                    .into()
            }
        };
        if let Ok(text) = std::str::from_utf8(&text)
            && let Ok(mut config) = Tree::parse(text)
        {
            let _ = Request::parse(&look(&mut config).env);
            assert_eq!(config.to_string(), text, "seed {seed}: looking changed it");
            match equip(&mut config, dir.path(), Ok(&policy)) {
                Err(_) => refused += 1,
                Ok(()) => {
                    let once = config.to_string();
                    changed += u64::from(once != text);
                    let mut again = Tree::parse(&once).expect("valid before, valid after");
                    equip(&mut again, dir.path(), Ok(&policy)).expect("what went once goes twice");
                    assert_eq!(again.to_string(), once, "seed {seed}: twice is not once");
                    let _ = Equipment::noted(&once);
                }
            }
        }
        let at = random.below(processes.len());
        let text = random.mutate(&processes[at], &WORDS);
        let text = String::from_utf8_lossy(&text);
        if let Ok(mut process) = Tree::parse(&text) {
            let _ = equipment.give(&mut process);
            assert!(Tree::parse(&process.to_string()).is_ok(), "seed {seed}: no JSON any more");
        }
        tried += 5;
    }
    println!("{tried} inputs tried in {} s: {changed} bundles changed, {refused} refused", time.as_secs());
    assert!(changed > 0 && refused > 0, "the mutations are too wild to reach anything");
}
