//! RSA private keys as files. The real program reads PKCS#1 and PKCS#8 under any heading (its own `generate-key`
//! writes PKCS#1 headed `PRIVATE KEY`); OpenSSH is stricter, so it is given a copy with the right heading.

use anyhow::{Context, Result, anyhow, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The key's DER bytes and the heading that fits them.
fn read(path: &str) -> Result<(Vec<u8>, &'static str)> {
    let text =
        fs::read_to_string(path).with_context(|| format!("failed to read private key file ({path})"))?;
    let unfit = || anyhow!("invalid key: Key must be a PEM encoded PKCS1 or PKCS8 key");
    let begin = text.find("-----BEGIN ").ok_or_else(unfit)?;
    let body = text[begin..].split_once("-----\n").ok_or_else(unfit)?.1;
    let body = body.split("-----END").next().ok_or_else(unfit)?;
    let der = STANDARD.decode(body.split_whitespace().collect::<String>()).map_err(|_| unfit())?;
    let heading = heading(&der).ok_or_else(unfit)?;
    Ok((der, heading))
}

/// PKCS#1 is SEQUENCE{0, modulus, …}; PKCS#8 is SEQUENCE{0, SEQUENCE{rsaEncryption, …}, …}.
fn heading(der: &[u8]) -> Option<&'static str> {
    const RSA_OID: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    let skip = match (der.first()?, der.get(1)?) {
        (0x30, n) if *n < 0x80 => 2,
        (0x30, n) => 2 + usize::from(n & 0x7f),
        _ => return None,
    };
    let rest = der.get(skip..)?.strip_prefix(&[0x02, 0x01, 0x00])?;
    match rest.first()? {
        0x02 => Some("RSA PRIVATE KEY"),
        0x30 if rest.windows(RSA_OID.len()).take(16).any(|w| w == RSA_OID) => Some("PRIVATE KEY"),
        _ => None,
    }
}

/// Checks that the file holds an RSA key that this user can read.
pub fn check(path: &str) -> Result<()> {
    read(path).map(|_| ())
}

/// Writes a copy that OpenSSH accepts: right heading, mode 0600.
pub fn copy_for_openssh(from: &str, to: &Path) -> Result<()> {
    let (der, heading) = read(from)?;
    write(to, &encode(&der, heading), 0o600)
}

/// Gives the key in `path` the heading that the real `generate-key` writes.
pub fn head_like_generate_key(path: &Path) -> Result<()> {
    let (der, heading) = read(path.to_str().context("path")?)?;
    if heading != "RSA PRIVATE KEY" {
        bail!("ssh-keygen wrote an unexpected kind of key");
    }
    fs::write(path, encode(&der, "PRIVATE KEY")).context("failed to write key")
}

fn encode(der: &[u8], heading: &str) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|i| &text[i..text.len().min(i + 64)]).collect();
    format!("-----BEGIN {heading}-----\n{}\n-----END {heading}-----\n", lines.join("\n"))
}

/// Writes a file with exactly this mode, replacing an older one.
pub fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    use std::io::Write;
    let _ = fs::remove_file(path);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::heading;

    #[test]
    fn headings() {
        let pkcs1 = [0x30, 0x82, 1, 2, 0x02, 0x01, 0x00, 0x02, 0x82, 1];
        assert_eq!(heading(&pkcs1), Some("RSA PRIVATE KEY"));
        let mut pkcs8 = vec![0x30, 0x82, 1, 2, 0x02, 0x01, 0x00, 0x30, 0x0d, 0x06, 0x09];
        pkcs8.extend([0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01]);
        assert_eq!(heading(&pkcs8), Some("PRIVATE KEY"));
        assert_eq!(heading(b"openssh-key-v1\0"), None);
        assert_eq!(heading(&[]), None);
    }
}
