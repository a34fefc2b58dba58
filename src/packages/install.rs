//! Carries out an order.

use super::apt::{Apt, Said};
use super::choose::{Choice, DRIVER_NAMES, Kernel, driver, libraries, library_names, library_words};
use super::ledger::{Entry, Ledger};
use super::read::{Changes, Failure, flavours};
use super::remove::{self, drop_source};
use super::{Order, Refusal, Repository, Source, WAITING, What, key};
use crate::host::cmd::cmd;
use crate::host::fs::{self, Root, write_atomic};
use anyhow::Result;
use std::collections::BTreeSet;
use std::time::Duration;

/// Why it ended early.
pub(super) enum Stop {
    /// apt's "no".
    Failed(Failure),
    /// A whole sentence.
    Refused(String),
    /// The unexpected.
    Broken(anyhow::Error),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Failed(failure)
    }
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Self {
        Stop::Broken(error)
    }
}

type Step<T> = std::result::Result<T, Stop>;

/// Installs what is ordered. `progress` is told what is being done.
///
/// # Errors
/// The unexpected: files of the charm's own can't be written. All else is a [`Refusal`].
pub fn install(
    root: &Root,
    order: &Order,
    progress: &mut dyn FnMut(&str),
) -> Result<std::result::Result<(), Refusal>> {
    let apt = Apt::new(root, &order.proxy, &order.limits);
    // Of a hook that was cut off.
    remove::drop_needless(root, &Ledger::read(root)?)?;
    let done = run(root, &apt, order, progress);
    if done.is_err() {
        remove::drop_needless(root, &Ledger::read(root)?)?;
    }
    match done {
        Ok(()) => Ok(Ok(())),
        Err(Stop::Failed(failure)) => Ok(Err(refusal(&order.what.to_string(), &failure))),
        Err(Stop::Refused(why)) => Ok(Err(Refusal(why))),
        Err(Stop::Broken(error)) => Err(error),
    }
}

/// A failure as a whole sentence.
pub(super) fn refusal(what: &str, failure: &Failure) -> Refusal {
    let (why, cure) = failure.told();
    Refusal(match failure {
        Failure::Busy(_) => format!("{WAITING}{why}, to install {what}"),
        _ => format!("{what} can't be installed, {why}: {cure}"),
    })
}

fn run(root: &Root, apt: &Apt, order: &Order, progress: &mut dyn FnMut(&str)) -> Step<()> {
    let what = &order.what;
    progress(&format!("Looking for {what}..."));
    let choice = find(root, apt, order)?;
    let mut options = match &choice.version {
        Some(version) => apt.pin(version)?,
        None => vec![],
    };
    options.extend(["--yes", "--quiet", "--no-install-recommends"].map(str::to_owned));
    let args = |more: &[&str]| {
        let more = more.iter().map(|word| (*word).to_owned());
        [options.clone(), more.collect(), choice.packages.clone()].concat()
    };
    let mut ledger = Ledger::read(root)?;
    // Without leave to change what is held or to go back in versions, there would be no plan for what is ours.
    const OURS: [&str; 4] =
        ["install", "--ignore-hold", "--allow-change-held-packages", "--allow-downgrades"];
    let changes = apt.simulate(&args(&OURS))?;
    check(what, &changes, &ledger)?;
    for (name, version) in &changes.new {
        let held = choice.version.as_ref().is_some_and(|wanted| version.starts_with(&format!("{wanted}-")));
        ledger.packages.insert(name.clone(), Entry { purpose: what.purpose(), held });
    }
    ledger.write(root)?;
    progress(&format!("Downloading {what}..."));
    let act = |how: &[&str], words: &str| {
        let bound: &[&str] = if changes.removed.is_empty() { &["--no-remove"] } else { &[] };
        apt.act(&args(&[&OURS[..], how, bound].concat()), words)
    };
    let done = act(&["--download-only"], "the download").and_then(|()| {
        progress(&format!("Installing {what}..."));
        act(&[], "the installation")
    });
    settle(root, apt, &mut ledger, choice.version.as_deref())?;
    done?;
    after(root, order, &mut ledger)?;
    Ok(ledger.write(root)?)
}

/// Nothing of the operator's is touched, and something comes of it.
fn check(what: &What, changes: &Changes, ledger: &Ledger) -> Step<()> {
    let foreign: Vec<&str> =
        changes.touched().filter(|name| !ledger.packages.contains_key(*name)).map(String::as_str).collect();
    if !foreign.is_empty() {
        return Err(Stop::Refused(format!(
            "{what} would exchange or remove {}, which the charm did not install: install it yourself, see gpu-diagnose",
            named(&foreign)
        )));
    }
    if changes.is_empty() {
        return Err(Stop::Refused(match what {
            What::Driver { .. } => {
                format!("{what} is installed and does not load: restart the machine, or see journalctl -k")
            }
            _ => format!("{what} is installed and not found by the charm: see gpu-diagnose"),
        }));
    }
    Ok(())
}

/// So many that a status stays readable.
fn named(names: &[&str]) -> String {
    const MOST: usize = 3;
    let more = if names.len() > MOST { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(MOST)].join(", "))
}

/// The ledger says what is there, however far it came; and what has to stay as it is, does.
fn settle(root: &Root, apt: &Apt, ledger: &mut Ledger, version: Option<&str>) -> Step<()> {
    let there = apt.installed()?;
    ledger.packages.retain(|name, _| there.contains_key(name));
    ledger.write(root)?;
    let Some(version) = version else { return Ok(()) };
    let fits = |name: &String| there.get(name).is_some_and(|v| v.starts_with(&format!("{version}-")));
    let held = ledger.packages.iter().filter(|(_, entry)| entry.held).map(|(name, _)| name.clone());
    let (right, old): (Vec<String>, Vec<String>) = held.partition(fits);
    apt.hold(true, &right)?;
    // Of the driver that the host had before.
    if !right.is_empty() && !old.is_empty() {
        remove::purge(apt, ledger, &old)?;
        ledger.write(root)?;
    }
    Ok(())
}

