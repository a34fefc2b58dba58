//! Driver trees: a driver's files in one directory, so that a container gets them by one mount and one hook.
//!
//! `<trees>/<digest>/root` mirrors the paths that the spec names, `plan.json` beside it is for the hook. Files are hard
//! links: a tree takes no space, and an upgrade of the driver's package, which replaces files, leaves it whole. On
//! another file system they are copies, some hundred MiB; then [`clean`] bounds the space.

use super::known::{Work, params, take};
use crate::oci::devices::{Devices, Hook, Mount, Vendor};
use crate::oci::hook::library::scan;
use crate::oci::hook::plan::{FORMAT, Link, MOUNT, Plan};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The driver's own parameters.
const PARAMS: &str = "/proc/driver/nvidia/params";

/// Seconds that the hook may take; it needs some milliseconds.
const TIMEOUT: u32 = 30;

/// The code that a tree comes of, what it is made from aside. Its hash is a part of a tree's name, so that a newer
/// charm does not go on with what an older one built of the same files; a number to raise would be forgotten.
const BUILDER: [(&str, &[u8]); 4] = [
    ("tree", include_bytes!("tree.rs")),
    ("library", include_bytes!("../oci/hook/library.rs")),
    ("elf", include_bytes!("../oci/hook/elf.rs")),
    ("plan", include_bytes!("../oci/hook/plan.rs")),
];

/// Hash of [`BUILDER`], made as this is compiled.
const BUILD: u64 = hash(&BUILDER);

/// FNV-1a: nobody chooses this input.
const fn hash(sources: &[(&str, &[u8])]) -> u64 {
    let (mut sum, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while at < sources.len() {
        let (bytes, mut byte) = (sources[at].1, 0);
        while byte < bytes.len() {
            sum = (sum ^ bytes[byte] as u64).wrapping_mul(0x0100_0000_01b3);
            byte += 1;
        }
        at += 1;
    }
    sum
}

/// Where trees are, and what finishes a container.
#[derive(Clone, Debug)]
pub struct Trees {
    /// Directory of all trees: 0755 up to `/`, since roots of user namespaces look into it.
    pub dir: PathBuf,
    /// The program whose `gpu-hook` is [`crate::oci::hook::main`].
    pub hook: PathBuf,
    /// Which file is [`PARAMS`]; another in tests.
    pub params: PathBuf,
}

impl Trees {
    /// Trees in a directory, with the hook in a program.
    pub fn new(dir: impl Into<PathBuf>, hook: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), hook: hook.into(), params: PARAMS.into() }
    }

    /// NVIDIA's driver from a tree, which is made if it isn't there. Devices without files of a driver stay as they are.
    ///
    /// The error is a sentence for the operator; the devices that were given work too, only more slowly.
    pub fn equip(&self, devices: &Devices) -> Result<Devices, String> {
        let mut made = devices.clone();
        let Some(driver) = made.vendors.get_mut(&Vendor::Nvidia) else { return Ok(made) };
        let is_file = |m: &Mount| fs::metadata(&m.host).is_ok_and(|found| found.is_file());
        // Sockets come and go with their services; without one its service isn't used.
        let lives = |path: &Path| ["/run", "/var/run", "/tmp"].iter().any(|dir| path.starts_with(dir));
        driver.edits.mounts.retain(|m| m.host.exists() || !lives(&m.path));
        if let Some(gone) = driver.edits.mounts.iter().find(|m| !m.host.exists()) {
            return Err(format!(
                "{} of the CDI spec is not there, so the spec is older than the driver: write it anew, \
                 with nvidia-ctk cdi generate",
                gone.host.display()
            ));
        }
        let work = take(&mut driver.edits, &mut made.units, Vendor::Nvidia, &is_file)?;
        if work.files.is_empty() {
            return Ok(devices.clone());
        }
        let tree = self.prepare(&work).map_err(|e| format!("{}: {e}", self.dir.display()))?;
        let text = |o: &str| o.to_owned();
        let options = ["ro", "nosuid", "nodev", "rbind", "rprivate"].map(text).to_vec();
        driver.edits.mounts.insert(0, Mount { host: tree.join("root"), path: MOUNT.into(), options });
        let mut args = ["gpu-hook", "--tree", &tree.to_string_lossy()].map(text).to_vec();
        args.insert(0, self.hook.file_name().unwrap_or_default().to_string_lossy().into_owned());
        args.extend(work.args);
        let hook = Hook {
            stage: "createContainer".into(),
            path: self.hook.clone(),
            args,
            env: vec![],
            timeout: Some(TIMEOUT),
        };
        driver.edits.hooks.insert(0, hook);
        Ok(made)
    }

    fn prepare(&self, work: &Work) -> std::io::Result<PathBuf> {
        let params = fs::read_to_string(&self.params).ok().filter(|_| work.params).and_then(|t| params(&t));
        let tree = self.dir.join(digest(BUILD, work, params.as_deref())?);
        if tree.exists() {
            return Ok(tree);
        }
        make_dir(&self.dir)?;
        // Beside the others under a name that no tree has; a hook that was killed leaves it to the next one.
        let new = self.dir.join(".new");
        remove(&new)?;
        let built = build(&new, work, params.as_deref());
        if let Err(e) = built.and_then(|()| fs::rename(&new, &tree)) {
            remove(&new)?;
            return Err(e);
        }
        Ok(tree)
    }

    /// Removes trees that nobody needs: not those of `keep` (what containers get now, and what those that are just being
    /// made got before), and not those that a container has mounted. Says what it removed.
    pub fn clean(&self, keep: &[&Devices]) -> std::io::Result<Vec<PathBuf>> {
        let mut needed = mounted()?;
        for mount in keep.iter().flat_map(|d| d.vendors.values()).flat_map(|d| &d.edits.mounts) {
            needed.extend(
                mount.host.parent().and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned()),
            );
        }
        let mut removed = vec![];
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if !needed.contains(entry.file_name().to_string_lossy().as_ref()) {
                remove(&entry.path())?;
                removed.push(entry.path());
            }
        }
        Ok(removed)
    }
}

