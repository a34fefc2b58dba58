//! The few things that are read of a shared library: what it is, its soname, NVIDIA's note on compatibility.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Tables are read whole; none of a library comes near this.
const LARGEST: u64 = 4 << 20;

/// A shared library of this byte order, 64 bits or 32.
pub struct Elf<'a> {
    file: &'a File,
    wide: bool,
    machine: u16,
    header: Vec<u8>,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A string up to its NUL.
fn text_at(bytes: &[u8], at: usize) -> Option<&str> {
    let rest = bytes.get(at..)?;
    std::str::from_utf8(&rest[..rest.iter().position(|b| *b == 0)?]).ok()
}

impl<'a> Elf<'a> {
    /// `None`: no ELF shared library.
    pub fn read(file: &'a File) -> Option<Self> {
        let mut header = vec![0; 64];
        file.read_exact_at(&mut header, 0).ok()?;
        let shared_object = 3;
        if &header[..4] != b"\x7fELF" || header[5] != 1 || u16_at(&header, 16)? != shared_object {
            return None;
        }
        Some(Self { file, wide: header[4] == 2, machine: u16_at(&header, 18)?, header })
    }

    /// As `ld.so.cache` marks libraries of glibc (`FLAG_ELF_LIBC6` and the architecture's).
    pub fn cache_flags(&self) -> Option<u32> {
        match (self.machine, self.wide) {
            (62, true) => Some(0x0303),  // x86-64
            (3, false) => Some(0x0003),  // i386
            (183, true) => Some(0x0a03), // AArch64
            _ => None,
        }
    }

    /// An address or offset: 8 bytes or 4.
    fn word(&self, bytes: &[u8], at: usize) -> Option<u64> {
        if !self.wide {
            return u32_at(bytes, at).map(u64::from);
        }
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    }

    fn bytes(&self, offset: u64, size: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(size).ok().filter(|_| size <= LARGEST)?];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    /// A table that the header names: entries of equal size. Arguments are offsets in the header, for 64 bits and 32.
    fn table(&self, offset: (usize, usize), size: (usize, usize)) -> Option<Vec<Vec<u8>>> {
        let pick = |(wide, narrow)| if self.wide { wide } else { narrow };
        let start = self.word(&self.header, pick(offset))?;
        let each = usize::from(u16_at(&self.header, pick(size))?);
        let count = u64::from(u16_at(&self.header, pick(size) + 2)?);
        let bytes = self.bytes(start, count * each as u64)?;
        Some(bytes.chunks_exact(each.max(1)).map(<[u8]>::to_vec).collect())
    }

    /// The name by which others ask for it.
    pub fn soname(&self) -> Option<String> {
        let segments = self.table((32, 28), (54, 42))?;
        // (type, offset, address, size in the file)
        let segment = |s: &Vec<u8>| {
            let at = if self.wide { (8, 16, 32) } else { (4, 8, 16) };
            Some((u32_at(s, 0)?, self.word(s, at.0)?, self.word(s, at.1)?, self.word(s, at.2)?))
        };
        let segments: Vec<_> = segments.iter().filter_map(segment).collect();
        let (load, dynamic) = (1, 2);
        let (_, offset, _, size) = *segments.iter().find(|s| s.0 == dynamic)?;
        let bytes = self.bytes(offset, size)?;
        let each = if self.wide { 16 } else { 8 };
        let entry = |tag: u64| {
            let of = bytes.chunks_exact(each).find(|e| self.word(e, 0) == Some(tag))?;
            self.word(of, each / 2)
        };
        let (strings, strings_size, soname) = (entry(5)?, entry(10)?, entry(14)?);
        let (_, offset, address, _) =
            *segments.iter().find(|s| s.0 == load && (s.2..s.2.saturating_add(s.3)).contains(&strings))?;
        let strings = self.bytes(offset.checked_add(strings - address)?, strings_size)?;
        text_at(&strings, usize::try_from(soname).ok()?)
            .filter(|n| !n.is_empty() && !n.contains('/'))
            .map(Into::into)
    }

    /// The description of NVIDIA's note in that section.
    pub fn note(&self, section: &str) -> Option<Vec<u8>> {
        let sections = self.table((40, 32), (58, 46))?;
        let at = if self.wide { (24, 32, 48) } else { (16, 20, 32) };
        let content = |s: &Vec<u8>| self.bytes(self.word(s, at.0)?, self.word(s, at.1)?);
        let names =
            content(sections.get(usize::from(u16_at(&self.header, if self.wide { 62 } else { 50 })?))?)?;
        let is_note = |s: &&Vec<u8>| u32_at(s, 4) == Some(7);
        let named = |s: &&Vec<u8>| u32_at(s, 0).and_then(|at| text_at(&names, at as usize)) == Some(section);
        let found = sections.iter().find(|s| is_note(s) && named(s))?;
        let align = usize::try_from(self.word(found, at.2)?).ok()?.clamp(1, 4096);
        let note = content(found)?;
        let (name_size, size) = (u32_at(&note, 0)? as usize, u32_at(&note, 4)? as usize);
        let start = 12 + name_size.checked_next_multiple_of(align)?;
        let name = note.get(12..start.min(note.len()))?;
        let vendor: Vec<u8> = name.iter().copied().filter(|b| *b != 0).collect();
        (vendor == b"NVIDIA Corporation")
            .then(|| note.get(start..(start + size).min(note.len())))?
            .map(<[u8]>::to_vec)
    }
}
