//! Turns an archive of Concourse into an installed version. It ensures:
//!
//! - `/opt/concourse/versions/<version>/` is either whole, checked and recorded, or not there;
//! - nothing is unpacked before its digest is known to be right (a Juju resource is checked by Juju itself);
//! - a call that was killed at any point is made good by the next one, and what was downloaded is not asked for again;
//! - what runs is never removed;
//! - every expected "no" is a [`Refusal`] that says what to do, without credentials.

mod digest;
mod download;
mod memo;
mod part;
mod probe;
mod space;
mod store;
mod unpack;
mod web;

use crate::host::fs::{self, Root};
use crate::parse::Version;
use digest::Digests;
use memo::{Memo, Verdict};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use store::{
    Installed, Origin, ResourceStamp, clean_leftovers, has_leftovers, in_use, installed, remove_version,
    resource_stamp, version_dir,
};

/// What is to be installed.
#[derive(Clone, Debug)]
pub struct Order {
    /// The version it must be; `None`: whatever the archive holds.
    pub version: Option<Version>,
    /// Where the archive is.
    pub source: Source,
    /// The operator's own digest of the archive: lower-case hex.
    pub sha256: Option<String>,
    /// How the network is reached.
    pub proxy: Proxy,
    /// How long to be patient.
    pub limits: Limits,
}

/// Where the archive comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// The file of the resource `concourse`.
    Resource(PathBuf),
    /// An address, `{version}` and `{arch}` filled in. May carry `user:password@`.
    Url(String),
}

/// The proxy options as the operator or the model gave them; each may lack its `http://`.
#[derive(Clone, Debug, Default)]
pub struct Proxy {
    /// For `http:` addresses.
    pub http: Option<String>,
    /// For `https:` addresses.
    pub https: Option<String>,
    /// Hosts, domains and networks that are reached without, separated by commas.
    pub no: Option<String>,
}

/// The limits of one call of [`install`].
#[derive(Clone, Debug)]
pub struct Limits {
    /// For a connection to stand.
    pub connect: Duration,
    /// Without a single byte.
    pub stall: Duration,
    /// For everything that uses the network, pauses included.
    pub total: Duration,
    /// How often a request is made before its failure is reported.
    pub attempts: u32,
    /// Before the second attempt; three times as long before each further one.
    pub pause: Duration,
    /// For `concourse --version`.
    pub probe: Duration,
    /// For another unit of the same machine to finish its own installation.
    pub lock: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connect: Duration::from_secs(20),
            stall: Duration::from_secs(30),
            total: Duration::from_secs(30 * 60),
            attempts: 3,
            pause: Duration::from_secs(2),
            probe: Duration::from_secs(20),
            lock: Duration::from_secs(60),
        }
    }
}

/// An expected "no": one clear sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why an installation ended early.
#[derive(Debug)]
enum Stop {
    /// Something the operator can change.
    Refused(Refusal),
    /// The archive itself is of no use, however often it is fetched.
    Unusable(Refusal),
    /// The unexpected.
    Failed(anyhow::Error),
}

type Step<T> = Result<T, Stop>;

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Self {
        Stop::Failed(error)
    }
}

fn refuse(text: impl Into<String>) -> Stop {
    Stop::Refused(Refusal(text.into()))
}

/// An archive whose digest has been checked.
struct Archive {
    path: PathBuf,
    digests: Digests,
    origin: Origin,
    /// What to remember it by if it turns out to be of no use.
    memo: Memo,
}

