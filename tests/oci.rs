//! The runtime wrapper as a program: see tests/oci/README.md.

#![allow(missing_docs)]

#[path = "kit/wrapper.rs"]
mod wrapper;

use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use wrapper::Case;

fn cases() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oci/cases");
    let mut found: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn cases_come_out_as_written() {
    let mut wrong = vec![];
    for dir in cases() {
        let spec = read(&dir.join("case.json"));
        let transparent = spec["transparent"] == json!(true);
        if std::env::var_os("OCI_RUNTIME").is_some() && !transparent {
            continue;
        }
        let case = Case::new(&spec);
        let outcome = case.run();
        if transparent {
            assert!(outcome.untouched(), "{}: something changed", dir.display());
        }
        if std::env::var_os("OCI_RUNTIME").is_some() {
            continue;
        }
        assert_eq!(outcome.argv.is_some(), outcome.code == Some(0), "{}", dir.display());
        if let Some(argv) = &outcome.argv {
            assert_eq!(*argv, case.argv, "{}", dir.display());
        }
        let (path, text) = (dir.join("out.txt"), outcome.to_string());
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &text).unwrap();
        } else if fs::read_to_string(&path).unwrap_or_default() != text {
            wrong.push(format!("{}:\n{text}", dir.display()));
        }
        // Twice is once.
        let again = case.run();
        assert!(
            again.argv != outcome.argv || again.untouched(),
            "{}: the second time changed something",
            dir.display()
        );
    }
    assert!(wrong.is_empty(), "UPDATE=1 takes these for right:\n{}", wrong.join("\n"));
}

/// The captured task with one GPU given on request.
fn asking() -> Value {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oci/cases/request-amd/case.json"))
}

#[test]
fn arguments_go_on_byte_for_byte() {
    let mut case = Case::new(&asking());
    for args in [
        vec![b"create".to_vec(), b"--bundle=\xff\xfe".to_vec(), b"id".to_vec()],
        vec![b"--log".to_vec(), b"".to_vec(), b"kill".to_vec(), b"\n\xf0".to_vec(), b"".to_vec()],
        vec![b"\x80".to_vec()],
        vec![],
    ] {
        case.argv = args.into_iter().map(OsString::from_vec).collect();
        assert_eq!(case.run().argv.as_ref(), Some(&case.argv));
    }
}

#[test]
fn mode_and_owner_stay_and_nothing_is_left_over() {
    let case = Case::new(&asking());
    let config = case.bundle.join("config.json");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o640)).unwrap();
    // Only root may give a file away.
    let owner = if nix::unistd::geteuid().is_root() { (1234, 2345) } else { case.owner() };
    std::os::unix::fs::chown(&config, Some(owner.0), Some(owner.1)).unwrap();
    let before = fs::metadata(&config).unwrap();
    assert!(!case.run().untouched());
    let after = fs::metadata(&config).unwrap();
    assert_ne!(before.ino(), after.ino(), "written in place");
    assert_eq!((after.mode() & 0o7777, after.uid(), after.gid()), (0o640, owner.0, owner.1));
    let names: Vec<_> = fs::read_dir(&case.bundle).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.iter().all(|n| !n.to_string_lossy().starts_with(".new-")), "{names:?}");
}

#[test]
fn the_rest_of_the_text_is_not_even_formatted_anew() {
    let case = Case::new(&asking());
    let config = case.bundle.join("config.json");
    let text = fs::read_to_string(&config).unwrap();
    let odd = r#"{ "future" : { "n":1.50e3, "big":123456789012345678901234567890, "s":"\u003c\/" , "twice":1, "twice":2 },"#;
    fs::write(&config, text.replacen('{', odd, 1)).unwrap();
    assert!(!case.run().untouched());
    let after = fs::read_to_string(&config).unwrap();
    assert!(after.starts_with(odd), "{}", &after[..200]);
    let tail = text.split_once("\"seccomp\"").unwrap().1;
    let tail = &tail[..tail.len() - 200];
    assert!(after.contains(tail), "the seccomp profile changed");
}

#[test]
fn a_policy_without_runc_or_none_finds_the_one_in_path() {
    for policy in [
        json!(null),
        json!("{"),
        json!({"format": 1, "runc": "@TMP@/bin/runc", "folders": {"steps": "none", "root": "/srv"}}),
        json!({"format": 1, "runc": "/not/there", "folders": {"steps": "none", "root": "/srv"}}),
    ] {
        let mut spec = asking();
        spec["policy"] = policy.clone();
        spec["argv"] = json!(["state", "id"]);
        let outcome = Case::new(&spec).run();
        assert_eq!(outcome.argv, Some(vec!["state".into(), "id".into()]), "{policy}: {outcome}");
    }
}

