//! A download on its way: `<name>.part`, and a small `<name>.json` that says what it is a part of.
//!
//! The JSON is written before the first byte, so the bytes never belong to another archive than it says.

use super::digest::{Digests, Hasher, fingerprint};
use super::{downloads, memo, read_json};
use crate::host::fs::{self, Root};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What is there of one archive, and its digests so far.
pub(super) struct Part {
    path: PathBuf,
    meta_path: PathBuf,
    meta: Meta,
    len: u64,
    hasher: Hasher,
    file: Option<File>,
    /// The bytes came in more than one piece: a wrong digest may be the fault of the seam.
    spliced: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Meta {
    /// Fingerprint of the URL, which may carry a password.
    url: String,
    /// By which the server knows that the file is still the same.
    validator: Option<String>,
    /// Of the whole archive, in bytes.
    length: Option<u64>,
}

impl Part {
    /// Takes up what an earlier call left for `url`, and drops what can't be continued.
    pub(super) fn open(root: &Root, url: &reqwest::Url) -> Result<Part> {
        let name = file_name(url);
        let path = downloads(root).join(format!("{name}.part"));
        let meta_path = downloads(root).join(format!("{name}.json"));
        let key = fingerprint(url.as_str());
        let fresh = Meta { url: key.clone(), validator: None, length: None };
        let meta = read_json::<Meta>(&meta_path).filter(|meta| meta.url == key).unwrap_or(fresh);
        let mut part =
            Part { path, meta_path, meta, len: 0, hasher: Hasher::default(), file: None, spliced: false };
        part.load()?;
        let too_long = part.meta.length.is_some_and(|length| part.len > length);
        if too_long || (part.meta.validator.is_none() && !part.complete()) {
            part.discard()?;
        }
        part.spliced = part.len > 0;
        Ok(part)
    }

    fn load(&mut self) -> Result<()> {
        match File::open(&self.path) {
            Ok(file) => {
                self.len = self
                    .hasher
                    .read(file)
                    .with_context(|| format!("failed to read {}", self.path.display()))?;
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e).with_context(|| format!("failed to read {}", self.path.display())),
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Fingerprint of the URL.
    pub(super) fn key(&self) -> &str {
        &self.meta.url
    }

    /// Bytes that are there.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of the whole, if the server told.
    pub(super) fn length(&self) -> Option<u64> {
        self.meta.length
    }

    pub(super) fn validator(&self) -> Option<&str> {
        self.meta.validator.as_deref()
    }

    pub(super) fn spliced(&self) -> bool {
        self.spliced
    }

    pub(super) fn complete(&self) -> bool {
        self.meta.length == Some(self.len)
    }

    /// Begins at the first byte.
    pub(super) fn start(&mut self, validator: Option<String>, length: Option<u64>) -> Result<()> {
        self.discard()?;
        self.meta.validator = validator;
        self.meta.length = length;
        fs::write_atomic(&self.meta_path, &serde_json::to_vec(&self.meta)?, 0o600, None)?;
        self.resume()
    }

    /// Goes on at the end of what is there.
    pub(super) fn resume(&mut self) -> Result<()> {
        self.spliced = self.len > 0;
        let file = File::options().create(true).append(true).open(&self.path);
        self.file = Some(file.with_context(|| self.fail())?);
        Ok(())
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let mut file = self.file.as_ref().context("a part is begun before it is written")?;
        file.write_all(bytes).with_context(|| self.fail())?;
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Ends a whole archive; one of untold length is as long as it has become.
    pub(super) fn finish(&mut self) -> Result<Digests> {
        if let Some(file) = self.file.take() {
            file.sync_all().with_context(|| self.fail())?;
        }
        if self.meta.length.is_none() {
            self.meta.length = Some(self.len);
            fs::write_atomic(&self.meta_path, &serde_json::to_vec(&self.meta)?, 0o600, None)?;
        }
        Ok(self.hasher.digests())
    }

    /// Forgets all bytes.
    pub(super) fn discard(&mut self) -> Result<()> {
        // The bytes go first: without them the JSON says nothing.
        fs::remove(&self.path)?;
        fs::remove(&self.meta_path)?;
        self.meta.validator = None;
        self.meta.length = None;
        self.len = 0;
        self.hasher = Hasher::default();
        self.file = None;
        self.spliced = false;
        Ok(())
    }

    fn fail(&self) -> String {
        format!("failed to write {}", self.path.display())
    }
}

/// Removes all downloads but `keep`.
pub(super) fn clear(root: &Root, keep: Option<&Part>) -> Result<()> {
    let dir = downloads(root);
    let Ok(entries) = std::fs::read_dir(&dir) else { return Ok(()) };
    for entry in entries {
        let path = entry.with_context(|| format!("failed to read {}", dir.display()))?.path();
        let wanted = keep.is_some_and(|part| path == part.path || path == part.meta_path);
        if !wanted && path.file_name() != Some(memo::NAME.as_ref()) {
            fs::remove(&path)?;
        }
    }
    Ok(())
}

/// The archive's own name, as far as it can be trusted to be one; a person who looks for it shall find it.
fn file_name(url: &reqwest::Url) -> String {
    let last = url.path_segments().and_then(|mut s| s.next_back()).unwrap_or_default();
    let safe: String =
        last.chars().filter(|c| c.is_ascii_alphanumeric() || "._+-".contains(*c)).take(100).collect();
    match safe.trim_start_matches('.') {
        "" => "archive".to_owned(),
        name => name.to_owned(),
    }
}
