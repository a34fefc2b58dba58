//! Branches of NVIDIA's driver.

use super::{Invalid, from_text, shown};
use std::fmt;

/// A branch as Ubuntu's packages name it: `550`, `550-server`, `550-open`, `550-server-open`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverBranch {
    /// `550`
    pub number: u32,
    /// For servers: supported for longer.
    pub server: bool,
    /// With NVIDIA's open kernel module.
    pub open: bool,
}

impl DriverBranch {
    fn parse(text: &str) -> Result<Self, Invalid> {
        let refused = || {
            let text = shown(text);
            Invalid::new(format!(
                "{text} is no branch of NVIDIA's driver; write auto, 550, 550-server or 550-server-open"
            ))
        };
        let (number, kind) = text.split_once('-').unwrap_or((text, ""));
        let number = number.parse().ok().filter(|n: &u32| (300..1000).contains(n) && number.len() == 3);
        let (server, open) = match kind {
            "" if !text.ends_with('-') => (false, false),
            "server" => (true, false),
            "open" => (false, true),
            "server-open" => (true, true),
            _ => return Err(refused()),
        };
        Ok(Self { number: number.ok_or_else(refused)?, server, open })
    }

    /// The same with the open module or without.
    pub fn opened(self, open: bool) -> Self {
        Self { open, ..self }
    }
}

impl fmt::Display for DriverBranch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, open) = (if self.server { "-server" } else { "" }, if self.open { "-open" } else { "" });
        write!(f, "{}{server}{open}", self.number)
    }
}

from_text!(DriverBranch);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::tests::{accepts, refuses};

    #[test]
    fn branches() {
        let good = ["550", "550-server", "550-open", "580-server-open"];
        accepts::<DriverBranch>(&good.map(|text| (text, text)));
        for text in [
            "",
            "-",
            "550-",
            "55",
            "5500",
            "+55",
            "550-desktop",
            "550-open-server",
            "550.163.01",
            "nvidia-550",
        ] {
            let why = format!(
                "{text:?} is no branch of NVIDIA's driver; write auto, 550, 550-server or 550-server-open"
            );
            refuses::<DriverBranch>(&[(text, &why)]);
        }
    }
}
