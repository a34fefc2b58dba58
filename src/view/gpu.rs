//! What the options want of GPUs, and what was seen of them.

use super::roles::is_worker;
use crate::config::ComputeRuntime;
use crate::gpu::decide::Report;
use crate::gpu::wanted::{VENDORS, Wanted};
use crate::oci::devices::Vendor;
use crate::oci::policy::{Gpus, Leases};
use crate::parse::Tag;
use crate::paths;
use crate::step::{File, FileOwner};
use crate::world::World;

/// The units that look and tell, as they ship.
const UNITS: [(&str, &str); 5] = [
    (paths::GPU_SERVICE, include_str!("../../charm/units/concourse-gpu.service")),
    (paths::GPU_PATH, include_str!("../../charm/units/concourse-gpu.path")),
    (paths::GPU_FOLDERS, include_str!("../../charm/units/concourse-gpu-folders.path")),
    (paths::GPU_TIMER, include_str!("../../charm/units/concourse-gpu.timer")),
    (paths::GPU_TELL, include_str!("../../charm/units/concourse-gpu-tell.service")),
];

/// What the options want; `None`: no GPUs, or no worker here.
pub fn wanted(world: &World) -> Option<Wanted> {
    let config = world.config.as_ref()?;
    let vendors = match config.compute_runtime {
        ComputeRuntime::None => return None,
        ComputeRuntime::Auto if !config.enable_gpu => return None,
        ComputeRuntime::Auto => VENDORS.to_vec(),
        ComputeRuntime::Cuda => vec![Vendor::Nvidia],
        ComputeRuntime::Rocm => vec![Vendor::Amd],
        ComputeRuntime::Intel => vec![Vendor::Intel],
    };
    is_worker(world).then(|| Wanted {
        vendors,
        units: config.gpu_units.clone(),
        access: config.gpu_access,
        persistence: config.gpu_persistence,
    })
}

/// What was seen, of the options as they are.
pub fn report(world: &World) -> Option<&Report> {
    let wanted = wanted(world)?;
    world.machine.gpus.as_ref().filter(|report| report.wanted.as_ref() == Some(&wanted))
}

/// Tags of what tasks can have.
pub fn tags(world: &World) -> impl Iterator<Item = Tag> {
    let told = report(world).map(|report| report.tags.as_slice()).unwrap_or_default();
    // One that Concourse would not take as a word says less than none.
    told.iter().filter_map(|tag| Tag::whole(tag).ok())
}

/// The part of the runtime policy.
pub fn policy(world: &World) -> Option<Gpus> {
    let wanted = wanted(world)?;
    // The list has the selected ones only.
    let config = world.config.as_ref()?;
    let leases = Leases {
        dir: paths::GPU_RUN.into(),
        default_count: config.gpu_default_count,
        replicas: config.gpu_replicas,
        wait_s: config.gpu_lease_wait.duration().as_secs(),
        ..Leases::default()
    };
    Some(Gpus { access: wanted.access, units: None, devices: paths::GPU_DEVICES.into(), leases })
}

/// What a hook tells of GPUs by this world, if [`paths::GPU_TOLD`] does not say so yet: `concourse-gpu tell` lets another
/// one run when that is no longer true.
pub fn told(world: &World) -> Option<String> {
    wanted(world)?;
    report(world)
        .map(|report| report.telling())
        .filter(|telling| world.file(paths::GPU_TOLD) != Some(telling))
}

/// What the program that looks reads and is started by; `None`: it is not wanted.
pub fn files(world: &World) -> Option<Vec<File>> {
    let wanted = serde_json::to_string_pretty(&wanted(world)?).unwrap_or_default() + "\n";
    let file =
        |path: &str, text: String| File { path: path.into(), text, mode: 0o644, owner: FileOwner::Root };
    let mut files = vec![file(paths::GPU_WANTED, wanted)];
    files.extend(UNITS.map(|(path, text)| file(path, text.to_owned())));
    Some(files)
}
