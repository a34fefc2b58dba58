//! Mounts below folders: `ro` makes a bind mount read-only, and not what is mounted somewhere below its source.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names of the directories in `root` below which something is mounted. One look, however many there are.
///
/// # Errors
/// The mounts can't be read.
pub fn look(root: &Path) -> io::Result<BTreeSet<String>> {
    // The table has no symlinks.
    let root = fs::canonicalize(root)?;
    // A busy worker has thousands: no more of the table than a line is kept.
    let mut table = BufReader::new(File::open("/proc/self/mountinfo")?);
    let (mut found, mut line) = (BTreeSet::new(), vec![]);
    while table.read_until(b'\n', &mut line)? > 0 {
        found.extend(name(&line, &root));
        line.clear();
    }
    Ok(found)
}

/// The name of the directory in `root` below which a line of the table has something (PURE): the fifth field is where.
fn name(line: &[u8], root: &Path) -> Option<String> {
    let field = line.split(|byte| *byte == b' ').nth(4)?;
    let place = if field.contains(&b'\\') { Cow::from(plain(field)) } else { Cow::from(field) };
    let mut parts = Path::new(OsStr::from_bytes(&place)).strip_prefix(root).ok()?.components();
    let name = parts.next()?.as_os_str().to_str()?.to_owned();
    parts.next().map(|_| name)
}

/// The kernel writes white space and backslashes as `\` and three octal digits.
fn plain(field: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(field.len()), field);
    while let Some((byte, after)) = rest.split_first() {
        let octal =
            after.get(..3).and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        match octal.filter(|_| *byte == b'\\') {
            Some(code) => (out.push(code), rest = &after[3..]),
            None => (out.push(*byte), rest = after),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_below() {
        let table = b"22 1 254:1 / / rw shared:1 - ext4 /dev/vda1 rw\n\
            30 22 0:40 / /srv rw - ext4 /dev/vdb rw\n\
            31 30 0:41 / /srv/whole rw - nfs4 nas:/whole rw\n\
            32 30 0:42 / /srv/data/sets rw - nfs4 nas:/sets rw\n\
            33 32 0:43 / /srv/data/sets/more rw - tmpfs tmpfs rw\n\
            34 22 0:44 / /srv/my\\040models\\134\\134/a\\040b rw - tmpfs tmpfs rw\n\
            35 22 0:45 / /srvother/data/x rw - tmpfs tmpfs rw\n\
            36 22 0:46 / /srv/\xff/x rw - tmpfs tmpfs rw\n\
            37 22 0:47 / /mnt/srv/away/x rw - tmpfs tmpfs rw\nshort\n";
        let names = |root: &str| -> Vec<String> {
            table
                .split_inclusive(|byte| *byte == b'\n')
                .filter_map(|line| name(line, Path::new(root)))
                .collect()
        };
        assert_eq!(names("/srv"), ["data", "data", "my models\\\\"]);
        assert_eq!(names("/mnt/srv"), ["away"]);
    }

    #[test]
    fn a_root_that_is_gone_is_said() {
        assert_eq!(look(Path::new("/not/there")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