/// Trees that stand in the mount table of any process.
fn mounted() -> std::io::Result<BTreeSet<String>> {
    let (mut seen, mut found) = (BTreeSet::new(), BTreeSet::new());
    for process in fs::read_dir("/proc")?.flatten() {
        // One look for each namespace; processes may end meanwhile.
        let Ok(namespace) = fs::read_link(process.path().join("ns/mnt")) else { continue };
        if !seen.insert(namespace) {
            continue;
        }
        found.extend(trees_of(&fs::read_to_string(process.path().join("mountinfo")).unwrap_or_default()));
    }
    Ok(found)
}

/// The fourth field is what of a file system is mounted: `…/trees/<digest>/root`.
fn trees_of(table: &str) -> Vec<String> {
    let tree = |line: &str| {
        let root = line.split(' ').nth(3)?.strip_suffix("/root")?;
        Some(root.rsplit('/').next()?.to_owned())
    };
    table.lines().filter_map(tree).collect()
}

/// Changes with everything that a container would notice.
fn digest(build: u64, work: &Work, params: Option<&str>) -> std::io::Result<String> {
    let mut sum = Sha256::new();
    sum.update(format!("{build:x} {FORMAT} {MOUNT} {:?} {:?} {:?}", work.links, work.folders, work.compat));
    sum.update(format!("{:?} {}", params, work.profile));
    for file in &work.files {
        let found = fs::metadata(&file.host)?;
        let state = (found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec(), found.mode());
        sum.update(format!("{:?} {:?} {state:?}\n", file.host, file.path));
    }
    Ok(format!("{:x}", sum.finalize()))
}

fn build(new: &Path, work: &Work, params: Option<&str>) -> std::io::Result<()> {
    let root = new.join("root");
    make_dir(&root)?;
    let inside = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    let mut links = vec![];
    for file in &work.files {
        let path = inside(&file.path);
        make_dir(path.parent().unwrap_or(&root))?;
        let host = fs::canonicalize(&file.host)?;
        if fs::hard_link(&host, &path).is_err() {
            // Another file system, or one without hard links.
            fs::copy(&host, &path)?;
            fs::File::open(&path)?.sync_all()?;
        }
        // Each link is an inode of the image, the dearest part of the hook. Libraries are asked for by soname, and the
        // links of the spec have those; their files' own names are in the tree alone.
        if !work.folders.iter().any(|folder| file.path.parent() == Some(folder)) {
            links.push(to_tree(&file.path));
        }
    }
    for link in &work.links {
        let path = inside(&link.path);
        make_dir(path.parent().unwrap_or(&root))?;
        match symlink(&link.target, &path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            done => done?,
        }
    }
    let spec = work.links.iter().filter(|l| !work.files.iter().any(|f| f.path == l.path));
    // What leads somewhere in the tree is a link to there; other targets are the image's.
    links.extend(spec.map(|l| if inside(&l.path).exists() { to_tree(&l.path) } else { l.clone() }));
    let mut libraries = vec![];
    for folder in &work.folders {
        let found = scan(&inside(folder), &folder.display().to_string());
        for (soname, file) in found.missing {
            symlink(&file, inside(folder).join(&soname))?;
            links.push(to_tree(&folder.join(soname)));
        }
        libraries.extend(found.libraries.into_iter().map(|mut library| {
            if !links.iter().any(|l| l.path == Path::new(&library.path)) {
                library.path.insert_str(0, MOUNT);
            }
            library
        }));
    }
    let mut binds = vec![];
    if let Some(params) = params {
        let path = inside(Path::new(PARAMS));
        make_dir(path.parent().unwrap_or(&root))?;
        fs::write(&path, params)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444))?;
        binds.push(PARAMS.into());
    }
    let (folders, compat) = (work.folders.clone(), work.compat.clone());
    let plan = Plan { format: FORMAT, links, libraries, folders, compat, binds, profile: work.profile };
    let path = new.join("plan.json");
    fs::write(&path, serde_json::to_vec(&plan)?)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    // A tree that has its name is whole, also after a power cut.
    fs::File::open(&path)?.sync_all()
}

/// A link from where the spec has a file to where the tree has it.
fn to_tree(path: &Path) -> Link {
    Link { target: format!("{MOUNT}{}", path.display()), path: path.into() }
}

/// With all parents; whatever the umask, others can look into what is made.
fn make_dir(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), make_dir)?;
    fs::create_dir(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == ErrorKind::NotADirectory => fs::remove_file(path),
        done => done,
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
