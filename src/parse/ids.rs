//! Names that Juju gives.

use super::{Invalid, from_text, shown};
use std::fmt;

/// A unit: `worker/0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitName {
    application: String,
    number: u32,
}

impl UnitName {
    fn parse(text: &str) -> Result<Self, Invalid> {
        let refused = || Invalid::new(format!("{} is not a unit; write APPLICATION/NUMBER", shown(text)));
        let (application, number) = text.split_once('/').ok_or_else(refused)?;
        let word = |w: &str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let named = application.starts_with(|c: char| c.is_ascii_lowercase())
            && application.len() <= 255
            && application.split('-').all(word);
        let number: u32 =
            number.parse().ok().filter(|n: &u32| n.to_string() == number).ok_or_else(refused)?;
        if !named {
            return Err(refused());
        }
        Ok(Self { application: application.into(), number })
    }

    /// The application that the unit belongs to.
    pub fn application(&self) -> &str {
        &self.application
    }

    /// Its number within the application.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The names under which its Concourse workers register: `worker-0`, and `worker-0-untagged` for the one without
    /// tags, which no other unit's worker can have.
    pub fn worker_names(&self) -> [String; 2] {
        let name = format!("{}-{}", self.application, self.number);
        [name.clone(), name + "-untagged"]
    }
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.application, self.number)
    }
}

/// A Juju secret: `secret:` and 20 characters; one of another model has that model's UUID before them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretId(String);

impl SecretId {
    fn parse(text: &str) -> Result<Self, Invalid> {
        let bare = text.strip_prefix("secret:").unwrap_or(text);
        let (model, id) = match bare.strip_prefix("//") {
            Some(far) => far.split_once('/').map_or((None, far), |(model, id)| (Some(model), id)),
            None => (None, bare),
        };
        let model_fits =
            model.is_none_or(|m| m.len() == 36 && m.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'));
        if id.len() != 20 || !id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'v')) || !model_fits {
            let sentence =
                format!("{} is not a Juju secret; write secret:ID as juju secrets shows it", shown(text));
            return Err(Invalid::new(sentence));
        }
        Ok(Self(format!("secret:{bare}")))
    }

    /// The text, which the hook tools understand.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

from_text!(UnitName, SecretId);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::tests::{accepts, refuses};

    #[test]
    fn units() {
        accepts::<UnitName>(&[
            ("worker/0", "worker/0"),
            ("gpu-worker2/4294967295", "gpu-worker2/4294967295"),
            ("remote-0b1c2d3e4f/7", "remote-0b1c2d3e4f/7"),
        ]);
        refuses::<UnitName>(&[
            ("worker", r#""worker" is not a unit; write APPLICATION/NUMBER"#),
            ("worker/", r#""worker/" is not a unit; write APPLICATION/NUMBER"#),
            ("worker/00", r#""worker/00" is not a unit; write APPLICATION/NUMBER"#),
            ("worker/+1", r#""worker/+1" is not a unit; write APPLICATION/NUMBER"#),
            ("worker/0/1", r#""worker/0/1" is not a unit; write APPLICATION/NUMBER"#),
            ("Worker/0", r#""Worker/0" is not a unit; write APPLICATION/NUMBER"#),
            ("-worker/0", r#""-worker/0" is not a unit; write APPLICATION/NUMBER"#),
            ("a--b/0", r#""a--b/0" is not a unit; write APPLICATION/NUMBER"#),
            ("../0", r#""../0" is not a unit; write APPLICATION/NUMBER"#),
            ("/0", r#""/0" is not a unit; write APPLICATION/NUMBER"#),
        ]);
        let unit = UnitName::parse("gpu-worker/12").unwrap();
        assert_eq!((unit.application(), unit.number()), ("gpu-worker", 12));
        assert_eq!(unit.worker_names(), ["gpu-worker-12", "gpu-worker-12-untagged"]);
        assert!(UnitName::parse("w/2").unwrap() < UnitName::parse("w/10").unwrap(), "ordered by number");
    }

    #[test]
    fn secrets() {
        let id = "d0erdgfmp25c762i8np0";
        let near = format!("secret:{id}");
        let far = format!("secret://1a2b3c4d-0000-4000-8000-1a2b3c4d5e6f/{id}");
        accepts::<SecretId>(&[(&near, &near), (id, &near), (&far, &far)]);
        let say =
            |text: &str| format!("{text:?} is not a Juju secret; write secret:ID as juju secrets shows it");
        for text in ["", "secret:", "ldap", "secret:d0erdgfmp25c762i8npz", "secret://x/d0erdgfmp25c762i8np0"]
        {
            refuses::<SecretId>(&[(text, &say(text))]);
        }
        refuses::<SecretId>(&[(&format!("--{id}"), &say(&format!("--{id}")))]);
    }
}
