//! Digests: computed while bytes pass by, and compared with what the operator or the release says.

use super::web::{Web, public};
use super::{Limits, Refusal, Step, Stop, refuse};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Both digests of one archive: lower-case hex.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Digests {
    pub(super) sha256: String,
    pub(super) sha1: String,
}

/// Digests of what has been seen so far.
#[derive(Clone, Default)]
pub(super) struct Hasher {
    sha256: Sha256,
    sha1: Sha1,
}

impl Hasher {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        self.sha1.update(bytes);
    }

    /// Reads to the end and gives the number of bytes.
    pub(super) fn read(&mut self, mut from: impl Read) -> std::io::Result<u64> {
        let mut buffer = vec![0; 1 << 17];
        let mut total = 0;
        loop {
            match from.read(&mut buffer)? {
                0 => return Ok(total),
                n => {
                    self.update(&buffer[..n]);
                    total += n as u64;
                }
            }
        }
    }

    pub(super) fn digests(&self) -> Digests {
        Digests { sha256: hex(&self.sha256.clone().finalize()), sha1: hex(&self.sha1.clone().finalize()) }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A name for text that must not be kept as it is, such as a URL with a token.
pub(super) fn fingerprint(text: &str) -> String {
    hex(&Sha256::digest(text))
}

pub(super) fn of_file(path: &Path) -> Result<Digests> {
    let mut hasher = Hasher::default();
    File::open(path)
        .and_then(|file| hasher.read(file))
        .with_context(|| format!("failed to read {}", path.display()))?;
    Ok(hasher.digests())
}

/// What the archive's digest must be, and who says so.
#[derive(Debug)]
pub(super) enum Expected {
    /// The option `concourse-sha256`.
    Operator(String),
    /// A file published beside the archive.
    Published { hex: String, kind: Kind, at: String },
}

/// The digests that are published beside archives, best first.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Sha256,
    Sha1,
}

impl Kind {
    fn suffix(self) -> &'static str {
        match self {
            Kind::Sha256 => ".sha256",
            Kind::Sha1 => ".sha1",
        }
    }

    fn hex_digits(self) -> usize {
        match self {
            Kind::Sha256 => 64,
            Kind::Sha1 => 40,
        }
    }
}

impl Expected {
    /// `what` names the archive in the refusal.
    pub(super) fn check(&self, digests: &Digests, what: &str) -> Step<()> {
        let (name, wanted, found, advice) = match self {
            Expected::Operator(hex) => (
                "sha256",
                hex,
                &digests.sha256,
                "concourse-sha256 asks for: correct the option or the archive".to_owned(),
            ),
            Expected::Published { hex, kind, at } => {
                let (name, found) = match kind {
                    Kind::Sha256 => ("sha256", &digests.sha256),
                    Kind::Sha1 => ("sha1", &digests.sha1),
                };
                let advice = format!(
                    "{at} says: check concourse-download-url, or set concourse-sha256 to what is right"
                );
                (name, hex, found, advice)
            }
        };
        if wanted == found {
            return Ok(());
        }
        Err(Stop::Unusable(Refusal(format!("{what} has the {name} {found}, not {wanted} as {advice}"))))
    }
}

/// Finds the digest that is published beside `url`. Fails closed: no digest, no archive.
pub(super) async fn published(web: &Web, url: &reqwest::Url, limits: &Limits) -> Step<Expected> {
    for kind in [Kind::Sha256, Kind::Sha1] {
        let mut beside = url.clone();
        beside.set_path(&format!("{}{}", url.path(), kind.suffix()));
        let text = web.patiently(limits, async || web.small_text(&beside).await).await?;
        if let Some(hex) = text.as_deref().and_then(|text| first_hex(text, kind.hex_digits())) {
            return Ok(Expected::Published { hex, kind, at: public(&beside) });
        }
    }

    // An archive that isn't there has no digest either: then that is what must be said.
    web.patiently(limits, async || web.get(url, &[]).await.map(drop)).await?;
    Err(refuse(format!(
        "no digest is published as {at}.sha256 or {at}.sha1: set concourse-sha256 to the archive's digest",
        at = public(url)
    )))
}

/// The first word, if it is a digest; a mirror may answer anything with a friendly page.
fn first_hex(text: &str, digits: usize) -> Option<String> {
    let word = text.split_whitespace().next()?.to_ascii_lowercase();
    (word.len() == digits && word.bytes().all(|b| b.is_ascii_hexdigit())).then_some(word)
}
