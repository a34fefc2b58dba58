//! Values from outside, parsed once into types that are proof afterwards (PURE).
//!
//! Each type has one way in (`FromStr`, `TryFrom<&str>` and serde's `Deserialize` are the same parser), an error
//! that is one sentence, and a `Display` that gives the canonical text back, which parses to the same value.

mod driver;
mod ids;
mod net;
mod secret;
mod ssh;
mod text;
mod time;
mod version;

pub use driver::DriverBranch;
pub use ids::{SecretId, UnitName};
pub use net::{DnsName, Host, HostPort};
pub use secret::Secret;
pub use ssh::PublicKey;
pub use text::{Sha256, Tag, UserName};
pub use time::{Moment, TimeLimit};
pub use version::Version;

use std::fmt;

/// Why a value was refused: one sentence that says what is wrong and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid(String);

impl Invalid {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

/// A value from outside as a message may show it: quoted, on one line, and cut when long.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut start: String = text.chars().take(LONGEST).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    format!("{start:?}")
}

/// Whether systemd, a shell and Concourse all take the character within a line. It excludes the non-characters of
/// Unicode, for which systemd refuses a whole environment file.
pub(crate) fn harmless(c: char) -> bool {
    let no_character = matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe;
    !c.is_control() && !no_character
}

/// The candidate most like `word`, if one is like it at all.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const ALIKE: f64 = 0.6;
    // Longer words are no misspelling of ours, and comparing costs the product of the lengths.
    if word.len() > 100 {
        return None;
    }
    candidates
        .into_iter()
        .map(|c| (strsim::normalized_damerau_levenshtein(word, c), c))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, c)| c)
}

/// Gives a type with `fn parse(&str) -> Result<Self, Invalid>` and `Display` its other ways in and out.
macro_rules! from_text {
    ($($kind:ty),+) => {$(
        impl std::str::FromStr for $kind {
            type Err = $crate::parse::Invalid;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text)
            }
        }

        impl TryFrom<&str> for $kind {
            type Error = $crate::parse::Invalid;
            fn try_from(text: &str) -> Result<Self, Self::Error> {
                Self::parse(text)
            }
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }
    )+};
}
pub(crate) use from_text;

#[cfg(test)]
mod tests;
