//! Asks NVML. Only in a child process ([`super::ask`]): a hung driver hangs everyone who calls it.

use super::said::{Answer, Reason, Said, SaidGpu, SaidPart, SaidProcess};
use nvml_wrapper::enum_wrappers::device::{Brand, EccCounter, MemoryError};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// NVLinks that a GPU has at most (`NVML_NVLINK_MAX_LINKS`).
const LINKS: u32 = 18;

/// Where the library is: for the loader to find, and where WSL has it.
const LIBRARIES: [&str; 2] = ["libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"];

/// What is to be done about the persistence mode before anything is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Persistence {
    /// It is to be on, for all.
    pub on: bool,
    /// GPUs for which it is to be off again.
    pub release: Vec<String>,
}

/// Opens the nodes, then asks the library. May hang for as long as the driver does.
pub fn ask(library: Option<&OsStr>, nodes: &[PathBuf], persistence: &Persistence) -> Answer {
    let closed = nodes.iter().filter_map(|path| {
        let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
        opened.err().map(|why| (path.clone(), super::said_by(&why)))
    });
    let closed = closed.collect();
    let tried: Vec<&OsStr> = match library {
        Some(library) => vec![library],
        None => LIBRARIES.iter().map(OsStr::new).collect(),
    };
    let mut failed = None;
    for library in tried {
        match Nvml::builder().lib_path(library).init() {
            Ok(nvml) => {
                return said(&nvml, persistence)
                    .map_or_else(failure, |said| Answer::Said(Said { closed, ..said }));
            }
            Err(why) => {
                // The first that is there has the word.
                let loaded = !matches!(why, NvmlError::LibloadingError(_));
                if loaded || failed.is_none() {
                    failed = Some(why);
                }
                if loaded {
                    break;
                }
            }
        }
    }
    failed.map_or(Answer::NotAsked, failure)
}

fn failure(why: NvmlError) -> Answer {
    let reason = match why {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => Reason::NoLibrary,
        NvmlError::DriverNotLoaded => Reason::NoDriver,
        NvmlError::LibRmVersionMismatch => Reason::Mismatch,
        NvmlError::NoPermission => Reason::NoPermission,
        NvmlError::GpuLost | NvmlError::ResetRequired => Reason::Lost,
        _ => Reason::Other,
    };
    Answer::Failed { reason, text: why.to_string() }
}

fn said(nvml: &Nvml, persistence: &Persistence) -> Result<Said, NvmlError> {
    let cuda = nvml.sys_cuda_driver_version().ok();
    let cuda = cuda.map(|v| format!("{}.{}", cuda_driver_version_major(v), cuda_driver_version_minor(v)));
    let mut said = Said { driver: nvml.sys_driver_version().ok(), cuda, ..Said::default() };
    for index in 0..nvml.device_count()? {
        let device = nvml.device_by_index(index).and_then(|mut device| {
            persist(&mut device, persistence, &mut said)?;
            gpu(nvml, index, &device)
        });
        match device {
            Ok(gpu) => said.gpus.push(gpu),
            Err(why) => _ = said.silent.insert(index.to_string(), why.to_string()),
        }
    }
    Ok(said)
}

fn persist(device: &mut Device, wanted: &Persistence, said: &mut Said) -> Result<(), NvmlError> {
    let id = device.uuid()?;
    // Where it can't be told, as on WSL, it can't be changed.
    let Ok(is_on) = device.is_in_persistent_mode() else { return Ok(()) };
    if wanted.on && !is_on {
        match device.set_persistent(true) {
            Ok(()) => said.persisted.push(id),
            Err(NvmlError::NotSupported) => {}
            Err(why) => _ = said.refused.insert(id, why.to_string()),
        }
    } else if is_on && wanted.release.contains(&id) {
        // One that can't be switched off is no worse than before.
        let _off = device.set_persistent(false);
    }
    Ok(())
}

fn gpu(nvml: &Nvml, index: u32, device: &Device) -> Result<SaidGpu, NvmlError> {
    let errors = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
    let capability = device.cuda_compute_capability().ok();
    let memory = device.memory_info().ok();
    let mig = device.mig_mode().ok().is_some_and(|mode| mode.current == 1);
    Ok(SaidGpu {
        index,
        uuid: device.uuid()?,
        minor: device.minor_number().ok(),
        address: device.pci_info().ok().map(|pci| address(&pci.bus_id)),
        model: device.name().ok(),
        brand: device.brand().ok().and_then(brand).map(str::to_owned),
        memory_mib: memory.as_ref().map(|m| m.total >> 20),
        used_mib: memory.map(|m| m.used >> 20),
        processes: device.running_compute_processes().unwrap_or_default().iter().map(process).collect(),
        graphics: device.running_graphics_processes().unwrap_or_default().iter().map(process).collect(),
        links: links(device),
        capability: capability.map(|c| format!("{}.{}", c.major, c.minor)),
        numa: device.numa_node_id().ok(),
        persistence: device.is_in_persistent_mode().ok(),
        uncorrected: errors.ok(),
        retiring: device.are_pages_pending_retired().unwrap_or(false),
        remap_failed: remap_failed(nvml, device),
        mig,
        parts: if mig { parts(nvml, device) } else { vec![] },
    })
}

