//! `/proc/driver/nvidia`: what NVIDIA's kernel module tells anyone. Visible in containers without any passthrough.

use super::Look;
use crate::gpu::facts::{Instance, NvidiaGpu, NvidiaModule};

const DIR: &str = "/proc/driver/nvidia";

pub fn module(look: &Look) -> NvidiaModule {
    let told = look.text(format!("{DIR}/version")).and_then(|text| version(&text));
    let gpus = look.names(format!("{DIR}/gpus")).into_iter();
    NvidiaModule {
        version: told.or_else(|| version(&look.text("/sys/module/nvidia/version")?)),
        gpus: gpus.filter_map(|at| Some((at.clone(), gpu(look, &at)?))).collect(),
        instances: instances(look),
    }
}

/// The first word of numbers and dots: the words before it differ between the open and the closed module.
fn version(text: &str) -> Option<String> {
    let is = |word: &&str| {
        word.contains('.') && word.split('.').all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
    };
    text.lines().next()?.split_whitespace().find(is).map(str::to_owned)
}

fn gpu(look: &Look, address: &str) -> Option<NvidiaGpu> {
    let text = look.text(format!("{DIR}/gpus/{address}/information"))?;
    let value = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
        line.map(|v| v.trim().to_owned()).filter(|v| !v.is_empty() && v != "Unknown")
    };
    Some(NvidiaGpu {
        model: value("Model"),
        uuid: value("GPU UUID").filter(|u| u.starts_with("GPU-") && !u.contains('?')),
        minor: value("Device Minor").and_then(|m| m.parse().ok()),
        excluded: value("GPU Excluded").as_deref() == Some("Yes"),
    })
}

/// `capabilities/gpu0/mig/gi1/ci0/access`, each with a `DeviceFileMinor`.
fn instances(look: &Look) -> Vec<Instance> {
    let numbered = |dir: &str, prefix: &str| -> Vec<u32> {
        let number = |n: &String| n.strip_prefix(prefix)?.parse().ok();
        let mut found: Vec<u32> = look.names(dir).iter().filter_map(number).collect();
        found.sort_unstable();
        found
    };
    let cap = |dir: &str| -> Option<u32> {
        let text = look.text(format!("{dir}/access"))?;
        text.lines().find_map(|l| l.strip_prefix("DeviceFileMinor:")?.trim().parse().ok())
    };
    let mut found = vec![];
    let all = format!("{DIR}/capabilities");
    for minor in numbered(&all, "gpu") {
        let mig = format!("{all}/gpu{minor}/mig");
        for gi in numbered(&mig, "gi") {
            let part = format!("{mig}/gi{gi}");
            for ci in numbered(&part, "ci") {
                if let (Some(first), Some(second)) = (cap(&part), cap(&format!("{part}/ci{ci}"))) {
                    found.push(Instance { minor, gi, ci, caps: [first, second] });
                }
            }
        }
    }
    found
}
