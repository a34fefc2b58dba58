//! Orders, verdicts and the bundle; what a container really sees is in tests/gpu_trial.rs.

use super::bundle::{Place, last_user};
use super::judge::{Trial, judge};
use super::order::order;
use super::{Asked, Cuda, Node, Outcome, Seen, Verdict, fingerprint};
use crate::oci::devices::{Devices, Vendor};
use crate::oci::exec::Equipment;
use crate::oci::policy::Access;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Two of NVIDIA's and one of AMD's.
fn devices() -> Devices {
    let node = |path: &str, minor: u32| {
        json!({"path": path, "host": path, "type": "c", "major": 195, "minor": minor, "mode": 438, "uid": 0, "gid": 0,
            "permissions": "rwm"})
    };
    let libraries =
        json!([{"host": "/opt/concourse/gpu-drivers/1/root", "path": "/run/gpu", "options": ["ro"]}]);
    serde_json::from_value(json!({"format": 1,
        "vendors": {
            "nvidia": {"version": "580.65.06", "edits": {"nodes": [node("/dev/nvidiactl", 255)], "mounts": libraries}},
            "amd": {"edits": {"nodes": [node("/dev/kfd", 99)]}}},
        "units": [
            {"id": "GPU-a", "names": ["0"], "vendor": "nvidia", "edits": {"nodes": [node("/dev/nvidia0", 0)]}},
            {"id": "GPU-b", "names": ["1"], "vendor": "nvidia", "edits": {"nodes": [node("/dev/nvidia1", 1)]}},
            {"id": "0000:03:00.0", "names": ["0"], "vendor": "amd", "edits": {"nodes": [node("/dev/dri/renderD128", 98)]}}]}))
    .unwrap()
}

fn asked(count: &str, devices: &str) -> Asked {
    let word = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Asked { count: word(count), devices: word(devices) }
}

#[test]
fn orders() {
    for (count, named, access, expected) in [
        ("", "", Access::Shared, "3 of 3: GPU_COUNT=all"),
        ("", "", Access::Request, "3 of 3: GPU_COUNT=all"),
        ("", "", Access::Exclusive, "1 of 3: GPU_COUNT=1"),
        ("all", "", Access::Exclusive, "3 of 3: GPU_COUNT=all"),
        ("2", "", Access::Shared, "2 of 3: GPU_COUNT=2"),
        ("none", "", Access::Shared, "0 of 3: GPU_COUNT=none"),
        ("", "none", Access::Exclusive, "0 of 0: GPU_COUNT=0"),
        ("", "all", Access::Exclusive, "3 of 3: GPU_COUNT=all"),
        (
            "",
            "1",
            Access::Shared,
            "1 of 1: NVIDIA_VISIBLE_DEVICES=GPU-b AMD_VISIBLE_DEVICES=none GPU_COUNT=all",
        ),
        (
            "1",
            "GPU-a,nvidia-1",
            Access::Exclusive,
            "1 of 2: NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b AMD_VISIBLE_DEVICES=none GPU_COUNT=1",
        ),
        (
            "",
            "amd-0, 1",
            Access::Shared,
            "2 of 2: NVIDIA_VISIBLE_DEVICES=GPU-b AMD_VISIBLE_DEVICES=0000:03:00.0 GPU_COUNT=all",
        ),
        ("", "0", Access::Shared, "devices: 0 is more than one: write one of 0 (GPU-a), 0 (0000:03:00.0)"),
        (
            "",
            "7",
            Access::Shared,
            "devices: there is no GPU 7 that tasks can have; this worker has 0 (GPU-a), 1 (GPU-b), 0 (0000:03:00.0)",
        ),
        ("x", "", Access::Shared, "count: x is no number of GPUs: write 1, 2… or all or none"),
        (
            "4",
            "",
            Access::Shared,
            "count: 4 GPUs are more than there are to choose from; this worker has 0 (GPU-a), 1 (GPU-b), 0 (0000:03:00.0)",
        ),
    ] {
        let told = match order(&asked(count, named), access, &devices()) {
            Ok(order) => format!("{} of {}: {order}", order.count, order.units.len()),
            Err(why) => why,
        };
        assert_eq!(told, expected, "{count:?} {named:?}");
    }
}

