//! What apt and dpkg say, as data (PURE). They are run with `LC_ALL=C`.

use std::collections::{BTreeMap, BTreeSet};

/// Versions that the sources have, by package, the best first.
pub type Offers = BTreeMap<String, Vec<String>>;

/// `apt-cache madison`: `package | version | source`.
pub fn offers(text: &str) -> Offers {
    let mut found = Offers::new();
    for line in text.lines() {
        let mut fields = line.split('|').map(str::trim);
        if let (Some(name), Some(version), Some(_source)) = (fields.next(), fields.next(), fields.next()) {
            let versions = found.entry(name.to_owned()).or_default();
            if !versions.iter().any(|known| known == version) {
                versions.push(version.to_owned());
            }
        }
    }
    found
}

/// What `apt-get --simulate` would do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Packages that aren't there yet, with their versions.
    pub new: BTreeMap<String, String>,
    /// Packages that are there in another version.
    pub changed: BTreeSet<String>,
    /// Packages that go.
    pub removed: BTreeSet<String>,
    /// Packages that would be finished; those of a hook before that did not get to it are nowhere else.
    pub finished: BTreeSet<String>,
}

impl Changes {
    /// Reads the lines `Inst name [old] (new source [arch])`, `Remv name [old]` and `Purg name [old]`.
    pub fn parse(text: &str) -> Self {
        let mut changes = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(verb), Some(name)) = (words.next(), words.next()) else { continue };
            match (verb, words.next()) {
                ("Inst", Some(old)) if old.starts_with('[') => _ = changes.changed.insert(name.to_owned()),
                ("Inst", Some(new)) => {
                    let version = new.trim_start_matches('(').trim_end_matches(')');
                    changes.new.insert(name.to_owned(), version.to_owned());
                }
                ("Conf", _) => _ = changes.finished.insert(name.to_owned()),
                ("Remv" | "Purg", _) => _ = changes.removed.insert(name.to_owned()),
                _ => {}
            }
        }
        changes
    }

    /// Whether it would do nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Packages that it would take away or exchange.
    pub fn touched(&self) -> impl Iterator<Item = &String> {
        self.changed.iter().chain(&self.removed)
    }
}

/// `dpkg-query --show` with status, name and version: what is there, be it held (`hi`) or half installed (`iH`), and not
/// what has left its configuration only (`rc`).
pub fn installed(text: &str) -> BTreeMap<String, String> {
    let of = |line: &str| {
        let mut words = line.split_whitespace();
        let (status, name, version) = (words.next()?, words.next()?, words.next()?);
        let there = status.chars().nth(1).is_some_and(|state| !"nc".contains(state));
        there.then(|| (name.to_owned(), version.to_owned()))
    };
    text.lines().filter_map(of).collect()
}

/// Flavours of the kernel that follow its upgrades: of `linux-image-generic-hwe-24.04`, not of
/// `linux-image-6.8.0-45-generic`.
pub fn flavours(installed: &BTreeSet<String>) -> Vec<String> {
    let of = |name: &String| name.strip_prefix("linux-image-").map(str::to_owned);
    let meta = |flavour: &String| {
        !flavour.starts_with(|c: char| c.is_ascii_digit()) && !flavour.starts_with("unsigned")
    };
    installed.iter().filter_map(of).filter(meta).collect()
}

/// Why apt did not do what it was told, as far as one can tell apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Another program works with packages; its own words, if there are any.
    Busy(Option<String>),
    /// A source can't be reached.
    Offline(String),
    /// A source is signed by nobody, or by somebody else.
    Signature(String),
    /// A source does not have what its list names.
    Gone(String),
    /// The disk is full.
    Full,
    /// A hook before was cut off in the middle.
    Interrupted,
    /// What it would take isn't there, or isn't wanted here.
    Unmet(String),
    /// It did not end in time.
    Hung(String),
    /// Anything else.
    Other(String),
}

impl Failure {
    /// Reads what apt wrote on standard error.
    pub fn parse(text: &str) -> Self {
        let line = |words: &[&str]| {
            let said = text.lines().find(|line| words.iter().any(|word| line.contains(word)))?;
            Some(short(said.trim_start_matches("E: ").trim_start_matches("W: ")))
        };
        if let Some(said) = line(&[
            "Could not get lock",
            "Unable to lock directory",
            "dpkg frontend lock",
            "is another process using it",
        ]) {
            let holder =
                said.split("held by process ").nth(1).map(|rest| rest.trim_end_matches('.').to_owned());
            return Failure::Busy(holder);
        }
        if line(&["dpkg was interrupted", "dpkg --configure -a"]).is_some() {
            return Failure::Interrupted;
        }
        if line(&["No space left on device", "enough free space"]).is_some() {
            return Failure::Full;
        }
        if let Some(said) = line(&[
            "NO_PUBKEY",
            "is not signed",
            "signatures were invalid",
            "couldn't be verified",
            "EXPKEYSIG",
            "no longer signed",
        ]) {
            return Failure::Signature(said);
        }
        if let Some(said) =
            line(&["  404", "Hash Sum mismatch", "does not have a Release file", "unexpected size"])
        {
            return Failure::Gone(said);
        }
        if let Some(said) = line(&[
            "Temporary failure resolving",
            "Could not resolve",
            "Could not connect",
            "Cannot initiate the connection",
            "timed out",
            "Connection failed",
            "Unable to connect",
            "Failed to fetch",
            "Some index files failed",
        ]) {
            return Failure::Offline(said);
        }
        if line(&[
            "unmet dependencies",
            "held broken packages",
            "has no installation candidate",
            "Unable to locate package",
            "was not found",
            "Held packages were changed",
        ])
        .is_some()
        {
            return Failure::Unmet(short(&errors(text)));
        }
        Failure::Other(short(&errors(text)))
    }

    /// What was seen, as a part of a sentence, and what to do.
    pub fn told(&self) -> (String, &'static str) {
        match self {
            Failure::Busy(holder) => {
                let by = holder.as_ref().map(|by| format!(" ({by})")).unwrap_or_default();
                (format!("apt, which another program uses{by}"), "nothing is to be done")
            }
            Failure::Offline(said) => (
                format!("a source of apt can't be reached ({said})"),
                "set http-proxy and https-proxy, or give the machine sources that it reaches",
            ),
            Failure::Signature(said) => {
                (format!("a source of apt has no good signature ({said})"), "correct its key in /etc/apt")
            }
            Failure::Gone(said) => (
                format!("a source of apt is not in order ({said})"),
                "correct the mirror, or try again later",
            ),
            Failure::Full => ("the disk is full".into(), "make room in /var and /usr"),
            Failure::Interrupted => ("dpkg was interrupted".into(), "run sudo dpkg --configure -a"),
            Failure::Unmet(said) => (
                format!("apt can't put it together ({said})"),
                "give the machine sources that have all of it, or run sudo apt-get install --fix-broken",
            ),
            Failure::Hung(what) => {
                (what.clone(), "see journalctl and /var/log/apt; the next hook tries again")
            }
            Failure::Other(said) => (format!("apt says {said}"), "see /var/log/apt and journalctl"),
        }
    }
}

/// apt's errors without its warnings; all that it said, where it calls nothing an error.
fn errors(text: &str) -> String {
    let errors: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("E: ")).collect();
    if errors.is_empty() { text.trim().to_owned() } else { errors.join("; ") }
}

/// On one line, and so much that a status stays readable.
fn short(text: &str) -> String {
    const LONGEST: usize = 110;
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut: String = line.chars().take(LONGEST).collect();
    if cut.len() < line.len() { format!("{cut}…") } else { cut }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
