//! Keys that sign repositories (PURE). A machine need not have gpg for this: a fingerprint is a digest of the key itself.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

/// What begins a key, what belongs to it comes after it (RFC 9580 §10.1).
const PUBLIC_KEY: u8 = 6;

/// The key with this fingerprint out of a file of keys, as apt takes it; others that are in it are left out.
///
/// # Errors
/// It is not in there; the fingerprints that are.
pub fn extract(file: &[u8], fingerprint: &str) -> Result<Vec<u8>, String> {
    let bytes = binary(file).ok_or("it is no key")?;
    let (mut wanted, mut seen, mut taking) = (vec![], vec![], false);
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let (tag, body, whole) = packet(rest).ok_or("it is no key")?;
        if tag == PUBLIC_KEY {
            let found = fingerprint_of(body).unwrap_or_default();
            taking = found == fingerprint;
            seen.push(found);
        }
        if taking {
            wanted.extend_from_slice(&rest[..whole]);
        }
        rest = &rest[whole..];
    }
    match wanted.is_empty() {
        true if seen.is_empty() => Err("it is no key".into()),
        true => Err(format!("it has the fingerprint {} instead of {fingerprint}", seen.join(" and "))),
        false => Ok(wanted),
    }
}

/// Without its armour, if it has one.
fn binary(file: &[u8]) -> Option<Vec<u8>> {
    let Some(text) = std::str::from_utf8(file).ok().filter(|text| text.contains("-----BEGIN PGP")) else {
        return Some(file.to_vec());
    };
    let mut all = vec![];
    for block in text.split("-----BEGIN PGP PUBLIC KEY BLOCK-----").skip(1) {
        let body = block.split("-----END PGP").next()?.replace('\r', "");
        // Headers end with an empty line, the data with a checksum that a right fingerprint makes needless.
        let (_headers, data) = body.split_once("\n\n")?;
        let data: String = data.lines().map(str::trim).take_while(|line| !line.starts_with('=')).collect();
        all.extend(STANDARD.decode(data).ok()?);
    }
    Some(all)
}

/// The kind, body and whole length of the first packet (RFC 9580 §4.2).
fn packet(bytes: &[u8]) -> Option<(u8, &[u8], usize)> {
    let number = |at: usize, size: usize| {
        let digits = bytes.get(at..at + size)?;
        Some(digits.iter().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte)))
    };
    let first = *bytes.first()?;
    let (tag, start, length) = match first {
        0xc0.. => match *bytes.get(1)? {
            short @ ..192 => (first & 0x3f, 2, usize::from(short)),
            high @ 192..224 => (first & 0x3f, 3, ((usize::from(high) - 192) << 8) + number(2, 1)? + 192),
            255 => (first & 0x3f, 6, number(2, 4)?),
            _ => return None,
        },
        0x80.. if first & 3 < 3 => {
            let size = 1 << (first & 3);
            (first >> 2 & 0xf, 1 + size, number(1, size)?)
        }
        _ => return None,
    };
    let end = start.checked_add(length)?;
    Some((tag, bytes.get(start..end)?, end))
}

/// Of a key of version 4 (RFC 9580 §5.5.4.2), the only one that repositories have.
fn fingerprint_of(body: &[u8]) -> Option<String> {
    let length = u16::try_from(body.len()).ok()?;
    if body.first() != Some(&4) {
        return None;
    }
    let digest =
        Sha1::new().chain_update([0x99]).chain_update(length.to_be_bytes()).chain_update(body).finalize();
    Some(digest.iter().map(|byte| format!("{byte:02X}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `gpg --quick-gen-key test ed25519 sign`, exported with `--armor`.
    const ARMOURED: &str = include_str!("../../tests/packages/key.asc");
    const FINGERPRINT: &str = include_str!("../../tests/packages/key.fingerprint");

    #[test]
    fn the_one_that_is_known_is_taken_and_no_other() {
        let fingerprint = FINGERPRINT.trim();
        let key = extract(ARMOURED.as_bytes(), fingerprint).unwrap();
        assert_eq!(extract(&key, fingerprint).unwrap(), key, "without armour it is the same");
        let why = extract(ARMOURED.as_bytes(), "0000").unwrap_err();
        assert_eq!(why, format!("it has the fingerprint {fingerprint} instead of 0000"));

        // A stranger's key behind the known one does not come along.
        let mut other = key.clone();
        other[30] ^= 1;
        let both = [key.clone(), other.clone()].concat();
        assert_eq!(extract(&both, fingerprint).unwrap(), key);
        assert!(extract(&other, fingerprint).is_err());
    }

    #[test]
    fn what_is_no_key() {
        let whole = extract(ARMOURED.as_bytes(), FINGERPRINT.trim()).unwrap();
        for garbage in [
            &b""[..],
            b"<html>404</html>",
            b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!!\n",
            &whole[..40],
            &[0xff; 9],
        ] {
            assert_eq!(extract(garbage, FINGERPRINT.trim()), Err("it is no key".into()), "{garbage:?}");
        }
    }
}
