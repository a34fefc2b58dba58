//! Whether the services really work: the web node answers, the worker holds a connection to a TSA.

use super::containers::sockets;
use crate::host::fs::Root;
use crate::host::http;
use crate::parse::Host;
use crate::view::tsa::{TSA_PORT, Tsa, registration};
use crate::world::{Role, WebInfo, Worker, World};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A web node that is alive answers in milliseconds.
const ANSWER: Duration = Duration::from_secs(5);

/// Fills in what can only be seen over the network. `known` has the workers' connections, and is brought up to date.
///
/// # Errors
/// The tables of connections can't be read.
pub fn probe(root: &Root, world: &mut World, known: &mut BTreeMap<Worker, u64>) -> Result<()> {
    if let (true, Some(config)) = (world.service(Role::Web).active, &world.config) {
        world.machine.web = http::info(config.web_port, ANSWER).map(|version| WebInfo { version });
    }
    for worker in Worker::ALL {
        let service = world.service(worker.role());
        if service.active {
            let link = registered(root, worker, service.pid, &registration(world).servers, known)?;
            known.remove(&worker);
            known.extend(link.map(|link| (worker, link)));
            world.machine.connected.extend(link.map(|_| worker));
        }
    }
    Ok(())
}

/// The worker's connection, if it is registered.
fn registered(
    root: &Root,
    worker: Worker,
    pid: Option<u32>,
    servers: &[Tsa],
    known: &BTreeMap<Worker, u64>,
) -> Result<Option<u64>> {
    let link = known.get(&worker).copied();
    if link.is_some_and(|link| !servers.is_empty() && holds(root, pid, link)) {
        return Ok(link);
    }
    let links = links(root, servers)?;
    if link.is_some_and(|link| links.contains(&link)) {
        return Ok(link);
    }
    let foreign = known.iter().filter(|(other, _)| **other != worker).map(|(_, link)| *link).collect();
    if links.is_subset(&foreign) {
        return Ok(None);
    }
    lasting_link(root, worker, servers, LASTING * 2)
}

/// Whether the worker still holds this socket: it closes one whose other side is gone. The kernel's tables of
/// connections tell it too, but take milliseconds to read, however few there are.
fn holds(root: &Root, pid: Option<u32>, inode: u64) -> bool {
    let Some(pid) = pid else { return false };
    let Ok(open) = std::fs::read_dir(root.path(format!("/proc/{pid}/fd"))) else { return false };
    let socket = format!("socket:[{inode}]");
    open.flatten()
        .any(|fd| std::fs::read_link(fd.path()).is_ok_and(|link| link.as_os_str() == socket.as_str()))
}

/// A connection that is still there after this time belongs to a worker that was accepted and has registered: one
/// that is refused is cut off within milliseconds and tries again after seconds.
const LASTING: Duration = Duration::from_millis(2500);

/// Waits, so long at most, for a connection of the worker to one of the servers that lasts; gives its socket's inode.
///
/// # Errors
/// The kernel's tables can't be read.
pub fn lasting_link(root: &Root, worker: Worker, servers: &[Tsa], patience: Duration) -> Result<Option<u64>> {
    let end = Instant::now() + patience;
    let mut seen: BTreeMap<u64, Instant> = BTreeMap::new();
    let mut foreign = BTreeSet::new();
    loop {
        let now = Instant::now();
        let links = links(root, servers)?;
        seen.retain(|inode, _| links.contains(inode));
        for inode in links.difference(&foreign.clone()).copied() {
            if now.duration_since(*seen.entry(inode).or_insert(now)) >= LASTING {
                if sockets(root, worker)?.contains(&inode) {
                    return Ok(Some(inode));
                }
                foreign.insert(inode);
            }
        }
        if now >= end {
            return Ok(None);
        }
        sleep(Duration::from_millis(100));
    }
}

/// Sockets of this machine with an established connection to one of the servers.
fn links(root: &Root, servers: &[Tsa]) -> Result<BTreeSet<u64>> {
    let is_server = |remote: &SocketAddr| {
        let to = |tsa: &Tsa| match tsa.host.host() {
            Host::Ip(ip) => *ip == remote.ip(),
            // A name may stand for any address; its port has to do.
            Host::Name(_) => true,
        };
        servers.iter().any(|tsa| tsa.host.port() == remote.port() && to(tsa))
    };
    Ok(established(root)?.filter(|c| is_server(&c.remote)).map(|c| c.inode).collect())
}

/// The workers that have any connection to a TSA, when their relation may not say any more which one that is.
///
/// # Errors
/// The kernel's tables can't be read.
pub fn linked(root: &Root, links: &BTreeMap<Worker, u64>) -> Result<BTreeSet<Worker>> {
    let known = |inode: u64| links.values().any(|link| *link == inode);
    let open = established(root)?.filter(|c| c.remote.port() == TSA_PORT || known(c.inode));
    let open: BTreeSet<u64> = open.map(|c| c.inode).collect();
    let mut found = BTreeSet::new();
    for worker in Worker::ALL.into_iter().filter(|_| !open.is_empty()) {
        if !sockets(root, worker)?.is_disjoint(&open) {
            found.insert(worker);
        }
    }
    Ok(found)
}

/// One side of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// This side.
    pub local: SocketAddr,
    /// The other side.
    pub remote: SocketAddr,
    /// Not one that comes or goes, or has gone: the kernel keeps those for a minute on the side that went first.
    pub established: bool,
    /// Of the socket; 0 before a server has accepted the connection, and when it has gone.
    pub inode: u64,
}

/// All connections of this machine.
///
/// # Errors
/// The kernel's tables can't be read.
pub fn connections(root: &Root) -> Result<Vec<Connection>> {
    let mut found = vec![];
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = crate::host::fs::read(&root.path(table))?.unwrap_or_default();
        found.extend(text.lines().skip(1).filter_map(connection));
    }
    Ok(found)
}

fn established(root: &Root) -> Result<impl Iterator<Item = Connection>> {
    Ok(connections(root)?.into_iter().filter(|connection| connection.established))
}

/// A line of `/proc/net/tcp` (proc_net_tcp in the kernel's documentation).
fn connection(line: &str) -> Option<Connection> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (local, remote, state, inode) = (fields.get(1)?, fields.get(2)?, fields.get(3)?, fields.get(9)?);
    const LISTENS: &str = "0A";
    (*state != LISTENS).then_some(())?;
    let established = *state == "01";
    Some(Connection { local: side(local)?, remote: side(remote)?, established, inode: inode.parse().ok()? })
}

fn side(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
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
        let rest = "00000000:00000000 00:00000000 00000000 0 0 4711 1";
        let rows = [
            ("0: 0100007F:1F90 0500000A:08AE 01", Some(("10.0.0.5:2222", true))),
            ("0: 0100007F:1F90 0500000A:08AE 06", Some(("10.0.0.5:2222", false))),
            ("0: 0100007F:1F90 00000000:0000 0A", None),
            (
                "0: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000500000A:08AE 01",
                Some(("10.0.0.5:2222", true)),
            ),
            ("garbage", None),
        ];
        for (line, expected) in rows {
            let found = connection(&format!("{line} {rest}"));
            let expected = expected.map(|(remote, established)| Connection {
                local: "127.0.0.1:8080".parse().unwrap(),
                remote: remote.parse().unwrap(),
                established,
                inode: 4711,
            });
            assert_eq!(found, expected, "{line}");
        }
        assert_eq!(connection(""), None);
    }
}
