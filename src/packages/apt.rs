//! Runs apt: without questions, with a bound on everything, and with every "no" as a value.

use super::read::{Changes, Failure, Offers, installed, offers};
use crate::host::cmd::{Cmd, Output, cmd};
use crate::host::fs::{Root, write_atomic};
use crate::install::Proxy;
use crate::paths;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// The limits of one order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For another program to let go of the packages.
    pub lock: Duration,
    /// Without a single byte of a source.
    pub stall: Duration,
    /// For the lists of all sources.
    pub update: Duration,
    /// For everything together.
    pub total: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            lock: Duration::from_secs(60),
            stall: Duration::from_secs(20),
            update: Duration::from_secs(120),
            total: Duration::from_secs(15 * 60),
        }
    }
}

/// A machine's apt.
pub struct Apt<'a> {
    root: &'a Root,
    proxy: &'a Proxy,
    limits: &'a Limits,
    end: Instant,
}

/// How a call ends: what it said, or why it did nothing.
pub type Said<T> = std::result::Result<T, Failure>;

/// For what reads lists and files only.
const READING: Duration = Duration::from_secs(60);

impl<'a> Apt<'a> {
    pub fn new(root: &'a Root, proxy: &'a Proxy, limits: &'a Limits) -> Self {
        Apt { root, proxy, limits, end: Instant::now() + limits.total }
    }

    /// Reads the lists of all sources, or of one only; what could not be read of them.
    pub fn update(&self, only: Option<&Path>) -> Option<Failure> {
        let mut args = vec!["update".to_owned()];
        if let Some(only) = only {
            args.extend(option(&format!("Dir::Etc::sourcelist={}", only.display())));
            args.extend(option("Dir::Etc::sourceparts=/dev/null"));
            args.extend(option("APT::Get::List-Cleanup=false"));
        }
        match self.run("apt-get", &args, self.limits.update, "the lists of its sources") {
            Err(failure) => Some(failure),
            Ok(out) if out.status.success() && !out.stderr.contains("Failed to fetch") => None,
            Ok(out) => Some(Failure::parse(&out.stderr)),
        }
    }

    /// Versions that the sources have of these packages.
    pub fn offers(&self, names: &[String]) -> Said<Offers> {
        self.cache("madison", names).map(|text| offers(&text))
    }

