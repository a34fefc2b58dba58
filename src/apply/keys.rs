//! Keys and passwords are made here, and nowhere else.

use crate::host::cmd::cmd;
use crate::host::fs::{self, Root};
use crate::juju::tools::Bag;
use crate::paths;
use crate::step::{KeyKind, SecretSource};
use anyhow::{Context, Result, ensure};
use std::fs::{File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Makes an RSA key, the only kind that Concourse takes, in the one format that both it and OpenSSH read; in a private
/// directory beside its place. The private half is moved last, so that a pair is there whole or is made again.
///
/// 3072 bits, as ssh-keygen takes by itself, are as strong as a secret of 128 (NIST SP 800-57); 4096 take half as long again
/// to make, and are longer in the bags of a thousand workers.
pub fn generate(root: &Root, kind: KeyKind, path: &str) -> Result<()> {
    let target = root.path(path);
    let dir = target.parent().context("a key needs a directory")?;
    fs::make_dir(dir)?;
    let temp = tempfile::Builder::new()
        .prefix(fs::UNFINISHED)
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(dir)?;
    let made = temp.path().join("key");
    cmd("ssh-keygen")
        .args(["-q", "-t", "rsa", "-b", "3072", "-m", "PEM", "-N", "", "-C", "", "-f"])
        .arg(&made)
        .run()?;
    if kind == KeyKind::Ssh {
        rename(&made.with_extension("pub"), &target.with_extension("pub"))?;
    }
    rename(&made, &target)
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).with_context(|| format!("failed to move a key to {}", to.display()))
}

/// The content of a shared secret.
pub fn content(root: &Root, source: SecretSource) -> Result<Bag> {
    let read = |path: &str| fs::read(&root.path(path))?.with_context(|| format!("{path} is missing"));
    let pairs = match source {
        SecretSource::KeyFiles => vec![
            ("tsa-host-key", read(paths::HOST_KEY)?),
            ("tsa-public-key", read(paths::HOST_KEY_PUB)?.trim().to_owned()),
            ("session-signing-key", read(paths::SESSION_KEY)?),
        ],
        SecretSource::NewPassword => vec![("password", random_text(32)?)],
    };
    Ok(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// Letters and digits from the kernel's random numbers: nearly 6 bits each.
pub fn random_text(length: usize) -> Result<String> {
    const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut source = File::open("/dev/urandom").context("failed to open /dev/urandom")?;
    let mut text = String::with_capacity(length);
    let mut bytes = [0u8; 64];
    while text.len() < length {
        source.read_exact(&mut bytes)?;
        // Without the remainder of 256 / 62 no letter is likelier than another.
        let fair = bytes.iter().filter(|b| **b < 248).map(|b| char::from(ALPHABET[usize::from(*b) % 62]));
        text.extend(fair.take(length - text.len()));
    }
    ensure!(text.len() == length, "random text came out short");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_long_and_never_the_same() {
        let made: std::collections::BTreeSet<String> = (0..100).map(|_| random_text(32).unwrap()).collect();
        assert_eq!(made.len(), 100);
        assert!(made.iter().all(|p| p.len() == 32 && p.chars().all(|c| c.is_ascii_alphanumeric())));
    }
}
