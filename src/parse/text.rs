//! Short texts that end up in env files, arguments and lists: what could break out of them is refused here.

use super::{Invalid, from_text, harmless, shown};
use std::fmt;

/// A SHA-256 digest: 64 hexadecimal digits, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256(String);

impl Sha256 {
    fn parse(text: &str) -> Result<Self, Invalid> {
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            let sentence = format!("{} is not a SHA-256 digest; write 64 hexadecimal digits", shown(text));
            return Err(Invalid::new(sentence));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

/// A worker tag. No comma: Concourse splits its list of tags there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(String);

impl Tag {
    fn parse(text: &str) -> Result<Self, Invalid> {
        word(text, "tag", ",").map(Self)
    }

    /// One of the charm's own, which may hold commas: it is an argument of the worker's, where Concourse splits nothing
    /// (proven.md §1).
    ///
    /// # Errors
    /// It is no word.
    pub fn whole(text: &str) -> Result<Self, Invalid> {
        word(text, "tag", "").map(Self)
    }
}

/// A local user of Concourse. No colon or comma: its setting is a list of `user:password`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserName(String);

impl UserName {
    fn parse(text: &str) -> Result<Self, Invalid> {
        word(text, "user name", ":,").map(Self)
    }
}

/// 1 to 255 bytes without white space, control characters and `barred` ones.
fn word(text: &str, what: &str, barred: &str) -> Result<String, Invalid> {
    let fits = |c: char| !c.is_whitespace() && harmless(c) && !barred.contains(c);
    if text.is_empty() {
        return Err(Invalid::new(format!("a {what} must not be empty")));
    }
    if text.len() > 255 {
        return Err(Invalid::new(format!("{} is too long for a {what}; use up to 255 bytes", shown(text))));
    }
    if !text.chars().all(fits) {
        let list: Vec<_> = barred.chars().map(|c| format!("\"{c}\"")).collect();
        let list = list.join(" or ");
        let sentence = format!("{} is not a {what}; leave out white space and {list}", shown(text));
        return Err(Invalid::new(sentence));
    }
    Ok(text.into())
}

macro_rules! as_text {
    ($($kind:ty),+) => {$(
        impl $kind {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}
as_text!(Sha256, Tag, UserName);
from_text!(Sha256, Tag, UserName);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::tests::{accepts, refuses};

    #[test]
    fn digests() {
        let (lower, upper) = ("0a".repeat(32), "0A".repeat(32));
        accepts::<Sha256>(&[(&lower, &lower), (&upper, &lower)]);
        refuses::<Sha256>(&[
            ("abc", r#""abc" is not a SHA-256 digest; write 64 hexadecimal digits"#),
            ("", r#""" is not a SHA-256 digest; write 64 hexadecimal digits"#),
        ]);
        assert!(Sha256::parse(&"g".repeat(64)).is_err());
    }

    #[test]
    fn tags() {
        accepts::<Tag>(&[("gpu", "gpu"), ("gpu:nvidia=2", "gpu:nvidia=2"), ("größe", "größe")]);
        refuses::<Tag>(&[
            ("", "a tag must not be empty"),
            ("a,b", r#""a,b" is not a tag; leave out white space and ",""#),
            ("a b", r#""a b" is not a tag; leave out white space and ",""#),
            ("a\u{ffff}", r#""a\u{ffff}" is not a tag; leave out white space and ",""#),
            ("a\u{0}b", r#""a\0b" is not a tag; leave out white space and ",""#),
            ("a\u{a0}b", r#""a\u{a0}b" is not a tag; leave out white space and ",""#),
        ]);
        assert!(Tag::parse(&"a".repeat(255)).is_ok());
        assert!(Tag::parse(&"a".repeat(256)).is_err());
    }

    #[test]
    fn user_names() {
        accepts::<UserName>(&[("admin", "admin"), ("a.b@c", "a.b@c")]);
        refuses::<UserName>(&[
            ("", "a user name must not be empty"),
            ("a:b", r#""a:b" is not a user name; leave out white space and ":" or ",""#),
            ("a,b", r#""a,b" is not a user name; leave out white space and ":" or ",""#),
            ("a\n", r#""a\n" is not a user name; leave out white space and ":" or ",""#),
        ]);
    }
}
