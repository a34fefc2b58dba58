//! `ld.so.cache`, version 1.1, as glibc has read it since 2.2 (PURE).
//!
//! Running `ldconfig` costs a process and a look at every library of the image. The driver's entries are known, and the
//! image's own stand in its cache: so they are put together. An image whose cache was out of date or absent is left so.

use super::plan::Library;
use std::cmp::Ordering;
use std::collections::HashMap;

const MAGIC: &[u8; 20] = b"glibc-ld.so.cache1.1";
/// Before glibc 2.32, `ldconfig` wrote the format of libc5 in front.
const OLD_MAGIC: &[u8; 12] = b"ld.so-1.7.0\0";
const EXTENSION_MAGIC: u32 = 0xeaa4_2174;
const HEADER: usize = 48;
const ENTRY: usize = 24;
/// `hwcap` is an index into the names of glibc-hwcaps subdirectories, since 2.33.
const NAMED_HWCAP: u64 = 1 << 62;

/// A cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    entries: Vec<Entry>,
    /// Names of glibc-hwcaps subdirectories, in their order.
    hwcaps: Vec<Vec<u8>>,
    /// Which `ldconfig` made it.
    generator: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    flags: u32,
    name: Vec<u8>,
    path: Vec<u8>,
    os: u32,
    hwcap: u64,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn index_at(bytes: &[u8], at: usize) -> Option<usize> {
    u32_at(bytes, at).map(|n| n as usize)
}

fn string_at(bytes: &[u8], at: usize) -> Option<Vec<u8>> {
    let rest = bytes.get(at..)?;
    // Longer than any path: a file without NULs would else be copied once for each entry.
    let rest = &rest[..rest.len().min(4097)];
    Some(rest[..rest.iter().position(|b| *b == 0)?].to_vec())
}

impl Cache {
    /// `None`: not of this format. glibc ignores such a file too.
    pub fn decode(file: &[u8]) -> Option<Self> {
        let file = match file.strip_prefix(OLD_MAGIC) {
            None => file,
            Some(old) => {
                let end = OLD_MAGIC.len() + 4 + index_at(old, 0)?.checked_mul(12)?;
                file.get(end.checked_next_multiple_of(8)?..)?
            }
        };
        if file.get(..20)? != MAGIC {
            return None;
        }
        let count = index_at(file, 20)?;
        let table = file.get(HEADER..HEADER.checked_add(count.checked_mul(ENTRY)?)?)?;
        let entry = |e: &[u8]| {
            Some(Entry {
                flags: u32_at(e, 0)?,
                name: string_at(file, index_at(e, 4)?)?,
                path: string_at(file, index_at(e, 8)?)?,
                os: u32_at(e, 12)?,
                hwcap: u64::from_le_bytes(e.get(16..24)?.try_into().ok()?),
            })
        };
        let entries = table.chunks_exact(ENTRY).map(entry).collect::<Option<Vec<_>>>()?;
        let mut cache = Self { entries, ..Self::default() };
        let start = index_at(file, 32)?;
        if start != 0 && u32_at(file, start) == Some(EXTENSION_MAGIC) {
            for section in file.get(start + 8..)?.chunks_exact(16).take(index_at(file, start + 4)?) {
                let (offset, size) = (index_at(section, 8)?, index_at(section, 12)?);
                let content = file.get(offset..offset.checked_add(size)?)?;
                match u32_at(section, 0)? {
                    0 => cache.generator = content.to_vec(),
                    1 => {
                        let name = |at: &[u8]| string_at(file, index_at(at, 0)?);
                        cache.hwcaps = content.chunks_exact(4).map(name).collect::<Option<_>>()?;
                    }
                    _ => {}
                }
            }
        }
        Some(cache)
    }

    /// Puts libraries before those of equal names.
    pub fn add(&mut self, libraries: &[Library]) {
        let fresh: Vec<Entry> = libraries
            .iter()
            .map(|l| Entry {
                flags: l.flags,
                name: l.name.clone().into(),
                path: l.path.clone().into(),
                os: 0,
                hwcap: 0,
            })
            .collect();
        self.entries.retain(|e| !fresh.iter().any(|f| f.name == e.name && f.path == e.path));
        self.entries.splice(0..0, fresh);
        self.entries.sort_by(order);
    }

