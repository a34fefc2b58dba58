//! What the hook does, in order.

use super::cache::Cache;
use super::compat;
use super::plan::{Library, Link, MOUNT, Plan};
use super::root::{Dir, Root};
use nix::sys::stat::{SFlag, minor};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Everything. Done twice, it is done once.
pub fn all(root: &Root, plan: &Plan, units: &[Link], modes: &[(u32, PathBuf)]) -> Result<(), String> {
    links(root, plan.links.iter().chain(units.iter().filter(|link| root.has(&target(link)))))?;
    for (mode, path) in modes {
        if let Some(dir) = root.dir(path)? {
            dir.set_mode(*mode)?;
        }
    }
    if !plan.folders.is_empty() {
        libraries(root, plan)?;
    }
    for path in &plan.binds {
        root.cover(path, &Path::new(MOUNT).join(path.strip_prefix("/").unwrap_or(path)))?;
    }
    if plan.profile {
        profile(root)?;
    }
    Ok(())
}

/// Where a link leads, seen from the container's root.
fn target(link: &Link) -> PathBuf {
    let mut path = link.path.parent().unwrap_or(Path::new("/")).to_path_buf();
    for part in Path::new(&link.target).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            other => path.push(other),
        }
    }
    path
}

fn links<'a>(root: &Root, links: impl Iterator<Item = &'a Link>) -> Result<(), String> {
    let mut dirs: HashMap<&Path, Dir> = HashMap::new();
    for link in links {
        let parent = link.path.parent().unwrap_or(Path::new("/"));
        let dir = match dirs.entry(parent) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(root.make_dir(parent)?),
        };
        let name = link.path.file_name().and_then(|n| n.to_str()).ok_or("a link without a name")?;
        dir.link(name, &link.target)?;
    }
    Ok(())
}

/// Lets programs of the image find the driver's libraries: now by the cache, after their own `ldconfig` by its
/// configuration. That names the tree, not the folders that NVIDIA's hook would name: naming `/usr/lib/…` there would
/// put the image's libraries in another order.
fn libraries(root: &Root, plan: &Plan) -> Result<(), String> {
    let etc = root.make_dir(Path::new("/etc"))?;
    let confd = root.make_dir(Path::new("/etc/ld.so.conf.d"))?;
    let mut first: Vec<Library> = vec![];
    if let Some(compat) = &plan.compat
        && let Some((folder, found)) = compat::choose(root, compat)?
    {
        write(
            root,
            &confd,
            "/etc/ld.so.conf.d/00-compat-concourse-gpu.conf",
            &format!("{}\n", folder.display()),
        )?;
        first = found;
    }
    let inside = |folder: &PathBuf| format!("{MOUNT}{}\n", folder.display());
    let folders: String = plan.folders.iter().map(inside).collect();
    write(root, &confd, "/etc/ld.so.conf.d/00-concourse-gpu.conf", &folders)?;
    if !root.has(Path::new("/etc/ld.so.conf")) {
        etc.write("ld.so.conf", b"include /etc/ld.so.conf.d/*.conf\n")?;
    }
    let path = Path::new("/etc/ld.so.cache");
    let old = root.read(path)?;
    let mut cache = old.as_deref().and_then(Cache::decode).unwrap_or_default();
    first.extend(plan.libraries.iter().cloned());
    cache.add(&first);
    let new = cache.encode();
    if old.as_deref() != Some(&new) {
        etc.write("ld.so.cache", &new)?;
    }
    musl(root, &etc, plan)
}

/// musl has no cache, but a list of directories. As NVIDIA's hook, Alpine stands for all that use musl.
fn musl(root: &Root, etc: &Dir, plan: &Plan) -> Result<(), String> {
    if !root.has(Path::new("/etc/alpine-release")) {
        return Ok(());
    }
    let name = format!("ld-musl-{}.path", std::env::consts::ARCH);
    let old = root.read(&Path::new("/etc").join(&name))?;
    // What musl takes without the file.
    let mut text = old.clone().unwrap_or_else(|| b"/lib:/usr/local/lib:/usr/lib".to_vec());
    for folder in &plan.folders {
        let folder = folder.display().to_string();
        if !text.split(|b| b": \n".contains(b)).any(|known| known == folder.as_bytes()) {
            if !text.ends_with(b"\n") {
                text.push(b'\n');
            }
            text.extend(format!("{folder}\n").bytes());
        }
    }
    if old.as_ref() == Some(&text) { Ok(()) } else { etc.write(&name, &text) }
}

fn write(root: &Root, dir: &Dir, path: &str, text: &str) -> Result<(), String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    // What is a link or a device there is replaced, not read.
    let is_file = dir.stat(name).is_some_and(|s| kind(s.st_mode) == SFlag::S_IFREG);
    if is_file && root.read(Path::new(path))?.as_deref() == Some(text.as_bytes()) {
        return Ok(());
    }
    dir.write(name, text.as_bytes())
}

fn kind(mode: u32) -> SFlag {
    SFlag::from_bits_truncate(mode) & SFlag::S_IFMT
}

/// NVIDIA's `update-application-profile`: EGL and Vulkan are told which GPUs they may see.
fn profile(root: &Root) -> Result<(), String> {
    let Some(dev) = root.dir(Path::new("/dev"))? else { return Ok(()) };
    let mut mask = 0u64;
    for entry in fs::read_dir(dev.as_seen()).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let number = name.strip_prefix("nvidia").unwrap_or_default();
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let stat = dev.stat(&name).filter(|s| kind(s.st_mode) == SFlag::S_IFCHR);
        if let Some(minor) = stat.map(|s| minor(s.st_rdev)).filter(|m| *m < 64) {
            mask |= 1 << minor;
        }
    }
    if mask == 0 {
        return Ok(());
    }
    let path = "/etc/nvidia/nvidia-application-profiles-rc.d";
    let text = format!(
        r#"{{"profiles":[{{"name":"_container_","settings":["EGLVisibleDGPUDevices",0x{mask:x}]}}],"rules":[{{"pattern":[],"profile":"_container_"}}]}}"#
    );
    write(root, &root.make_dir(Path::new(path))?, &format!("{path}/10-container.conf"), &text)
}
