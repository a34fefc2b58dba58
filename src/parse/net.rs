//! Hosts and ports.

use super::{Invalid, from_text, shown};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A DNS name: labels of letters, digits and inner hyphens, in lower case, without a trailing dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsName(String);

impl DnsName {
    fn parse(text: &str) -> Result<Self, Invalid> {
        let labels = || text.split('.');
        let label_fits = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        // A last label of digits alone would be read as a broken IPv4 address.
        let numeric_end = labels().next_back().is_some_and(|l| l.bytes().all(|b| b.is_ascii_digit()));
        if text.len() > 253 || numeric_end || !labels().all(label_fits) {
            return Err(Invalid::new(format!("{} is neither a DNS name nor an IP address", shown(text))));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A host: an IP address (IPv6 without brackets) or a DNS name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// An IP address.
    Ip(IpAddr),
    /// A DNS name.
    Name(DnsName),
}

impl Host {
    fn parse(text: &str) -> Result<Self, Invalid> {
        match text.parse() {
            Ok(ip) => Ok(Self::Ip(ip)),
            Err(_) => DnsName::parse(text).map(Self::Name),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => write!(f, "{ip}"),
            Self::Name(name) => write!(f, "{name}"),
        }
    }
}

/// A host and a port: `10.0.0.5:2222`, `[fd00::5]:2222` or `ci.example.com:2222`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    host: Host,
    port: u16,
}

impl HostPort {
    /// `None`: there is no port 0.
    pub fn new(host: Host, port: u16) -> Option<Self> {
        (port != 0).then_some(Self { host, port })
    }

    fn parse(text: &str) -> Result<Self, Invalid> {
        let no_port = || Invalid::new(format!("{} has no port; write HOST:PORT", shown(text)));
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (ip, port) = rest.split_once("]:").ok_or_else(no_port)?;
                let not_ip =
                    |_| Invalid::new(format!("{} holds no IPv6 address in its brackets", shown(text)));
                (Host::Ip(ip.parse::<Ipv6Addr>().map_err(not_ip)?.into()), port)
            }
            None => {
                let (host, port) = text.rsplit_once(':').ok_or_else(no_port)?;
                if host.contains(':') {
                    let sentence = format!("{} needs brackets; write [IPV6]:PORT", shown(text));
                    return Err(Invalid::new(sentence));
                }
                (Host::parse(host)?, port)
            }
        };
        let digits = (1..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit());
        let number = if digits { port.parse().unwrap_or(0) } else { 0 };
        Self::new(host, number)
            .ok_or_else(|| Invalid::new(format!("{} is not a port; use 1 to 65535", shown(port))))
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port, never 0.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
            host => write!(f, "{host}:{}", self.port),
        }
    }
}

from_text!(DnsName, Host, HostPort);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::tests::{accepts, refuses};

    #[test]
    fn hosts_with_ports() {
        accepts::<HostPort>(&[
            ("10.0.0.5:2222", "10.0.0.5:2222"),
            ("[fd00:0::5]:1", "[fd00::5]:1"),
            ("[::ffff:10.0.0.5]:80", "[::ffff:10.0.0.5]:80"),
            ("CI.Example.com:65535", "ci.example.com:65535"),
            ("localhost:080", "localhost:80"),
            ("juju-3f2a1b-0.lxd:2222", "juju-3f2a1b-0.lxd:2222"),
        ]);
        refuses::<HostPort>(&[
            ("", r#""" has no port; write HOST:PORT"#),
            ("10.0.0.5", r#""10.0.0.5" has no port; write HOST:PORT"#),
            ("10.0.0.5:", r#""" is not a port; use 1 to 65535"#),
            ("10.0.0.5:0", r#""0" is not a port; use 1 to 65535"#),
            ("10.0.0.5:65536", r#""65536" is not a port; use 1 to 65535"#),
            ("10.0.0.5:+22", r#""+22" is not a port; use 1 to 65535"#),
            ("10.0.0.5:2222\nPATH=/x", r#""2222\nPATH=/x" is not a port; use 1 to 65535"#),
            ("10.0.0.256:2222", r#""10.0.0.256" is neither a DNS name nor an IP address"#),
            ("010.0.0.1:2222", r#""010.0.0.1" is neither a DNS name nor an IP address"#),
            (":2222", r#""" is neither a DNS name nor an IP address"#),
            ("-ci.example:2222", r#""-ci.example" is neither a DNS name nor an IP address"#),
            ("a b:2222", r#""a b" is neither a DNS name nor an IP address"#),
            ("user@ci:2222", r#""user@ci" is neither a DNS name nor an IP address"#),
            ("ci.example.:2222", r#""ci.example." is neither a DNS name nor an IP address"#),
            ("fd00::5:2222", r#""fd00::5:2222" needs brackets; write [IPV6]:PORT"#),
            ("[fe80::1%eth0]:2222", r#""[fe80::1%eth0]:2222" holds no IPv6 address in its brackets"#),
            ("[10.0.0.5]:2222", r#""[10.0.0.5]:2222" holds no IPv6 address in its brackets"#),
            ("[::1]", r#""[::1]" has no port; write HOST:PORT"#),
        ]);
    }

    #[test]
    fn a_name_has_bounds() {
        let label = "a".repeat(63);
        assert!(DnsName::parse(&label).is_ok());
        assert!(DnsName::parse(&format!("{label}a")).is_err());
        assert!(DnsName::parse(&[label.as_str(); 4].join(".")).is_err());
    }

    #[test]
    fn hosts_stand_without_brackets() {
        accepts::<Host>(&[("FD00::5", "fd00::5"), ("10.0.0.5", "10.0.0.5"), ("Db.lxd", "db.lxd")]);
        let at: HostPort = "[fd00::5]:2222".parse().unwrap();
        assert_eq!((at.host().to_string().as_str(), at.port()), ("fd00::5", 2222));
        assert_eq!(HostPort::new(at.host().clone(), 0), None);
    }
}