    /// The file.
    pub fn encode(&self) -> Vec<u8> {
        let mut strings = Strings { start: HEADER + ENTRY * self.entries.len(), ..Strings::default() };
        let mut table = Vec::with_capacity(ENTRY * self.entries.len());
        for entry in &self.entries {
            let path = strings.offset(&entry.path);
            // As ldconfig does it: the name is the end of the path.
            let tail =
                entry.path.len().checked_sub(entry.name.len()).filter(|_| entry.path.ends_with(&entry.name));
            let name = tail.map_or_else(|| strings.offset(&entry.name), |tail| path + tail as u32);
            for number in [entry.flags, name, path, entry.os] {
                table.extend(number.to_le_bytes());
            }
            table.extend(entry.hwcap.to_le_bytes());
        }
        let hwcaps: Vec<u8> =
            self.hwcaps.iter().flat_map(|name| strings.offset(name).to_le_bytes()).collect();
        let length = strings.bytes.len() as u32;
        while !(strings.start + strings.bytes.len()).is_multiple_of(4) {
            strings.bytes.push(0);
        }
        let extension = strings.start + strings.bytes.len();
        let sections: Vec<(u32, &[u8])> = [(1, hwcaps.as_slice()), (0, self.generator.as_slice())]
            .into_iter()
            .filter(|s| !s.1.is_empty())
            .collect();

        let mut file = MAGIC.to_vec();
        let little_endian = 2u32;
        let at = if sections.is_empty() { 0 } else { extension as u32 };
        for number in [self.entries.len() as u32, length, little_endian, at, 0, 0, 0] {
            file.extend(number.to_le_bytes());
        }
        file.extend(table);
        file.extend(strings.bytes);
        if !sections.is_empty() {
            let mut offset = extension + 8 + 16 * sections.len();
            file.extend(EXTENSION_MAGIC.to_le_bytes());
            file.extend((sections.len() as u32).to_le_bytes());
            for (tag, content) in &sections {
                for number in [*tag, 0, offset as u32, content.len() as u32] {
                    file.extend(number.to_le_bytes());
                }
                offset += content.len();
            }
            sections.iter().for_each(|(_, content)| file.extend(*content));
        }
        file
    }
}

/// Strings, each once.
#[derive(Default)]
struct Strings<'a> {
    start: usize,
    bytes: Vec<u8>,
    known: HashMap<&'a [u8], u32>,
}

impl<'a> Strings<'a> {
    fn offset(&mut self, string: &'a [u8]) -> u32 {
        let (start, bytes) = (self.start, &mut self.bytes);
        *self.known.entry(string).or_insert_with(|| {
            let at = (start + bytes.len()) as u32;
            bytes.extend(string);
            bytes.push(0);
            at
        })
    }
}

/// `ldconfig`'s order, by which ld.so searches: names downwards; what it may pick first among equals, first.
fn order(a: &Entry, b: &Entry) -> Ordering {
    let named = |e: &Entry| e.hwcap & NAMED_HWCAP != 0;
    names(&b.name, &a.name).then(a.flags.cmp(&b.flags)).then_with(|| match (named(a), named(b)) {
        (true, true) => Ordering::Equal,
        (false, false) => b.hwcap.cmp(&a.hwcap),
        (a, b) => b.cmp(&a),
    })
}

/// glibc's `_dl_cache_libcmp`: runs of digits are numbers, and greater than other characters.
fn names(mut a: &[u8], mut b: &[u8]) -> Ordering {
    fn number(text: &mut &[u8]) -> i32 {
        let mut value = 0i32;
        while let Some((digit, rest)) = text.split_first().filter(|(d, _)| d.is_ascii_digit()) {
            value = value.wrapping_mul(10).wrapping_add(i32::from(digit - b'0'));
            *text = rest;
        }
        value
    }
    while let Some(&x) = a.first() {
        let y = b.first().copied().unwrap_or(0);
        match (x.is_ascii_digit(), y.is_ascii_digit()) {
            (true, true) => match number(&mut a).cmp(&number(&mut b)) {
                Ordering::Equal => {}
                unequal => return unequal,
            },
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (false, false) if x != y => return x.cmp(&y),
            (false, false) => (a, b) = (&a[1..], &b[1..]),
        }
    }
    if b.is_empty() { Ordering::Equal } else { Ordering::Less }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
