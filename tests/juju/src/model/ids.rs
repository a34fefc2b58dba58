//! Random ids in the shapes that Juju uses.

use std::fs::File;
use std::io::Read;

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // A host without /dev/urandom gets zeroes: ids repeat, and the tests say so.
    let _ = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    bytes
}

/// 32 hexadecimal digits.
pub fn hex() -> String {
    random::<16>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A model's id.
pub fn uuid() -> String {
    let hex = hex();
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}

/// A secret's id: 20 characters of `0-9a-v`.
pub fn xid() -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
    random::<20>().iter().map(|byte| char::from(DIGITS[usize::from(byte % 32)])).collect()
}