/// A container that saw what it should; then whatever `change` makes of it.
fn judged(change: impl FnOnce(&mut Equipment, &mut BTreeMap<PathBuf, (u64, u64)>, &mut Seen)) -> Outcome {
    let devices = devices();
    let order = order(&asked("", "0,1").with_vendor(), Access::Shared, &devices).unwrap();
    let nodes = [("/dev/nvidia0", 0), ("/dev/nvidia1", 1), ("/dev/nvidiactl", 255)];
    let node = |(path, minor): (&str, u64)| Node { path: path.into(), number: (195, minor), closed: None };
    let mut seen = Seen {
        nodes: nodes.map(node).to_vec(),
        env: [("NVIDIA_VISIBLE_DEVICES".to_owned(), "GPU-a,GPU-b".to_owned())].into(),
        cuda: Cuda::Devices(2),
    };
    let mut numbers = nodes.map(|(path, minor)| (PathBuf::from(path), (195, minor))).into();
    let mut given = Equipment { units: vec!["GPU-a".into(), "GPU-b".into()], ..Equipment::default() };
    change(&mut given, &mut numbers, &mut seen);
    judge(&Trial { order: &order, devices: &devices, given: &given, numbers: &numbers, seen: &seen })
}

impl Asked {
    /// `0` alone is AMD's as well.
    fn with_vendor(self) -> Self {
        Asked { devices: self.devices.map(|names| names.replace("0,1", "nvidia-0,nvidia-1")), ..self }
    }
}

#[test]
fn what_was_seen_is_told() {
    let outcome = judged(|_, _, _| {});
    assert_eq!(outcome.verdict, Verdict::Passed);
    assert_eq!(outcome.units, ["0 (GPU-a)", "1 (GPU-b)"]);
    assert_eq!(outcome.nodes[2], "/dev/nvidiactl 195:255 opens");
    assert_eq!(outcome.cuda.as_deref(), Some("2 devices"));
    assert_eq!(outcome.told(Vendor::Amd), None, "it says nothing of AMD's");
    assert!(outcome.told(Vendor::Nvidia).unwrap().unwrap().starts_with("tested "));
}

#[test]
fn a_container_that_does_not_come_up_is_about_what_was_ordered() {
    let devices = devices();
    let asked = Asked { devices: Some("GPU-a".into()), ..Asked::default() };
    let order = order(&asked, Access::Shared, &devices).unwrap();
    let outcome = order.failed(&devices, "runc says no".into());
    assert_eq!(outcome.of, fingerprint(&devices), "it is not of GPUs that have changed since");
    assert!(outcome.told(Vendor::Nvidia).unwrap().unwrap_err().ends_with(": runc says no"));
    assert_eq!(outcome.told(Vendor::Amd), None);
    assert!(Outcome { vendors: vec![], ..outcome }.told(Vendor::Amd).is_some(), "there was no GPU in it");
}

