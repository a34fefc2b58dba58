//! What is known about the last archive that was turned down, so that it is not fetched again every five minutes.

use super::digest::Digests;
use super::{Order, Refusal, Step, Stop, downloads, expect_version, read_json};
use crate::host::fs::{self, Root};
use crate::parse::Version;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One archive, and what is wrong with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Memo {
    /// Fingerprint of its URL and the server's validator for it; empty for a resource.
    url: String,
    validator: Option<String>,
    length: Option<u64>,
    digests: Digests,
    verdict: Option<Verdict>,
    /// How often in a row these very bytes came.
    times: u32,
}

/// What is wrong with an archive of the right digest.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// It holds this version, which was not asked for.
    Version(Version),
    /// It can't be installed at all; the refusal.
    Unusable(String),
}

impl Verdict {
    pub(super) fn judge(&self, order: &Order) -> Step<()> {
        match self {
            Verdict::Version(found) => expect_version(order, found),
            Verdict::Unusable(why) => Err(Stop::Unusable(Refusal(why.clone()))),
        }
    }
}

impl Memo {
    pub(super) fn of_resource(digests: &Digests) -> Memo {
        Memo::of_url("", None, None, digests)
    }

    pub(super) fn of_url(url: &str, validator: Option<&str>, length: Option<u64>, digests: &Digests) -> Memo {
        Memo {
            url: url.to_owned(),
            validator: validator.map(str::to_owned),
            length,
            digests: digests.clone(),
            verdict: None,
            times: 1,
        }
    }

    pub(super) fn with(mut self, verdict: Verdict) -> Memo {
        self.verdict = Some(verdict);
        self
    }

    pub(super) fn write(mut self, root: &Root) -> Result<()> {
        if let Some(last) = last(root)
            && last.digests == self.digests
        {
            self.times += last.times;
        }
        fs::write_atomic(&path(root), &serde_json::to_vec(&self)?, 0o600, None)
    }

    /// What is known of the bytes that a server is about to send.
    ///
    /// Only by a validator can they be known. Bytes of the wrong digest may have been damaged on the way: what came
    /// once is fetched once more, what came twice is what the server has.
    pub(super) fn recall(
        root: &Root,
        url: &str,
        validator: Option<&str>,
        length: Option<u64>,
    ) -> Option<(Digests, Option<Verdict>)> {
        let memo = last(root)?;
        let same = memo.url == url && validator.is_some() && memo.validator.as_deref() == validator;
        let sure = memo.verdict.is_some() || memo.times >= 2;
        (same && memo.length == length && sure).then_some((memo.digests, memo.verdict))
    }
}

/// What is known of an archive that is here.
pub(super) fn verdict_on(root: &Root, digests: &Digests) -> Option<Verdict> {
    last(root).filter(|memo| memo.digests == *digests)?.verdict
}

fn last(root: &Root) -> Option<Memo> {
    read_json(&path(root))
}

fn path(root: &Root) -> PathBuf {
    downloads(root).join(NAME)
}

pub(super) const NAME: &str = "refused.json";
