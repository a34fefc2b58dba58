//! NVIDIA's files for programs, found by the names that NVIDIA's own generator looks for.

use super::Look;
use crate::gpu::facts::{DriverFiles, is_library};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Directories of libraries; distributions put NVIDIA's beside the others or into a directory of their own.
#[cfg(target_arch = "x86_64")]
const LIBRARIES: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
];
#[cfg(not(target_arch = "x86_64"))]
const LIBRARIES: [&str; 5] = [
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
];

const PROGRAMS: [&str; 7] = [
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
];

/// Settings of loaders for OpenCL, Vulkan, EGL and X, and data.
const SETTINGS: [&str; 15] = [
    "/etc/OpenCL/vendors/nvidia.icd",
    "/usr/share/vulkan/icd.d/nvidia_icd.json",
    "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json",
    "/usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
    "/etc/vulkan/icd.d/nvidia_icd.json",
    "/etc/vulkan/implicit_layer.d/nvidia_layers.json",
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "/usr/share/egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "/usr/share/egl/egl_external_platform.d/20_nvidia_xcb.json",
    "/usr/share/egl/egl_external_platform.d/20_nvidia_xlib.json",
    "/usr/share/nvidia/nvoptix.bin",
    "/usr/share/X11/xorg.conf.d/10-nvidia.conf",
    "/usr/share/X11/xorg.conf.d/nvidia-drm-outputclass.conf",
];

/// Services of the driver that containers talk to.
pub const SOCKETS: [&str; 2] = ["/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket"];

/// Libraries with a version of their own.
const OWN_VERSION: [&str; 6] = [
    "libnvidia-egl-gbm.so.",
    "libnvidia-egl-wayland.so.",
    "libnvidia-egl-wayland2.so.",
    "libnvidia-egl-xcb.so.",
    "libnvidia-egl-xlib.so.",
    "libnvidia-nvvm70.so.",
];

/// Where WSL has Windows' driver.
pub const WSL: &str = "/usr/lib/wsl/lib";

/// Looks for the files of the kernel module's version.
pub fn driver(look: &Look, version: Option<&str>) -> DriverFiles {
    let mut found = DriverFiles::default();
    for dir in LIBRARIES.iter().chain([&WSL]) {
        for name in look.names(dir) {
            let path = Path::new(dir).join(&name);
            for (prefix, to) in [("libnvidia-ml.so.", &mut found.nvml), ("libcuda.so.", &mut found.cuda)] {
                // libcuda.so.1 is a link to the file that has the version in its name; WSL has the former only.
                match name.strip_prefix(prefix) {
                    Some(version) if version.contains('.') || *dir == WSL => {
                        to.insert(path.clone(), version.to_owned());
                    }
                    _ => {}
                }
            }
        }
    }
    found.files = match version {
        Some(version) => files(look, &found.cuda, version),
        None => wsl(look),
    };
    found.links = links(look, &found.files);
    found
}

/// Links beside the libraries that lead to them: `libcuda.so.1`, `libcuda.so`.
fn links(look: &Look, files: &[PathBuf]) -> BTreeMap<PathBuf, String> {
    let mut dirs: Vec<&Path> = files.iter().filter(|f| is_library(f)).filter_map(|f| f.parent()).collect();
    dirs.dedup();
    let mut found = BTreeMap::new();
    for dir in dirs {
        let links: BTreeMap<String, String> = look
            .names(dir)
            .into_iter()
            .filter(|name| name.contains(".so"))
            .filter_map(|name| Some((name.clone(), look.link(dir.join(&name))?)))
            .collect();
        for (name, target) in &links {
            let mut at = target;
            // A chain has two: from libcuda.so to libcuda.so.1 to the file.
            for _ in 0..4 {
                at = links.get(at).unwrap_or(at);
            }
            if files.contains(&dir.join(at)) {
                found.insert(dir.join(name), target.clone());
            }
        }
    }
    found
}

fn files(look: &Look, cuda: &BTreeMap<PathBuf, String>, version: &str) -> Vec<PathBuf> {
    let mut files = vec![];
    let mut dirs: Vec<&Path> =
        cuda.iter().filter(|(_, v)| *v == version).filter_map(|(p, _)| p.parent()).collect();
    dirs.dedup();
    let suffix = format!(".so.{version}");
    for dir in dirs {
        let own =
            |name: &str| OWN_VERSION.iter().any(|p| name.strip_prefix(p).is_some_and(|v| v.contains('.')));
        let fits = |name: &String| name.ends_with(&suffix) || own(name);
        files.extend(look.names(dir).into_iter().filter(fits).map(|n| dir.join(n)));
        files.extend(
            look.names(dir.join("vdpau")).into_iter().filter(fits).map(|n| dir.join("vdpau").join(n)),
        );
        for module in [&format!("nvidia/xorg/libglxserver_nvidia.so.{version}"), "nvidia/xorg/nvidia_drv.so"]
        {
            files.extend(Some(dir.join(module)).filter(|p| look.exists(p)));
        }
    }
    files.extend(PROGRAMS.iter().map(|p| Path::new("/usr/bin").join(p)).filter(|p| look.exists(p)));
    files.extend(SETTINGS.iter().map(PathBuf::from).filter(|p| look.exists(p)));
    let firmware = PathBuf::from(format!("/lib/firmware/nvidia/{version}"));
    let blobs = look.names(&firmware).into_iter().filter(|n| n.starts_with("gsp") && n.ends_with(".bin"));
    files.extend(blobs.map(|n| firmware.join(n)));
    files.extend(SOCKETS.iter().map(PathBuf::from).filter(|p| look.exists(p)));
    files.sort();
    files.dedup();
    files
}

/// Windows' driver, and the store that its libraries load the rest from.
fn wsl(look: &Look) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = look.names(WSL).into_iter().map(|n| Path::new(WSL).join(n)).collect();
    files.extend(Some(PathBuf::from("/usr/lib/wsl/drivers")).filter(|p| look.exists(p)));
    files
}
