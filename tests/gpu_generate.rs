//! What is generated here, beside what NVIDIA's generator says of the same machine; exports beside their documentation.

#![allow(missing_docs)]

#[path = "gpu/machine.rs"]
mod machine;

use concourse_ci_machine::cdi::tree::Trees;
use concourse_ci_machine::gpu::decide::{Decision, decide};
use concourse_ci_machine::gpu::export::{Format, export};
use concourse_ci_machine::gpu::inventory::Inventory;
use concourse_ci_machine::gpu::ladder::Ladder;
use concourse_ci_machine::gpu::said::{Answer, Said, SaidGpu, SaidPart};
use concourse_ci_machine::gpu::select::select;
use concourse_ci_machine::oci::devices::{Devices, Edits, Vendor};
use concourse_ci_machine::oci::hook::plan::Plan;
use insta::assert_snapshot;
use machine::Machine;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fs;

fn decided(name: &str) -> Decision {
    let machine = Machine::load(name);
    decide(&machine.facts(), &machine.answer, &machine.wanted, None)
}

fn nodes(edits: &Edits) -> BTreeSet<String> {
    edits.nodes.iter().map(|n| format!("{n:?}")).collect()
}

fn mounts(edits: &Edits) -> BTreeSet<String> {
    let mount = |m: &concourse_ci_machine::oci::devices::Mount| {
        let options: BTreeSet<&String> = m.options.iter().collect();
        format!("{} {} {options:?}", m.host.display(), m.path.display())
    };
    edits.mounts.iter().map(mount).collect()
}

fn work(edits: &Edits) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for hook in &edits.hooks {
        let args = hook.args[2..].iter().filter(|a| !a.starts_with("--") || a.contains('='));
        found.insert(hook.args[1].clone());
        found.extend(args.map(|a| format!("{} {a}", hook.args[1])));
    }
    found
}

#[test]
fn as_nvidias_generator() {
    let (theirs, ours) = (decided("nvidia-8").devices, decided("nvidia-8-without-spec").devices);
    let driver = |devices: &Devices| devices.vendors[&Vendor::Nvidia].edits.clone();
    let (their, our) = (driver(&theirs), driver(&ours));
    assert_eq!(nodes(&our), nodes(&their));
    let more: Vec<_> = mounts(&our).difference(&mounts(&their)).cloned().collect();
    let less: Vec<_> = mounts(&their).difference(&mounts(&our)).cloned().collect();
    assert_eq!((more, less), (vec![], vec![]));
    let less: Vec<_> = work(&their).difference(&work(&our)).cloned().collect();
    let more: Vec<_> = work(&our).difference(&work(&their)).cloned().collect();
    assert_eq!((more, less), (vec![], vec![]));
    assert_eq!(ours.units.len(), theirs.units.len());
    for (our, their) in ours.units.iter().zip(&theirs.units) {
        assert_eq!((&our.id, &our.edits.gids), (&their.id, &their.edits.gids));
        assert_eq!(nodes(&our.edits), nodes(&their.edits));
        assert_eq!(our.names[0], their.names[0], "the index");
        assert_eq!((&our.model, our.memory_mib), (&their.model, their.memory_mib));
    }
}

#[test]
fn a_tree_of_what_was_found() {
    let machine = Machine::load("nvidia-8-without-spec");
    let mut devices = decide(&machine.facts(), &machine.answer, &machine.wanted, None).devices;
    for mount in &mut devices.vendors.get_mut(&Vendor::Nvidia).unwrap().edits.mounts {
        mount.host = machine.dir.path().join(mount.host.strip_prefix("/").unwrap());
    }
    let trees = machine.dir.path().join("trees");
    let made = Trees::new(&trees, "/opt/gpu/runc").equip(&devices).unwrap();
    let edits = &made.vendors[&Vendor::Nvidia].edits;
    let hooks: Vec<_> = edits.hooks.iter().map(|h| h.args[1].as_str()).collect();
    assert_eq!(hooks, ["gpu-hook"], "nothing of NVIDIA's is needed");
    let outside: Vec<_> = edits.mounts[1..].iter().map(|m| m.path.display().to_string()).collect();
    assert_eq!(outside, ["/run/nvidia-fabricmanager/socket", "/run/nvidia-persistenced/socket"]);
    let tree = edits.mounts[0].host.parent().unwrap();
    let plan: Plan = serde_json::from_slice(&fs::read(tree.join("plan.json")).unwrap()).unwrap();
    let link = |path: &str| plan.links.iter().find(|l| l.path.ends_with(path)).map(|l| l.target.as_str());
    assert_eq!(link("libcuda.so"), Some("/usr/lib/concourse-gpu/usr/lib/x86_64-linux-gnu/libcuda.so"));
    let gbm = "gbm/nvidia-drm_gbm.so";
    assert!(link(gbm).unwrap().ends_with(gbm), "through the tree");
    assert_eq!(plan.compat.unwrap().driver.as_deref(), Some("550.163.01"));
    assert!(plan.profile);
}