    /// Packages whose names begin so.
    pub fn names(&self, prefixes: &[&str]) -> Said<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        for prefix in prefixes {
            found.extend(self.cache("pkgnames", &[(*prefix).to_owned()])?.lines().map(str::to_owned));
        }
        Ok(found)
    }

    /// Whether a source of the machine has this address, readable or not.
    pub fn knows(&self, url: &str) -> Said<bool> {
        let args = ["indextargets", "--no-release-info", "--format", "$(REPO_URI)"].map(str::to_owned);
        let text = checked(self.run("apt-get", &args, READING, "its sources")?)?;
        Ok(text.lines().any(|line| line.trim_end_matches('/') == url.trim_end_matches('/')))
    }

    fn cache(&self, verb: &str, args: &[String]) -> Said<String> {
        let args = [&[verb.to_owned()], args].concat();
        checked(self.run("apt-cache", &args, READING, "the lists of its sources")?)
    }

    /// What it would do.
    pub fn simulate(&self, args: &[String]) -> Said<Changes> {
        let args = [&["--simulate".to_owned()], args].concat();
        checked(self.run("apt-get", &args, READING, "its plan")?).map(|text| Changes::parse(&text))
    }

    /// Does it; `what`: what takes so long, in case it does not end.
    pub fn act(&self, args: &[String], what: &str) -> Said<()> {
        let run = || checked(self.run("apt-get", args, self.limits.total, what)?);
        match run() {
            Err(Failure::Interrupted) => {
                let configure =
                    ["--configure", "--pending", "--force-confdef", "--force-confold"].map(str::to_owned);
                self.run("dpkg", &configure, self.limits.total, "what was interrupted before")?;
                run().map(drop)
            }
            done => done.map(drop),
        }
    }

    /// Keeps packages as they are, or no more.
    pub fn hold(&self, on: bool, names: &[String]) -> Said<()> {
        if names.is_empty() {
            return Ok(());
        }
        let args = [&[if on { "hold" } else { "unhold" }.to_owned()], names].concat();
        checked(self.run("apt-mark", &args, READING, "its marks")?).map(drop)
    }

    /// Gets a file the way that packages come.
    pub fn fetch(&self, url: &str, to: &Path) -> Said<()> {
        let args = ["download-file".to_owned(), url.to_owned(), to.display().to_string()];
        checked(self.run("/usr/lib/apt/apt-helper", &args, READING, url)?).map(drop)
    }

    /// Installed packages with their versions.
    pub fn installed(&self) -> Said<BTreeMap<String, String>> {
        let args =
            ["--show".to_owned(), "--showformat=${db:Status-Abbrev}${Package} ${Version}\\n".to_owned()];
        checked(self.run("dpkg-query", &args, READING, "its packages")?).map(|text| installed(&text))
    }

    /// Lets every package of NVIDIA's be of one version, dependencies too: apt by itself takes the newest of each. Holds
    /// for calls that are given what this gives.
    pub fn pin(&self, version: &str) -> Result<Vec<String>> {
        let path = self.root.path(paths::APT_PREFERENCES);
        let own = crate::host::fs::read(&self.root.path("/etc/apt/preferences"))?.unwrap_or_default();
        let text = format!("Package: *nvidia*\nPin: version {version}-*\nPin-Priority: 1001\n\n{own}");
        write_atomic(&path, text.as_bytes(), 0o644, None)?;
        Ok(option(&format!("Dir::Etc::preferences={}", path.display())).to_vec())
    }

    fn run(&self, program: &str, args: &[String], limit: Duration, what: &str) -> Said<Output> {
        let left = limit.min(self.end.saturating_duration_since(Instant::now())).as_secs();
        let hung = |seconds: u64| Failure::Hung(format!("apt did not end within {seconds} s at {what}"));
        if left == 0 {
            return Err(hung(self.limits.total.as_secs()));
        }
        // It ends the whole family: apt, what fetches for it, and dpkg with its scripts.
        let timeout = cmd("timeout").args(["--kill-after=10", &left.to_string(), program]);
        let ready = self.environment(self.options(timeout, program)).args(args);
        match ready.deadline(Duration::from_secs(left + 30)).output() {
            Ok(out) if matches!(out.code(), 124 | 137) => Err(hung(left)),
            Ok(out) if out.code() == 127 => Err(Failure::Other(format!("{program} is not there"))),
            Ok(out) => Ok(out),
            Err(why) => Err(Failure::Other(format!("{why:#}"))),
        }
    }

    fn options(&self, command: Cmd, program: &str) -> Cmd {
        let stall = self.limits.stall.as_secs();
        let mut options = vec![
            format!("DPkg::Lock::Timeout={}", self.limits.lock.as_secs()),
            format!("Acquire::http::Timeout={stall}"),
            format!("Acquire::https::Timeout={stall}"),
            "Acquire::Retries=1".into(),
            "Dpkg::Use-Pty=false".into(),
            "Dpkg::Options::=--force-confdef".into(),
            "Dpkg::Options::=--force-confold".into(),
        ];
        if self.root.is_machine() {
            return if program.contains("apt") {
                options.iter().fold(command, |c, o| c.args(option(o)))
            } else {
                command
            };
        }
        // A directory that stands for a machine.
        let at = |path: &str| self.root.path(path).display().to_string();
        options.extend([
            format!("Dir={}", at("/")),
            format!("Dir::State::status={}", at("/var/lib/dpkg/status")),
            "Dir::Bin::methods=/usr/lib/apt/methods".into(),
            format!("Dpkg::Options::=--root={}", at("/")),
            "APT::Sandbox::User=root".into(),
        ]);
        match program.contains("apt") {
            true => options.iter().fold(command, |c, o| c.args(option(o))),
            false if program == "dpkg" => command.arg(format!("--root={}", at("/"))),
            false => command.arg(format!("--admindir={}", at("/var/lib/dpkg"))),
        }
    }

    /// Variables, not options, of which every user sees the passwords.
    fn environment(&self, command: Cmd) -> Cmd {
        let still = [
            ("LC_ALL", "C"),
            ("DEBIAN_FRONTEND", "noninteractive"),
            ("APT_LISTCHANGES_FRONTEND", "none"),
            // It would restart services to load new libraries, and the worker is one.
            ("NEEDRESTART_SUSPEND", "1"),
            ("NEEDRESTART_MODE", "l"),
        ];
        let mut command = still.iter().fold(command, |command, (name, value)| command.env(name, value));
        let Proxy { http, https, no } = self.proxy;
        for (name, value) in [("http_proxy", http), ("https_proxy", https), ("no_proxy", no)] {
            if let Some(value) = value {
                command = command.env(name, value);
            }
        }
        command
    }
}

fn option(text: &str) -> [String; 2] {
    ["-o".into(), text.into()]
}

fn checked(out: Output) -> Said<String> {
    if out.status.success() { Ok(out.stdout) } else { Err(Failure::parse(&out.stderr)) }
}
