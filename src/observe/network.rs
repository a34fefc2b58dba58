//! Whether the services really work: the web node answers, the worker holds a connection to a TSA.

use crate::host::fs::Root;
use crate::host::http;
use crate::view::tsa::{Tsa, registration};
use crate::world::{Role, World};
use anyhow::Result;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// A web node that is alive answers in milliseconds.
const ANSWER: Duration = Duration::from_secs(5);

/// Fills in what can only be seen over the network.
///
/// # Errors
/// The tables of connections can't be read.
pub fn probe(root: &Root, world: &mut World) -> Result<()> {
    if let (true, Some(config)) = (world.service(Role::Web).active, &world.config) {
        world.machine.web = http::info(config.web_port, ANSWER);
    }
    if world.service(Role::Worker).active {
        world.machine.connected = connected(root, &registration(world).servers)?;
    }
    Ok(())
}

/// Whether this machine holds an established connection to one of the servers. A refused worker is cut off within
/// milliseconds and tries again after seconds, so one that is seen is one that was accepted.
///
/// # Errors
/// The kernel's tables can't be read.
pub fn connected(root: &Root, servers: &[Tsa]) -> Result<bool> {
    let mut remote = vec![];
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = crate::host::fs::read(&root.path(table))?.unwrap_or_default();
        remote.extend(text.lines().skip(1).filter_map(established));
    }
    Ok(servers.iter().any(|tsa| {
        let address: Option<IpAddr> = tsa.host.host().to_string().trim_matches(['[', ']']).parse().ok();
        // A name may stand for any address; its port has to do.
        remote.iter().any(|r| r.port() == tsa.host.port() && address.is_none_or(|a| a == r.ip()))
    }))
}

/// The remote side of a line of `/proc/net/tcp` in state ESTABLISHED (proc_net_tcp in the kernel's documentation).
fn established(line: &str) -> Option<SocketAddr> {
    let mut fields = line.split_whitespace().skip(2);
    let (remote, state) = (fields.next()?, fields.next()?);
    if state != "01" {
        return None;
    }
    let (address, port) = remote.split_once(':')?;
    // The kernel prints each 32-bit word in the machine's own byte order.
    let word = |i: usize| u32::from_str_radix(address.get(i * 8..i * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for i in 0..4 {
                bytes[i * 4..i * 4 + 4].copy_from_slice(&word(i)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        let rows = [
            ("0: 0100007F:1F90 0500000A:08AE 01 00000000:00000000", Some("10.0.0.5:2222")),
            ("0: 0100007F:1F90 0500000A:08AE 02 00000000:00000000", None),
            (
                "0: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000500000A:08AE 01 0",
                Some("10.0.0.5:2222"),
            ),
            ("garbage", None),
            ("", None),
        ];
        for (line, expected) in rows {
            assert_eq!(established(line), expected.map(|e| e.parse().unwrap()), "{line}");
        }
    }
}