#[test]
fn the_wrapper_never_runs_itself_for_ever() {
    // A runtime that looks for runc in PATH, as amd-container-runtime does; and one that always finds the wrapper.
    for (runtime, ends_in_runc) in [("exec runc \"$@\"", true), ("exec \"$WRAPPER\" \"$@\"", false)] {
        let mut spec = asking();
        spec["policy"]["runc"] = json!("@TMP@/between");
        let case = Case::new(&spec);
        let between = case.dir.path().join("between");
        fs::write(&between, format!("#!/bin/sh\n{runtime}\n")).unwrap();
        fs::set_permissions(&between, fs::Permissions::from_mode(0o755)).unwrap();
        // The second one hides the real runc too: a copy of the wrapper is first in PATH.
        if !ends_in_runc {
            fs::copy(env!("CARGO_BIN_EXE_runc-gpu-wrapper"), case.dir.path().join("first/runc")).unwrap();
        }
        let outcome = case.run();
        assert_eq!(outcome.argv.is_some(), ends_in_runc, "{outcome}");
        if !ends_in_runc {
            assert_eq!(outcome.code, Some(1));
            assert!(outcome.to_string().contains("calls the wrapper again"), "{outcome}");
        }
    }
}

/// A cache, an output or an input, in whose place a folder would be.
#[test]
fn a_volume_of_the_step_is_not_hidden_by_a_folder() {
    for (at, worker) in [("srv/data", "srv/data"), ("srv//data/", "srv/data"), ("srv", "srv")] {
        let mut spec = asking();
        spec["srv"] = json!({"data": "directory"});
        let case = Case::new(&spec);
        let tmp = case.dir.path().canonicalize().unwrap();
        let config = case.bundle.join("config.json");
        let text = fs::read_to_string(&config).unwrap();
        let at = tmp.join(at).display().to_string();
        fs::write(&config, text.replacen(r#""/scratch""#, &format!("{at:?}"), 1)).unwrap();
        let (outcome, worker) = (case.run(), tmp.join(worker).display().to_string());
        assert!(outcome.argv.is_none() && outcome.untouched(), "{outcome}");
        let said = outcome.to_string().replace("@TMP@", tmp.to_str().unwrap());
        assert!(
            said.contains(&format!("at {at}, where the worker has {worker}: give it another path")),
            "{said}"
        );
    }
}

#[test]
fn killed_at_any_instant_the_bundle_is_whole() {
    let (mut before, mut after) = (0, 0);
    let mut round = 0;
    // Until both sides of the rename were hit, at least 60 times and at most 600.
    while round < 60 || (before == 0 || after == 0) && round < 600 {
        let case = Case::new(&asking());
        let config = case.bundle.join("config.json");
        let whole = fs::read_to_string(&config).unwrap();
        case.run_killed(std::time::Duration::from_micros(round % 60 * 50));
        let left = fs::read_to_string(&config).unwrap();
        assert!(serde_json::from_str::<Value>(&left).is_ok(), "round {round}: {left}");
        if left == whole {
            before += 1
        } else {
            after += 1
        }
        round += 1;
    }
    assert!(before > 0 && after > 0, "no kill hit the interesting time: {before} before, {after} after");
}

/// What must not be in a program that starts for every process of every container.
#[test]
fn the_program_is_small_and_knows_no_network() {
    let program = fs::read(env!("CARGO_BIN_EXE_runc-gpu-wrapper")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let stripped = dir.path().join("stripped");
    // A program of `cargo test` is neither stripped nor optimised: its size says nothing, its strings do.
    let strip = std::process::Command::new("strip")
        .args(["-o".as_ref(), stripped.as_os_str(), env!("CARGO_BIN_EXE_runc-gpu-wrapper").as_ref()])
        .status();
    let text = if strip.is_ok_and(|s| s.success()) { fs::read(&stripped).unwrap() } else { program };
    for word in ["tokio", "reqwest", "hyper", "serde_yaml", "libyaml", "nvmlInit", "rustls", "http://"] {
        assert!(!text.windows(word.len()).any(|w| w == word.as_bytes()), "{word} is in the wrapper");
    }
    if !cfg!(debug_assertions) {
        assert!(text.len() <= 1 << 20, "the wrapper has {} bytes", text.len());
    }
}

#[test]
fn the_same_program_is_the_hook_of_gpu_containers() {
    let done = std::process::Command::new(env!("CARGO_BIN_EXE_runc-gpu-wrapper"))
        .args(["gpu-hook", "--tree", "x"])
        .output();
    let done = done.unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!((done.status.code(), said.contains("--tree DIR is missing")), (Some(1), true), "{said}");
}
