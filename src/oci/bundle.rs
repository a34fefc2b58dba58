//! The wrapper's way through a call: what is read, what is written, and what is started in the end.

use super::args::{Call, Verb};
use super::create::{enter, equip};
use super::exec::Equipment;
use super::json::Tree;
use super::policy::Policy;
use super::{Refusal, hook, lease, next, report, said};
use nix::unistd::{Gid, Uid, fchown};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What the device data names as the subcommand of its hook; no runc has one of this name.
const HOOK: &str = "gpu-hook";

/// Runs as `runc`, or as the hook of a GPU container. Comes back with an exit status if the real runc was not started.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    let mut args = args.into_iter();
    let name = args.next().unwrap_or_else(|| "runc".into());
    let args: Vec<OsString> = args.collect();
    if let Some((first, rest)) = args.split_first()
        && first == HOOK
    {
        return hook::main(rest);
    }
    if let Some(code) = lease::command::called(&name, &args) {
        return u8::try_from(code).unwrap_or(1);
    }
    let (call, passed) = (Call::parse(&args), next::passed());
    let policy = next::policy(&next::policy_path());
    let prepared = match &call.verb {
        // A runtime behind us passes on a bundle that is ready.
        _ if passed > 0 => Ok(()),
        Verb::Create { bundle } => create(bundle.as_deref(), policy.as_ref()),
        Verb::Exec { process, id: Some(id) } => exec(&call, process.as_deref(), id, policy.as_ref()),
        Verb::Exec { .. } | Verb::Other => Ok(()),
    };
    let refusal = prepared.err().unwrap_or_else(|| pass_on(&name, &args, policy.as_ref().ok(), passed));
    report::refusal(&call, &refusal.to_string());
    1
}

fn pass_on(name: &OsStr, args: &[OsString], policy: Option<&Policy>, passed: u32) -> Refusal {
    match next::runtime(policy, passed) {
        Some(runtime) => Refusal::new(next::become_it(&runtime, name, args, passed)),
        None if passed > 1 => Refusal::new(
            "the runtime behind runc-gpu-wrapper calls the wrapper again: name the real runc in its settings",
        ),
        None => Refusal::new(
            "this worker has no runc: neither its runtime policy nor PATH names one that can be started",
        ),
    }
}

fn create(bundle: Option<&OsStr>, policy: Result<&Policy, &String>) -> Result<(), Refusal> {
    let bundle = Path::new(bundle.unwrap_or(OsStr::new(".")));
    edit(&bundle.join("config.json"), |config| equip(config, bundle, policy))
}

/// Containers that were not equipped, and whatever can't be read, are runc's alone.
fn exec(
    call: &Call,
    process: Option<&OsStr>,
    id: &OsStr,
    policy: Result<&Policy, &String>,
) -> Result<(), Refusal> {
    let noted = bundle_of(call, id).and_then(|bundle| {
        let config = fs::read_to_string(bundle.join("config.json")).ok()?;
        Some((Equipment::noted(&config)?, bundle))
    });
    let Some((equipment, bundle)) = noted else { return Ok(()) };
    enter(&equipment, &bundle, policy)?;
    let Some(process) = process else { return Ok(()) };
    edit(Path::new(process), |process| {
        equipment
            .give(process)
            .map_err(|_| Refusal::new("the process to start is not as the OCI specification has it"))
    })
}

/// containerd starts us in the bundle, which has the container's name; else runc knows it.
fn bundle_of(call: &Call, id: &OsStr) -> Option<PathBuf> {
    if let Some(bundle) = std::env::current_dir().ok().filter(|dir| dir.file_name() == Some(id)) {
        return Some(bundle);
    }
    let root = call.root.clone().unwrap_or_else(|| "/run/runc".into());
    let state = fs::read_to_string(Path::new(&root).join(id).join("state.json")).ok()?;
    let mut state = Tree::parse(&state).ok()?;
    let mut labels = state.get("config").ok()??.get("labels").ok()??.elements().ok()?;
    labels.find_map(|label| label.string()?.strip_prefix("bundle=").map(PathBuf::from))
}

/// Edits a JSON file. One that is missing or broken is left for runc to judge.
fn edit(path: &Path, change: impl FnOnce(&mut Tree<'_>) -> Result<(), Refusal>) -> Result<(), Refusal> {
    let Ok(before) = fs::read_to_string(path) else { return Ok(()) };
    let Ok(mut tree) = Tree::parse(&before) else { return Ok(()) };
    change(&mut tree)?;
    let after = tree.to_string();
    if after == before {
        return Ok(());
    }
    replace(path, &after).map_err(|e| {
        Refusal::new(format!("{} can't be written: {e}; the worker's disk may be full", path.display()))
    })
}

/// Replaces a file as a whole, mode and owner kept: we may be killed at any instant, and others read it. No fsync: it
/// is for this boot only.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut path = path.to_owned();
    let mut was = fs::symlink_metadata(&path)?;
    if was.is_symlink() {
        path = fs::canonicalize(path)?;
        was = fs::metadata(&path)?;
    }
    let mut name = OsString::from(".new-");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!("-{}", std::process::id()));
    let temp = path.with_file_name(name);
    // Left by one that had this process id and was killed.
    let _ = fs::remove_file(&temp);
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temp).and_then(|file| {
        fill(file, text, &was)?;
        fs::rename(&temp, &path)
    });
    written.inspect_err(|_| drop(fs::remove_file(&temp)))
}

fn fill(mut file: File, text: &str, was: &fs::Metadata) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    let now = file.metadata()?;
    if (now.uid(), now.gid()) != (was.uid(), was.gid()) {
        fchown(&file, Some(Uid::from_raw(was.uid())), Some(Gid::from_raw(was.gid())))?;
    }
    file.set_permissions(Permissions::from_mode(was.mode() & 0o7777))
}

/// Reads a JSON file of ours.
pub(super) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, String> {
    let text = fs::read(path).map_err(|e| format!("{}: {}", path.display(), said(&e)))?;
    serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))
}
