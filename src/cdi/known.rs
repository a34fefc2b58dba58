//! Hooks of NVIDIA's specs whose work is known, so that one hook of ours does it (PURE).

use crate::oci::devices::{Edits, Hook, Mount, Unit, Vendor};
use crate::oci::hook::plan::{Compat, Link};
use std::path::PathBuf;

/// The work of known hooks, and of mounts that a driver tree replaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Files that go into the tree.
    pub files: Vec<Mount>,
    /// See [`crate::oci::hook::plan::Plan::links`]; without those to `files`.
    pub links: Vec<Link>,
    /// See [`crate::oci::hook::plan::Plan::folders`].
    pub folders: Vec<PathBuf>,
    /// See [`crate::oci::hook::plan::Plan::compat`].
    pub compat: Option<Compat>,
    /// Whether `/proc/driver/nvidia/params` forbids to make nodes.
    pub params: bool,
    /// See [`crate::oci::hook::plan::Plan::profile`].
    pub profile: bool,
    /// `--link` and `--mode` for nodes of units.
    pub args: Vec<String>,
}

/// What is left of the edits when the work is taken out of them. `is_file`: whether a path is a regular file.
pub fn take(
    driver: &mut Edits,
    units: &mut [Unit],
    vendor: Vendor,
    is_file: &dyn Fn(&Mount) -> bool,
) -> Result<Work, String> {
    let mut work = Work::default();
    // Sockets and directories live; what may be written must be the original.
    let fits = |m: &Mount| m.options.iter().any(|o| o == "ro") && !m.options.iter().any(|o| o == "noexec");
    for mount in std::mem::take(&mut driver.mounts) {
        let to = if fits(&mount) && is_file(&mount) { &mut work.files } else { &mut driver.mounts };
        // The later of two mounts at one place is the one that shows.
        to.retain(|m: &Mount| m.path != mount.path);
        to.push(mount);
    }
    for hook in std::mem::take(&mut driver.hooks) {
        match known(&hook) {
            Some(Known::Links(links)) => work.links.extend(links),
            Some(Known::Cache(folders)) => work.folders.extend(folders),
            Some(Known::Compat(compat)) => work.compat = Some(compat),
            Some(Known::Params) => work.params = true,
            Some(Known::Profile) => work.profile = true,
            Some(Known::Mode(mode)) => work.args.extend(mode),
            None => driver.hooks.push(hook),
        }
    }
    for unit in units.iter_mut().filter(|u| u.vendor == vendor) {
        for hook in std::mem::take(&mut unit.edits.hooks) {
            match known(&hook) {
                Some(Known::Links(links)) => {
                    let arg = |l: Link| ["--link".into(), format!("{}::{}", l.target, l.path.display())];
                    work.args.extend(links.into_iter().flat_map(arg));
                }
                Some(Known::Mode(mode)) => work.args.extend(mode),
                // Files of a unit alone, not of its driver: nothing that NVIDIA's specs have.
                _ => unit.edits.hooks.push(hook),
            }
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    let pairs: Vec<[String; 2]> = work.args.chunks_exact(2).map(|p| [p[0].clone(), p[1].clone()]).collect();
    work.args = pairs.into_iter().filter(|p| seen.insert(p.clone())).flatten().collect();
    work.folders.dedup();
    Ok(work)
}

enum Known {
    Links(Vec<Link>),
    Cache(Vec<PathBuf>),
    Compat(Compat),
    Params,
    Profile,
    Mode(Vec<String>),
}

/// `None`: not one of NVIDIA's, or with an option that nobody here knows: it runs as the spec says.
fn known(hook: &Hook) -> Option<Known> {
    let program = hook.path.file_name()?.to_str()?;
    let args: Vec<&str> = hook.args.iter().skip(1).map(String::as_str).collect();
    let (name, options) = match (program, args.as_slice()) {
        ("nvidia-cdi-hook", [name, options @ ..]) | ("nvidia-ctk", ["hook", name, options @ ..]) => {
            (*name, options)
        }
        _ => return None,
    };
    if hook.stage != "createContainer" {
        return None;
    }
    let options = pairs(options)?;
    let all = |wanted: &[&str]| options.iter().all(|(name, _)| wanted.contains(name));
    let values = |wanted: &'static str| options.iter().filter(move |(n, _)| *n == wanted).map(|(_, v)| *v);
    let last = |wanted| values(wanted).next_back().filter(|v| !v.is_empty()).map(str::to_owned);
    match name {
        "create-symlinks" if all(&["link"]) => {
            values("link").map(|l| l.parse().ok()).collect::<Option<_>>().map(Known::Links)
        }
        // Which ldconfig would do it doesn't matter: none is run.
        "update-ldcache" if all(&["folder", "ldconfig-path"]) => {
            Some(Known::Cache(values("folder").map(PathBuf::from).filter(|f| f.is_absolute()).collect()))
        }
        "enable-cuda-compat"
            if all(&["host-driver-version", "host-cuda-version", "cuda-compat-container-root"]) =>
        {
            Some(Known::Compat(Compat {
                driver: last("host-driver-version"),
                cuda: last("host-cuda-version"),
                folder: last("cuda-compat-container-root").unwrap_or("/usr/local/cuda/compat".into()).into(),
            }))
        }
        "disable-device-node-modification" if options.is_empty() => Some(Known::Params),
        "update-application-profile" if options.is_empty() => Some(Known::Profile),
        "chmod" if all(&["mode", "path"]) => {
            let mode = last("mode").filter(|m| u32::from_str_radix(m, 8).is_ok())?;
            Some(Known::Mode(values("path").flat_map(|p| ["--mode".into(), format!("{mode}:{p}")]).collect()))
        }
        _ => None,
    }
}

/// `--name value` and `--name=value`.
fn pairs<'a>(mut args: &[&'a str]) -> Option<Vec<(&'a str, &'a str)>> {
    let mut found = vec![];
    while let [first, rest @ ..] = args {
        let name = first.strip_prefix("--")?;
        match (name.split_once('='), rest) {
            (Some(pair), _) => (found.push(pair), args = rest).1,
            (None, [value, rest @ ..]) => (found.push((name, *value)), args = rest).1,
            (None, []) => return None,
        }
    }
    Some(found)
}

/// What a container sees of the driver's parameters: it makes no nodes. `None`: they say so already, or nothing.
pub fn params(text: &str) -> Option<String> {
    let (from, to) = ("ModifyDeviceFiles: 1\n", "ModifyDeviceFiles: 0\n");
    let text = format!("{}\n", text.trim_end_matches('\n'));
    text.starts_with(from).then(|| text.replacen(from, to, 1)).or_else(|| {
        let (from, to) = (format!("\n{from}"), format!("\n{to}"));
        text.contains(&from).then(|| text.replacen(&from, &to, 1))
    })
}