#[test]
fn whatever_is_wrong_is_a_reason() {
    type Change = fn(&mut Equipment, &mut BTreeMap<PathBuf, (u64, u64)>, &mut Seen);
    let cases: [(Change, &[&str]); 10] = [
        (|_, _, seen| drop(seen.nodes.remove(0)), &["/dev/nvidia0 is not in the container"]),
        (
            |_, _, seen| seen.nodes[1].closed = Some("Operation not permitted".into()),
            &["/dev/nvidia1 does not open: Operation not permitted"],
        ),
        (
            |_, numbers, _| numbers.retain(|path, _| path != Path::new("/dev/nvidia1")),
            &["/dev/nvidia1 is gone from the worker"],
        ),
        (
            |_, numbers, _| numbers.extend([("/dev/nvidia1".into(), (195, 4))]),
            &["/dev/nvidia1 is 195:1 in the container and 195:4 on the worker"],
        ),
        (
            |_, _, seen| seen.nodes[2].path = "/dev/nvidia7".into(),
            &["/dev/nvidiactl is not in the container", "it has /dev/nvidia7, which it was not given"],
        ),
        (
            |given, _, seen| {
                given.units.pop();
                seen.nodes.remove(1);
                seen.env.insert("NVIDIA_VISIBLE_DEVICES".into(), "GPU-a".into());
                seen.cuda = Cuda::Devices(1);
            },
            &["it was given 1 GPUs instead of 2"],
        ),
        (
            |_, _, seen| drop(seen.env.insert("NVIDIA_VISIBLE_DEVICES".into(), "all".into())),
            &["its NVIDIA_VISIBLE_DEVICES is \"all\" instead of \"GPU-a,GPU-b\""],
        ),
        (|_, _, seen| seen.cuda = Cuda::Devices(1), &["CUDA sees 1 devices instead of 2"]),
        (|_, _, seen| seen.cuda = Cuda::Failed("cuInit says 999".into()), &["CUDA fails: cuInit says 999"]),
        (
            |_, _, seen| seen.cuda = Cuda::NoLibrary("no such file".into()),
            &["NVIDIA's libcuda.so.1 does not load: no such file"],
        ),
    ];
    for (change, reasons) in cases {
        let outcome = judged(change);
        assert_eq!(
            (outcome.verdict, outcome.reasons.as_slice()),
            (Verdict::Failed, &reasons.map_owned()[..])
        );
        assert!(outcome.told(Vendor::Nvidia).unwrap().is_err());
    }
}

trait MapOwned {
    fn map_owned(&self) -> Vec<String>;
}

impl MapOwned for &[&str] {
    fn map_owned(&self) -> Vec<String> {
        self.iter().map(|text| (*text).to_owned()).collect()
    }
}

#[test]
fn what_can_not_be_tested_is_said_and_no_failure() {
    let devices = Devices { vendors: BTreeMap::new(), ..devices() };
    let order = order(&asked("1", "nvidia-0"), Access::Shared, &devices).unwrap();
    let node = Node { path: "/dev/nvidia0".into(), number: (195, 0), closed: None };
    let seen = Seen {
        nodes: vec![node],
        env: [("NVIDIA_VISIBLE_DEVICES".to_owned(), "GPU-a".to_owned())].into(),
        cuda: Cuda::NoLibrary("no such file".into()),
    };
    let given = Equipment { units: vec!["GPU-a".into()], ..Equipment::default() };
    let numbers = [("/dev/nvidia0".into(), (195, 0))].into();
    let outcome =
        judge(&Trial { order: &order, devices: &devices, given: &given, numbers: &numbers, seen: &seen });
    assert_eq!((outcome.verdict, &outcome.cuda), (Verdict::Passed, &None), "{outcome:?}");
    assert_eq!(outcome.notes, ["CUDA was not tried: the device data has no driver libraries for containers"]);
}

#[test]
fn the_bundle_is_as_concourse_writes_one() {
    let real = include_str!("../../../tests/oci/bundles/task/config.json");
    let mut real: Value = serde_json::from_str(real).unwrap();
    let place = Place {
        id: "gpu-test-1",
        rootfs: Path::new("/r"),
        work: Path::new("/w"),
        init: Path::new("/opt/concourse/bin/init"),
        image: &[],
        last_user: last_user("         0          0 4294967295\n"),
        params: &[],
    };
    let mut ours = place.config();
    for config in [&mut real, &mut ours] {
        // Its own names and volumes, what the image says, and what containerd adds.
        for name in ["ociVersion", "hostname", "root"] {
            config[name] = Value::Null;
        }
        config["process"]["env"] = Value::Null;
        config["linux"]["cgroupsPath"] = Value::Null;
        config["linux"].as_object_mut().unwrap().remove("seccomp");
        let own = |mount: &Value| mount["type"] != "bind" || mount["destination"] == "/tmp/gdn-init";
        config["mounts"].as_array_mut().unwrap().retain(own);
    }
    assert_eq!(ours, real);
    assert!(crate::oci::request::is_task([super::bundle::WORK]));
    assert_eq!(last_user("0 1000000 65536\n"), 65_535);
}