fn process(process: &ProcessInfo) -> SaidProcess {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", process.pid)).ok();
    SaidProcess {
        pid: process.pid,
        name: name.map(|name| name.trim_end().to_owned()),
        gi: process.gpu_instance_id,
    }
}

/// Links that are up; the first that the library does not know is behind the last.
fn links(device: &Device) -> BTreeSet<String> {
    let active = |at: &u32| device.link_wrapper_for(*at).is_active().ok();
    let up = (0..LINKS).map_while(|at| active(&at).map(|on| (at, on))).filter(|(_, on)| *on);
    let ends = up.filter_map(|(at, _)| device.link_wrapper_for(at).remote_pci_info().ok());
    ends.map(|pci| address(&pci.bus_id)).collect()
}

/// NVML has eight digits of domain, sysfs four.
fn address(bus_id: &str) -> String {
    let lower = bus_id.to_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 => {
            format!("{}:{rest}", domain.strip_prefix("0000").unwrap_or(domain))
        }
        _ => lower,
    }
}

fn parts(nvml: &Nvml, device: &Device) -> Vec<SaidPart> {
    let count = device.mig_device_count().unwrap_or(0);
    // Slots, of which some are empty.
    let part = |index: u32| {
        let part = device.mig_device_by_index(index).ok()?;
        let (name, memory) = (part.name().ok(), part.memory_info().ok());
        Some(SaidPart {
            index,
            uuid: part.uuid().ok()?,
            profile: name.and_then(|n| Some(n.rsplit_once(" MIG ")?.1.to_owned())),
            memory_mib: memory.as_ref().map(|m| m.total >> 20),
            used_mib: memory.map(|m| m.used >> 20),
            gi: instance(nvml, &part, Kind::Gpu),
            ci: instance(nvml, &part, Kind::Compute),
        })
    };
    (0..count).filter_map(part).collect()
}

enum Kind {
    Gpu,
    Compute,
}

/// The crate has no name for these two.
#[allow(unsafe_code)]
fn instance(nvml: &Nvml, part: &Device, kind: Kind) -> Option<u32> {
    let mut id = 0;
    // SAFETY: the handle belongs to this library, which stays loaded, and the functions write one number.
    let code = unsafe {
        match kind {
            Kind::Gpu => nvml.lib().nvmlDeviceGetGpuInstanceId(part.handle(), &mut id),
            Kind::Compute => nvml.lib().nvmlDeviceGetComputeInstanceId(part.handle(), &mut id),
        }
    };
    (code == 0).then_some(id)
}

/// The crate has no name for this one.
#[allow(unsafe_code)]
fn remap_failed(nvml: &Nvml, device: &Device) -> bool {
    let (mut corrected, mut uncorrected, mut pending, mut failed) = (0, 0, 0, 0);
    // SAFETY: as in `instance`; four numbers are written.
    let code = unsafe {
        nvml.lib().nvmlDeviceGetRemappedRows(
            device.handle(),
            &mut corrected,
            &mut uncorrected,
            &mut pending,
            &mut failed,
        )
    };
    code == 0 && failed != 0
}

/// The words that NVIDIA's container tools have for brands.
fn brand(brand: Brand) -> Option<&'static str> {
    Some(match brand {
        Brand::Quadro => "quadro",
        Brand::Tesla => "tesla",
        Brand::NVS => "nvs",
        Brand::GRID => "grid",
        Brand::GeForce => "geforce",
        Brand::Titan => "titan",
        Brand::VApps => "nvidiavapps",
        Brand::VPC => "nvidiavpc",
        Brand::VCS => "nvidiavcs",
        Brand::VWS => "nvidiavws",
        Brand::CloudGaming => "nvidiacloudgaming",
        Brand::QuadroRTX => "quadrortx",
        Brand::NvidiaRTX => "nvidiartx",
        Brand::Nvidia => "nvidia",
        Brand::GeForceRTX => "geforcertx",
        Brand::TitanRTX => "titanrtx",
        _ => return None,
    })
}