/// What the machine's own sources have; else NVIDIA's, which stays only if it helps.
fn find(root: &Root, apt: &Apt, order: &Order) -> Step<Choice> {
    let mut broken = apt.update(None);
    let mut first = choose(root, apt, &order.what);
    let own: Vec<Source> = Source::ALL.into_iter().filter(|source| is_there(root, *source)).collect();
    if first.is_err() && !own.is_empty() {
        // The operator may have come to have one, too: with two keys for one address apt does nothing at all.
        own.into_iter().try_for_each(|source| drop_source(root, source))?;
        broken = apt.update(None);
        first = choose(root, apt, &order.what);
    }
    let missing = match first? {
        Ok(choice) => return Ok(choice),
        Err(missing) => missing,
    };
    if let Some(Failure::Busy(holder)) = broken {
        return Err(Failure::Busy(holder).into());
    }
    let mut why = broken.map(|failure| failure.told().0);
    match &order.repository {
        // With the operator's rank and key, which hold.
        Some(repository) if !is_there(root, repository.source) && apt.knows(&repository.url)? => {
            let broken = why.map(|why| format!("{why}; ")).unwrap_or_default();
            why = Some(format!("{broken}{} is one of them", repository.url));
        }
        Some(repository) => {
            match add(root, apt, repository)? {
                Ok(()) => match choose(root, apt, &order.what)? {
                    Ok(choice) => return Ok(choice),
                    Err(_) => why = Some(format!("nor has {}", repository.url)),
                },
                Err(refused) => why = Some(refused),
            }
            drop_source(root, repository.source)?;
        }
        None => {}
    }
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    Err(Stop::Refused(format!("No source of apt has {missing}{why}: mirror it, or add a source that has it")))
}

/// Packages that the sources have; else what they would have to have.
fn choose(root: &Root, apt: &Apt, what: &What) -> Said<std::result::Result<Choice, String>> {
    Ok(match what {
        What::Libraries(version) => {
            libraries(version, &apt.offers(&library_names(version))?).ok_or_else(|| library_words(version))
        }
        What::Toolkit => {
            let name = "nvidia-container-toolkit-base".to_owned();
            match apt.offers(std::slice::from_ref(&name))?.is_empty() {
                true => Err(name),
                false => Ok(Choice { packages: vec![name], version: None }),
            }
        }
        What::Driver { branch, devices } => {
            let installed: BTreeSet<String> = apt.installed()?.into_keys().collect();
            let release =
                fs::read(&root.path("/proc/sys/kernel/osrelease")).ok().flatten().unwrap_or_default();
            let kernel = Kernel { release: release.trim().to_owned(), flavours: flavours(&installed) };
            driver(*branch, devices, &kernel, &apt.names(&DRIVER_NAMES)?)
        }
    })
}

/// Adds NVIDIA's repository, if its key is the known one; else why not.
fn add(root: &Root, apt: &Apt, repository: &Repository) -> Step<std::result::Result<(), String>> {
    let files: Vec<_> = repository.source.files().iter().map(|path| root.path(path)).collect();
    let (list, key) = (&files[0], &files[1]);
    let dir = tempfile::tempdir().map_err(anyhow::Error::from)?;
    let file = dir.path().join("key");
    if let Err(failure) = apt.fetch(&repository.key_url, &file) {
        return Ok(Err(format!("and {} can't be had, {}", repository.key_url, failure.told().0)));
    }
    let bytes = std::fs::read(&file).map_err(anyhow::Error::from)?;
    match key::extract(&bytes, &repository.fingerprint) {
        Err(why) => return Ok(Err(format!("and the key at {} is not NVIDIA's, {why}", repository.key_url))),
        Ok(bytes) => write_atomic(key, &bytes, 0o644, None)?,
    }
    if let (Some(text), Some(path)) = (repository.preferences(), files.get(2)) {
        write_atomic(path, text.as_bytes(), 0o644, None)?;
    }
    write_atomic(list, repository.text(&key.display().to_string()).as_bytes(), 0o644, None)?;
    Ok(match apt.update(Some(list)) {
        None => Ok(()),
        Some(failure) => Err(format!("and {} can't be used, {}", repository.url, failure.told().0)),
    })
}

fn is_there(root: &Root, source: Source) -> bool {
    root.path(source.files()[0]).exists()
}

/// A driver may load at once, and NVIDIA's generator write its spec; where not, the ladder says what is missing.
fn after(root: &Root, order: &Order, ledger: &mut Ledger) -> Result<()> {
    let commands: &[&[&str]] = match order.what {
        What::Driver { .. } => {
            ledger.driver_boot = Some(order.boot.clone());
            &[&["modprobe", "nvidia"], &["nvidia-modprobe", "-c", "0", "-u"]]
        }
        What::Toolkit => &[&["systemctl", "start", "nvidia-cdi-refresh.service"]],
        What::Libraries(_) => &[],
    };
    for command in commands.iter().filter(|_| root.is_machine()) {
        // Whether it helped is seen by looking. What sleeps in the kernel can't be killed, and whoever waits for it waits
        // for ever; `timeout` can be.
        let timeout = cmd("timeout").args(["--kill-after=5", "50"]).args(*command);
        let _tried = timeout.deadline(Duration::from_secs(60)).output();
    }
    Ok(())
}
