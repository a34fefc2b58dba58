//! Versions of Concourse.

use super::{Invalid, from_text, shown};
use std::fmt;

/// A version: `8.2.5`, or `8.3.0-rc.1` for one before a release. Ordered as semantic versioning does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(semver::Version);

impl Version {
    /// A release.
    pub const fn new(major: u64, minor: u64, patch: u64) -> Self {
        Self(semver::Version::new(major, minor, patch))
    }

    fn parse(text: &str) -> Result<Self, Invalid> {
        if let Some(bare) = text.strip_prefix(['v', 'V'])
            && bare.starts_with(|c: char| c.is_ascii_digit())
        {
            return Err(Invalid::new(format!("{} starts with a letter; write {}", shown(text), clip(bare))));
        }
        // No build metadata: two versions that differ only in it would be the same to a comparison.
        match semver::Version::parse(text) {
            Ok(version) if version.build.is_empty() && text.len() <= 64 => Ok(Self(version)),
            _ => Err(Invalid::new(format!("{} is not a version; write one like 8.2.5", shown(text)))),
        }
    }

    /// The first number: versions with different ones may not understand each other.
    pub fn major(&self) -> u64 {
        self.0.major
    }

    /// The second number.
    pub fn minor(&self) -> u64 {
        self.0.minor
    }
}

fn clip(text: &str) -> String {
    text.chars().take_while(|c| c.is_ascii_alphanumeric() || ".-".contains(*c)).take(64).collect()
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

from_text!(Version);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::tests::{accepts, refuses};

    #[test]
    fn versions() {
        accepts::<Version>(&[("8.2.5", "8.2.5"), ("8.3.0-rc.1", "8.3.0-rc.1"), ("0.0.0", "0.0.0")]);
        refuses::<Version>(&[
            ("", r#""" is not a version; write one like 8.2.5"#),
            ("v8.2.5", r#""v8.2.5" starts with a letter; write 8.2.5"#),
            ("8.2", r#""8.2" is not a version; write one like 8.2.5"#),
            ("08.2.5", r#""08.2.5" is not a version; write one like 8.2.5"#),
            ("8.2.5+gpu", r#""8.2.5+gpu" is not a version; write one like 8.2.5"#),
            ("8.2.5/../x", r#""8.2.5/../x" is not a version; write one like 8.2.5"#),
            ("latest", r#""latest" is not a version; write one like 8.2.5"#),
        ]);
        assert!(Version::parse(&format!("1.2.3-{}", "a".repeat(60))).is_err());
    }

    #[test]
    fn a_candidate_comes_before_its_release() {
        let of = |text| Version::parse(text).unwrap();
        assert!(of("8.3.0-rc.1") < of("8.3.0") && of("8.2.10") > of("8.2.9"));
        assert_eq!((Version::new(8, 2, 5).major(), Version::new(8, 2, 5).minor()), (8, 2));
    }
}
