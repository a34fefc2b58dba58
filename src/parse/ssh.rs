//! SSH public keys, which decide who may register as a worker.

use super::{Invalid, from_text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ssh_key::public::KeyData;
use std::fmt;

/// A public key as one line of OpenSSH: type and key, without options or comment. RSA (of 2048 bits or more),
/// Ed25519 or ECDSA.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(String);

impl PublicKey {
    fn parse(text: &str) -> Result<Self, Invalid> {
        const LONGEST: usize = 16 * 1024;
        const SHORTEST_RSA: usize = 2048;

        // A key file ends in a line break; one within would be a second key.
        let line = text.trim();
        if line.len() > LONGEST {
            return Err(Invalid::new("the public key is longer than 16 KiB"));
        }
        if line.chars().any(char::is_control) {
            return Err(Invalid::new("the public key has a line break or control character; give one line"));
        }
        let mut words = line.split(' ').filter(|w| !w.is_empty());
        let (Some(kind), Some(key)) = (words.next(), words.next()) else {
            return Err(Invalid::new("the public key is not one line of OpenSSH: a type and a key"));
        };

        let line = format!("{kind} {key}");
        if let Some(curve) = kind.strip_prefix("ecdsa-sha2-") {
            return match ecdsa(kind, curve, key) {
                Some(()) => Ok(Self(line)),
                None => Err(Invalid::new("the public key is damaged: it is no ECDSA key")),
            };
        }
        if !["ssh-rsa", "ssh-ed25519"].contains(&kind) {
            let sentence = "the public key starts with options or another type; give ssh-rsa, ssh-ed25519 or ecdsa-sha2-*";
            return Err(Invalid::new(sentence));
        }
        let parsed = ssh_key::PublicKey::from_openssh(&line)
            .map_err(|why| Invalid::new(format!("the public key is damaged: {why}")))?;
        if let KeyData::Rsa(rsa) = parsed.key_data() {
            let bits = rsa.n.as_positive_bytes().map_or(0, bits);
            if bits < SHORTEST_RSA {
                let sentence = format!("the public key is RSA of {bits} bits; use {SHORTEST_RSA} or more");
                return Err(Invalid::new(sentence));
            }
        }
        // As we would write it: a key in two spellings is one key.
        parsed.to_openssh().map(Self).map_err(|_| Invalid::new("the public key can't be written back"))
    }

    /// The line, without a line break.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

from_text!(PublicKey);

/// Checks the form of an ECDSA key; ssh-key would need another crate to do that.
fn ecdsa(kind: &str, curve: &str, key: &str) -> Option<()> {
    let coordinate = match curve {
        "nistp256" => 32,
        "nistp384" => 48,
        "nistp521" => 66,
        _ => return None,
    };
    let mut head = Vec::new();
    for word in [kind, curve] {
        head.extend((word.len() as u32).to_be_bytes());
        head.extend(word.bytes());
    }
    // Then the point: its length, 4 for "not compressed", and two coordinates.
    head.extend((1 + 2 * coordinate as u32).to_be_bytes());
    head.push(4);
    let blob = STANDARD.decode(key).ok()?;
    (blob.starts_with(&head) && blob.len() == head.len() + 2 * coordinate).then_some(())
}

fn bits(number: &[u8]) -> usize {
    let zeros = number.iter().take_while(|b| **b == 0).count();
    number.get(zeros).map_or(0, |top| (number.len() - zeros) * 8 - top.leading_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::tests::{accepts, refuses};

    // Made with ssh-keygen for this test; the private halves were never kept.
    const ED25519: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAlRgH3LqmsG1HVIiq240N2xKNi4t4YaeLayOrGtZ7Z3";
    const ECDSA: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBLEwW6tu1LQyV2x0ggCbrVBK\
         zK5w7afQ6Sp1aZcyAuy1KWhWuEKpftkcwmo7wPL/wkKOND7bN5eSyQhOawX3UjQ=";
    const RSA: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCeO8JJOR9tRFmgiZPw3mp1E/R7WFtweJaDEPveWZp8K7UCo4bjREEtT0bO\
         o7MjhB+YiMqo7ja4dyXysmOMgQ55gwphMOGXsV9KWU1kjmrLXbFXPjrQZfROhO/0zHsSuoUjVvIv3senrva8OPHSaGwGP6C0\
         MRNjpNMaCwxpX1KH32BDB4IG0OO1xGZP1aj/MtFw9CQM2qlgM6dapCyP9/QkAGEvJshhrBL7hp7Afyuf0TGzhTmVv/z5GnUd\
         bzUoxq2CervYvHhYlghBVYuMXLGy6JmL5HNGcFzljVMoXSTQPpVfLjG3kc2A2Kfj6gmNnCmnMoj2e43YazEh5BbW8XH/";
    const RSA_1024: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQCoOqjXQ6PZbPZ9YOkNyVd32AA4Sp2pIIxZwMadjaMV/UY+JdQLXXwqq9zA\
         vJo7BWrOhEyx7M3NayYTgBkp1IAqqdeU3XZajioRHGxfVVuGyJWVrzjO/U4b2/aL8ylhQ5MtDYNVk6f8ivXBPIISkJkQDGZf\
         Zcpv8S+VzrDfwS4McQ==";

    #[test]
    fn keys_of_each_type() {
        for key in [ED25519, ECDSA, RSA] {
            let with_comment = format!("{key} root@worker 0\n");
            accepts::<PublicKey>(&[(key, key), (&with_comment, key)]);
        }
    }

    #[test]
    fn what_could_carry_more_than_a_key_is_refused() {
        let options = format!("command=\"/bin/sh\" {ED25519}");
        let two = format!("{ED25519}\n{ECDSA}");
        let long = format!("{ED25519} {}", "x".repeat(16 * 1024));
        let renamed = ED25519.replace("ssh-ed25519", "ssh-rsa");
        let cut = &RSA[..RSA.len() - 8];
        let curve = ECDSA.replace("nistp256", "nistp384");
        let form = "the public key is not one line of OpenSSH: a type and a key";
        let kind =
            "the public key starts with options or another type; give ssh-rsa, ssh-ed25519 or ecdsa-sha2-*";
        refuses::<PublicKey>(&[
            ("", form),
            ("ssh-ed25519", form),
            (&options, kind),
            ("ssh-dss AAAA", kind),
            ("-----BEGIN OPENSSH PRIVATE KEY-----", kind),
            (&two, "the public key has a line break or control character; give one line"),
            (&long, "the public key is longer than 16 KiB"),
            (RSA_1024, "the public key is RSA of 1024 bits; use 2048 or more"),
            (&curve, "the public key is damaged: it is no ECDSA key"),
            ("ecdsa-sha2-nistp256 AAAA", "the public key is damaged: it is no ECDSA key"),
        ]);
        for damaged in [renamed.as_str(), cut, "ssh-ed25519 !!!!"] {
            let why = PublicKey::parse(damaged).unwrap_err().to_string();
            assert!(why.starts_with("the public key is damaged: "), "{why}");
        }
    }

    #[test]
    fn leading_zeros_are_no_bits() {
        assert_eq!((bits(&[]), bits(&[0, 0]), bits(&[0, 1, 0]), bits(&[0xff])), (0, 0, 9, 8));
    }
}