/// Installs what `order` asks for and tells which version that is; if it is installed already, does nothing.
///
/// `progress` is told what is being done, at most once a second: `Downloading Concourse 8.2.5… 40%`.
///
/// # Errors
/// The unexpected: an I/O fault, no permission. All else is a [`Refusal`].
pub fn install(
    root: &Root,
    order: &Order,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Result<Version, Refusal>> {
    match run(root, order, progress) {
        Ok(version) => Ok(Ok(version)),
        Err(Stop::Refused(refusal) | Stop::Unusable(refusal)) => Ok(Err(refusal)),
        Err(Stop::Failed(error)) if space::is_full(&error) => Ok(Err(space::full(root))),
        Err(Stop::Failed(error)) => Err(error),
    }
}

fn run(root: &Root, order: &Order, progress: &mut dyn FnMut(&str)) -> Step<Version> {
    let Some(_lock) = store::lock(root, order.limits.lock)? else {
        return Err(refuse(
            "another unit of this machine is installing Concourse: this unit goes on when that is done",
        ));
    };
    store::sweep(root)?;

    let stamp = match &order.source {
        Source::Url(_) => None,
        Source::Resource(path) => Some(resource_stamp(path).ok_or_else(|| {
            refuse("the resource concourse holds no archive: attach one with `juju attach-resource`")
        })?),
    };
    let have = installed(root)?;
    if let Some(there) = have.iter().find(|i| i.satisfies(order, stamp.as_ref())) {
        return Ok(there.version.clone());
    }

    let archive = match &order.source {
        Source::Resource(path) => from_resource(path, stamp, order)?,
        Source::Url(url) => download::fetch(root, url, order, progress)?,
    };
    let version = match have.into_iter().find(|i| i.sha256 == archive.digests.sha256) {
        Some(there) => known(root, order, there, &archive)?,
        None => place(root, order, &archive, progress)?,
    };
    part::clear(root, None)?;
    Ok(version)
}

fn from_resource(path: &Path, stamp: Option<ResourceStamp>, order: &Order) -> Step<Archive> {
    let digests = digest::of_file(path)?;
    if let Some(sha256) = &order.sha256 {
        digest::Expected::Operator(sha256.clone()).check(&digests, "the resource concourse")?;
    }
    let memo = Memo::of_resource(&digests);
    let origin = Origin { url: None, stamps: stamp.into_iter().collect() };
    Ok(Archive { path: path.to_owned(), digests, origin, memo })
}

/// The very archive that is installed came by another way, as when two units of a machine have the same resource.
fn known(root: &Root, order: &Order, mut there: Installed, archive: &Archive) -> Step<Version> {
    if let Err(no) = expect_version(order, &there.version) {
        turn_down(root, archive, Verdict::Version(there.version))?;
        return Err(no);
    }
    there.origin.learn(&archive.origin);
    store::record(&version_dir(root, &there.version), &there)?;
    Ok(there.version)
}

/// Unpacks, checks and publishes.
fn place(root: &Root, order: &Order, archive: &Archive, progress: &mut dyn FnMut(&str)) -> Step<Version> {
    if let Some(verdict) = memo::verdict_on(root, &archive.digests)
        && let Err(no) = verdict.judge(order)
    {
        turn_down(root, archive, verdict)?;
        return Err(no);
    }
    let needed = space::unpacked_size(&archive.path)?;
    space::check(root, needed)?;
    progress(&format!("Unpacking {}…", label(order)));

    let staging = store::Staging::new(root)?;
    let found = unpack::unpack(&archive.path, staging.path())
        .and_then(|()| probe::version(&staging.path().join("bin/concourse"), order.limits.probe));
    let found = match found {
        Err(Stop::Unusable(why)) => {
            turn_down(root, archive, Verdict::Unusable(why.0.clone()))?;
            return Err(Stop::Unusable(why));
        }
        Err(Stop::Failed(error)) if space::is_full(&error) => {
            drop(staging);
            return Err(space::too_little(needed, space::free(root)?));
        }
        other => other?,
    };
    if let Err(no) = expect_version(order, &found) {
        turn_down(root, archive, Verdict::Version(found))?;
        return Err(no);
    }
    let record =
        Installed { version: found, origin: archive.origin.clone(), sha256: archive.digests.sha256.clone() };
    staging.publish(root, &record)?;
    Ok(record.version)
}

/// Remembers what is wrong with the archive, so that not every hook fetches it again to find the same.
fn turn_down(root: &Root, archive: &Archive, verdict: Verdict) -> anyhow::Result<()> {
    archive.memo.clone().with(verdict).write(root)?;
    part::clear(root, None)
}

fn expect_version(order: &Order, found: &Version) -> Step<()> {
    match &order.version {
        Some(wanted) if wanted != found => Err(refuse(format!(
            "the archive holds Concourse {found}, but {wanted} was asked for: set concourse-version to {found}, \
             or {}",
            match order.source {
                Source::Resource(_) => format!("attach an archive of {wanted} as the resource concourse"),
                Source::Url(_) => format!("let concourse-download-url lead to an archive of {wanted}"),
            }
        ))),
        _ => Ok(()),
    }
}

fn label(order: &Order) -> String {
    match &order.version {
        Some(version) => format!("Concourse {version}"),
        None => "Concourse".to_owned(),
    }
}

/// Bytes as the round number that people compare with `df`.
fn mb(bytes: u64) -> u64 {
    bytes.div_ceil(1_000_000)
}

/// Text of others, fit for a status: one line, and not without end.
fn one_line(text: &str, most: usize) -> String {
    text.trim().chars().take(most).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn downloads(root: &Root) -> PathBuf {
    root.path("/opt/concourse/downloads")
}

/// Makes a directory's entries last through a power cut.
fn sync_dir(dir: &Path) -> anyhow::Result<()> {
    use anyhow::Context;
    std::fs::File::open(dir)
        .and_then(|d| d.sync_all())
        .with_context(|| format!("failed to sync {}", dir.display()))
}

/// Reads a JSON file that this module wrote; what is missing or damaged counts as absent.
fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    fs::read(path).ok().flatten().and_then(|text| serde_json::from_str(&text).ok())
}