fn exported(format: Format, name: &str) -> String {
    let decision = decided(name);
    export(format, "gpu-1", &decision.devices, &decision.report.inventory)
}

/// gres.conf(5): `NodeName` first, `Name`, `Type`, `File` or for MIG `MultipleFiles`; types as AutoDetect=nvml writes
/// them, `nvidia_a100-sxm4-40gb`. slurm.conf(5): `GresTypes`, and `Gres=name:type:count` of the node.
#[test]
fn slurm() {
    assert_snapshot!(exported(Format::Slurm, "nvidia-8-chosen"), @"
    # gres.conf
    NodeName=gpu-1 Name=gpu Type=nvidia_a100-sxm4-40gb File=/dev/nvidia1
    NodeName=gpu-1 Name=gpu Type=nvidia_a100-sxm4-40gb File=/dev/nvidia5
    # slurm.conf: add Gres to the line of the node
    GresTypes=gpu
    NodeName=gpu-1 Gres=gpu:nvidia_a100-sxm4-40gb:2
    ");
    assert_snapshot!(exported(Format::Slurm, "nvidia-mig-chosen"), @"
    # gres.conf
    NodeName=gpu-1 Name=gpu Type=nvidia_h200_1g.18gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap66,/dev/nvidia-caps/nvidia-cap67
    NodeName=gpu-1 Name=gpu Type=nvidia_h200_1g.18gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap75,/dev/nvidia-caps/nvidia-cap76
    # slurm.conf: add Gres to the line of the node
    GresTypes=gpu
    NodeName=gpu-1 Gres=gpu:nvidia_h200_1g.18gb:2
    ");
    assert_snapshot!(exported(Format::Slurm, "two-vendors"), @"
    # gres.conf
    NodeName=gpu-1 Name=gpu Type=nvidia_h200 File=/dev/nvidia0
    NodeName=gpu-1 Name=gpu Type=amd_radeon_rx_7900_xtx File=/dev/dri/renderD129
    # slurm.conf: add Gres to the line of the node
    GresTypes=gpu
    NodeName=gpu-1 Gres=gpu:nvidia_h200:1,gpu:amd_radeon_rx_7900_xtx:1
    ");
    // Commas, colons and parentheses separate words of a Gres.
    assert_snapshot!(exported(Format::Slurm, "amd-long-name"), @"
    # gres.conf
    NodeName=gpu-1 Name=gpu Type=amd_radeontm_pro_w7900_dual_slot_navi_31_gl-xl_workstation_engineering_sample File=/dev/dri/renderD128
    # slurm.conf: add Gres to the line of the node
    GresTypes=gpu
    NodeName=gpu-1 Gres=gpu:amd_radeontm_pro_w7900_dual_slot_navi_31_gl-xl_workstation_engineering_sample:1
    ");
    assert_snapshot!(exported(Format::Slurm, "none"), @"
    # gres.conf
    # slurm.conf: add Gres to the line of the node
    GresTypes=gpu
    NodeName=gpu-1
    ");
}

const MIG_1: &str = "MIG-1a1b2c3d-0000-5000-8000-000000000001";
const MIG_2: &str = "MIG-2a1b2c3d-0000-5000-8000-000000000002";

/// docs.docker.com/compose/how-tos/gpu-support: `capabilities` is a must, `device_ids` excludes `count`.
#[test]
fn docker_compose() {
    for name in ["nvidia-8-chosen", "two-vendors", "intel-arc", "none"] {
        let text = exported(Format::DockerCompose, name);
        let parsed: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
        assert!(parsed["services"].as_mapping().is_some_and(|m| m.contains_key("gpu")), "{name}");
    }
    assert_snapshot!(exported(Format::DockerCompose, "two-vendors"), @r#"
    # compose.yaml: a service with this machine's GPUs
    services:
      gpu:
        deploy:
          resources:
            reservations:
              devices:
                - driver: nvidia
                  device_ids:
                    - "GPU-6b3f2a0e-0d6c-7c1e-8c55-1f2d3a4b5c6d"
                  capabilities: [gpu]
        devices:
          - /dev/kfd:/dev/kfd
          - /dev/dri/renderD129:/dev/dri/renderD129
        group_add:
          - "992"
    "#);
    // Docker knows neither a Jetson's GPU nor Windows' by a name of their own.
    for (name, id) in [("jetson-with-spec", "nvidia-tegra"), ("wsl", "nvidia-wsl")] {
        let mut decision = decided(name);
        decision.devices.units[0].id = id.to_owned();
        let text = export(Format::DockerCompose, "gpu-1", &decision.devices, &decision.report.inventory);
        assert!(text.contains("  count: all\n") && !text.contains("device_ids"), "{name}: {text}");
    }
    for (name, ids) in [("lxd-simulated", &["0", "1"][..]), ("nvidia-mig-chosen", &[MIG_1, MIG_2])] {
        let parsed: serde_yaml::Value = serde_yaml::from_str(&exported(Format::DockerCompose, name)).unwrap();
        let device = &parsed["services"]["gpu"]["deploy"]["resources"]["reservations"]["devices"][0];
        let found: Vec<&str> =
            device["device_ids"].as_sequence().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
        assert_eq!(found, ids, "{name}");
        assert!(device["count"].is_null(), "{name}");
    }
    assert_snapshot!(exported(Format::DockerCompose, "none"), @"
    # compose.yaml: a service with this machine's GPUs
    services:
      gpu:
        # this machine has no GPU that works
    ");
}

/// Names of NVIDIA's GPU feature discovery (its README), AMD's node labeller and Intel's rules for node feature
/// discovery.
#[test]
fn kubernetes() {
    assert_snapshot!(exported(Format::Kubernetes, "nvidia-8"), @"
    # kubectl label --overwrite node gpu-1 …
    nvidia.com/cuda.driver.major=550
    nvidia.com/cuda.driver.minor=163
    nvidia.com/cuda.driver.rev=01
    nvidia.com/cuda.runtime.major=12
    nvidia.com/cuda.runtime.minor=4
    nvidia.com/gpu.compute.major=8
    nvidia.com/gpu.compute.minor=0
    nvidia.com/gpu.count=8
    nvidia.com/gpu.family=ampere
    nvidia.com/gpu.memory=40960
    nvidia.com/gpu.product=NVIDIA-A100-SXM4-40GB
    ");
    assert_snapshot!(exported(Format::Kubernetes, "nvidia-mig"), @"
    # kubectl label --overwrite node gpu-1 …
    nvidia.com/cuda.driver.major=580
    nvidia.com/cuda.driver.minor=65
    nvidia.com/cuda.driver.rev=06
    nvidia.com/cuda.runtime.major=13
    nvidia.com/cuda.runtime.minor=0
    nvidia.com/gpu.compute.major=9
    nvidia.com/gpu.compute.minor=0
    nvidia.com/gpu.count=0
    nvidia.com/gpu.family=hopper
    nvidia.com/gpu.product=NVIDIA-H200
    nvidia.com/mig-1g.18gb.count=2
    nvidia.com/mig-1g.18gb.memory=18000
    nvidia.com/mig-3g.71gb.count=1
    nvidia.com/mig-3g.71gb.memory=72448
    nvidia.com/mig.strategy=mixed
    ");
    assert_snapshot!(exported(Format::Kubernetes, "amd-mi300-cpx"), @"
    # kubectl label --overwrite node gpu-1 …
    amd.com/gpu.device-id=74a1
    amd.com/gpu.product-name=AMD_Instinct_MI300X
    amd.com/gpu.vram=24G
    beta.amd.com/gpu.device-id.74a1=8
    beta.amd.com/gpu.product-name.AMD_Instinct_MI300X=8
    beta.amd.com/gpu.vram.24G=8
    ");
    assert_snapshot!(exported(Format::Kubernetes, "intel-arc"), @"
    # kubectl label --overwrite node gpu-1 …
    gpu.intel.com/device-id.0300-4680.count=1
    gpu.intel.com/device-id.0300-4680.present=true
    gpu.intel.com/device-id.0300-56a0.count=1
    gpu.intel.com/device-id.0300-56a0.present=true
    ");
    let media = exported(Format::Kubernetes, "nvidia-mig-media");
    assert!(media.contains("nvidia.com/mig-1g.18gb.me.count=1\n"), "{media}");
    assert_snapshot!(exported(Format::Kubernetes, "amd-long-name"), @"
    # kubectl label --overwrite node gpu-1 …
    amd.com/gpu.device-id=744c
    amd.com/gpu.product-name=AMD_RadeonTM_PRO_W7900__Dual_Slot__Navi_31_GL-XL__Workstation
    amd.com/gpu.vram=24G
    beta.amd.com/gpu.device-id.744c=1
    beta.amd.com/gpu.product-name.AMD_RadeonTM_PRO_W7900__Dual_Slot__Navi_31_GL=1
    beta.amd.com/gpu.vram.24G=1
    ");
    // What the API server takes.
    for name in machine::trees() {
        for line in exported(Format::Kubernetes, &name).lines().filter(|l| !l.starts_with('#')) {
            let (label, value) = line.split_once('=').unwrap();
            let ends = |t: &str| !t.starts_with(['-', '_', '.']) && !t.ends_with(['-', '_', '.']);
            let fits =
                |t: &str| t.len() <= 63 && t.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
            let (prefix, word) = label.split_once('/').unwrap();
            assert!(fits(word) && ends(word) && !word.is_empty() && prefix.ends_with(".com"), "{line}");
            assert!(fits(value) && ends(value), "{line}");
        }
    }
}

#[test]
fn ids_of_all_kinds() {
    let chosen = |name: &str, ids: &[&str]| {
        let all = decided(name);
        let ids: Vec<String> = ids.iter().map(|i| i.to_string()).collect();
        select(Some(&ids), &all.devices, &all.report.inventory).map(|s| s.units)
    };
    let uuid = "GPU-6a3a57ae-dedd-5284-8af0-d30874bd1c82";
    for id in ["1", uuid, &uuid.to_lowercase(), "nvidia-1"] {
        assert_eq!(chosen("nvidia-8", &[id]), Ok(vec![uuid.to_owned()]), "{id}");
    }
    assert_eq!(chosen("nvidia-8", &["1", uuid]).unwrap().len(), 1, "twice is once");
    assert_eq!(chosen("nvidia-mig", &["0:1"]).unwrap(), ["MIG-1a1b2c3d-0000-5000-8000-000000000001"]);
    assert_eq!(chosen("two-vendors", &["amd-0"]).unwrap(), ["GPU-8000000000000001"]);
    assert_eq!(chosen("intel-arc", &["intel-0000:03:00.0"]).unwrap(), ["intel-0000:03:00.0"]);
    for id in ["8", "0:0", "GPU-1", "amd-0"] {
        let why = chosen("nvidia-8", &[id]).unwrap_err();
        assert!(why.contains("this machine has 0, 1, 2, 3, 4, 5, 6, 7"), "{why}");
    }
    let lost = decided("nvidia-8-lost");
    let id = ["GPU-5950dd5d-5330-5738-9460-0d05550ffc14".to_owned()];
    let selection = select(Some(&id), &lost.devices, &lost.report.inventory).unwrap();
    assert_eq!(selection.missing, [format!("GPU {} can't be used: it has fallen off the bus", id[0])]);
}

#[test]
fn what_a_container_told() {
    let ladder = |name: &str| decided(name).report.ladders.remove(0);
    let last = |ladder: &Ladder| format!("{:?}", ladder.rungs.last().unwrap().state);
    assert!(last(&ladder("nvidia-1").told(Ok("/dev/nvidia0".into()))).contains("/dev/nvidia0"));
    let failed = ladder("nvidia-1").told(Err("cuInit: 802".into()));
    assert_eq!(failed.missing().unwrap().1.message, "A container did not see the GPU: cuInit: 802");
    let gap = ladder("nvidia-no-driver").told(Ok("a lie".into()));
    assert_eq!(last(&gap), "NotReached", "nothing stands on a rung that is missing");
}

#[test]
fn nothing_is_exported_of_nothing() {
    let devices = Devices { format: 1, vendors: Default::default(), units: vec![] };
    for format in [Format::Slurm, Format::DockerCompose, Format::Kubernetes] {
        assert!(!export(format, "host", &devices, &Inventory::default()).is_empty());
    }
}

/// Files of a tree that the scan reads.
fn files(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files(&entry.path()));
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever stands in files of sysfs, proc and CDI: an answer, and no panic.
    #[test]
    fn any_text_in_any_file(
        name in prop::sample::select(vec!["two-vendors", "intel-arc", "nvidia-mig", "lxd-simulated", "amd-mi300-cpx", "wsl"]),
        texts in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![
            any::<String>(),
            "[0-9a-fx.:,=\\-\n\t ]{0,40}",
            "(Model|GPU UUID|Device Minor|DeviceFileMinor|gfx_target_version|location_id|unique_id|simd_count|drm_render_minor|domain)[: ]{1,2}[-0-9xG?]{0,24}\n",
        ]), 1..6),
    ) {
        let machine = Machine::load(name);
        let all = files(machine.dir.path());
        for (at, text) in &texts {
            fs::write(at.get(&all), text).unwrap();
        }
        let decision = decide(&machine.facts(), &machine.answer, &machine.wanted, None);
        prop_assert!(decision.report.tags.iter().all(|t| !t.contains(char::is_whitespace)));
        for format in [Format::Slurm, Format::DockerCompose, Format::Kubernetes] {
            export(format, "host", &decision.devices, &decision.report.inventory);
        }
        concourse_ci_machine::gpu::summary::text(&decision.devices, &decision.report.inventory);
    }

    /// Whatever NVML says: GPUs that are on no bus, names of one letter, parts of parts.
    #[test]
    fn any_answer(
        gpus in prop::collection::vec((0u32..3, "[a-zGPU\\-0-9 ]{0,12}", prop::option::of(0u32..3), any::<bool>(),
            prop::option::of("[0-9a-f:.]{0,12}|0000:1b:00.0"), prop::option::of(any::<u64>())), 0..4),
        model in prop::option::of(".{0,20}"), capability in prop::option::of("[0-9.]{0,6}"),
    ) {
        let machine = Machine::load("nvidia-mig");
        let gpu = |(index, uuid, minor, mig, address, memory): &(u32, String, Option<u32>, bool, Option<String>, Option<u64>)| SaidGpu {
            index: *index,
            uuid: uuid.clone(),
            minor: *minor,
            address: address.clone(),
            mig: *mig,
            model: model.clone(),
            capability: capability.clone(),
            memory_mib: *memory,
            parts: vec![SaidPart { uuid: uuid.clone(), profile: model.clone(), memory_mib: *memory, ..SaidPart::default() }],
            ..SaidGpu::default()
        };
        let said = Said { gpus: gpus.iter().map(gpu).collect(), driver: capability.clone(), cuda: model.clone(), ..Said::default() };
        let text = serde_json::to_string(&Answer::Said(said)).unwrap();
        let decision = decide(&machine.facts(), &serde_json::from_str(&text).unwrap(), &machine.wanted, None);
        prop_assert!(decision.report.tags.iter().all(|t| !t.contains(char::is_whitespace)));
        for format in [Format::Slurm, Format::DockerCompose, Format::Kubernetes] {
            export(format, "host", &decision.devices, &decision.report.inventory);
        }
    }
}
