//! The hook that finishes a GPU container, in place of one process for each hook of NVIDIA's CDI spec.
//!
//! It runs as `createContainer`: the container's mounts are there, its root is not yet pivoted to, none of its programs
//! runs. The driver's files are one bind mount ([`plan::MOUNT`]); the hook makes links to them where
//! programs look, adds them to the image's `ld.so.cache` and does the small rest of the known hooks. The
//! image is not trusted: every path is resolved by [`root::Root`], and nothing of the image runs.

pub mod cache;
mod compat;
mod elf;
pub mod library;
pub mod plan;
mod root;
mod work;

use plan::{Link, Plan};
use root::Root;
use serde_json::Value;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What the hook was asked: `--tree DIR [--link TARGET::PATH]… [--mode MODE:PATH]…`.
#[derive(Debug, Default, PartialEq)]
struct Args {
    /// Directory of the driver tree.
    tree: PathBuf,
    /// Links of units; made if their target is in the container.
    links: Vec<Link>,
    /// Modes of directories; set if they are in the container.
    modes: Vec<(u32, PathBuf)>,
}

/// Runs the hook, and has its exit status. `args` are those after its name; the state of the container comes on stdin.
pub fn main(args: &[OsString]) -> u8 {
    match run(args) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("the GPU's driver could not be added to the container: {why}");
            1
        }
    }
}

fn run(args: &[OsString]) -> Result<(), String> {
    let args = parse(args)?;
    let path = args.tree.join("plan.json");
    let text = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let plan: Plan = serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    if plan.format != plan::FORMAT {
        return Err(format!(
            "{} has format {}, and this program reads {}",
            path.display(),
            plan.format,
            plan::FORMAT
        ));
    }
    let root = find_root(&args.tree)?;
    work::all(&root, &plan, &args.links, &args.modes)
}

fn parse(args: &[OsString]) -> Result<Args, String> {
    let mut parsed = Args::default();
    let mut args = args.iter();
    while let Some(name) = args.next() {
        let value = args.next().and_then(|v| v.to_str()).ok_or_else(|| format!("{name:?} has no value"))?;
        match name.to_str() {
            Some("--tree") => parsed.tree = value.into(),
            Some("--link") => parsed.links.push(value.parse()?),
            Some("--mode") => {
                let (mode, path) = value.split_once(':').ok_or_else(|| format!("--mode {value:?}"))?;
                let mode = u32::from_str_radix(mode, 8).map_err(|e| format!("--mode {value:?}: {e}"))?;
                parsed.modes.push((mode & 0o777, path.into()));
            }
            _ => return Err(format!("{name:?} is no option; there are --tree, --link and --mode")),
        }
    }
    if parsed.tree.is_absolute() { Ok(parsed) } else { Err("--tree DIR is missing".into()) }
}

/// The container's root: where the tree is mounted. runc starts hooks in it; other runtimes say it in the bundle.
fn find_root(tree: &Path) -> Result<Root, String> {
    let is_it =
        |path: &Path| Root::open(path).ok().filter(|root| root.holds(plan::MOUNT, &tree.join("root")));
    if let Some(root) = is_it(Path::new(".")) {
        return Ok(root);
    }
    let mut state = String::new();
    std::io::stdin()
        .take(1 << 20)
        .read_to_string(&mut state)
        .map_err(|e| format!("the container's state: {e}"))?;
    let state: Value = serde_json::from_str(&state).map_err(|e| format!("the container's state: {e}"))?;
    let bundle = PathBuf::from(state["bundle"].as_str().ok_or("the container's state names no bundle")?);
    let path = bundle.join("config.json");
    let text = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let config: Value = serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let root = bundle.join(config["root"]["path"].as_str().ok_or("config.json names no root")?);
    is_it(&root)
        .ok_or_else(|| format!("{} is not mounted at {} in {}", tree.display(), plan::MOUNT, root.display()))
}

#[cfg(test)]
mod tests;
