//! Whether another program has the port of Concourse's DNS proxy.

use super::containers::sockets;
use crate::host::fs::{Root, read};
use crate::world::Worker;
use anyhow::Result;

/// The proxy takes it on every address (worker/network/dns.go), so one taken on any address is one that it can't have:
/// systemd-resolved has it on 127.0.0.53.
const PORT: u16 = 53;

/// Looks for sockets on the port that are not a worker's own.
///
/// # Errors
/// The kernel's tables can't be read.
pub fn port_taken(root: &Root) -> Result<bool> {
    let mut found = vec![];
    for table in ["/proc/net/udp", "/proc/net/udp6"] {
        let text = read(&root.path(table))?.unwrap_or_default();
        found.extend(text.lines().skip(1).filter_map(bound).filter(|(port, _)| *port == PORT));
    }
    if found.is_empty() {
        return Ok(false);
    }
    let own = sockets(root, Worker::Main)?;
    Ok(found.iter().any(|(_, inode)| !own.contains(inode)))
}

/// The local port and the inode of a line of `/proc/net/udp`, which is written as that of TCP.
fn bound(line: &str) -> Option<(u16, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, port) = fields.get(1)?.split_once(':')?;
    Some((u16::from_str_radix(port, 16).ok()?, fields.get(9)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        let resolved = " 1039: 3500007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   102        0 20312 2 0000000000000000 0";
        assert_eq!(bound(resolved), Some((53, 20312)));
        assert_eq!(bound("garbage"), None);
        assert_eq!(bound(""), None);
    }
}
