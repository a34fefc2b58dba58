//! A moment at which a worker has nothing being made.
//!
//! What runs goes on without the worker's process. What a web node is just having made does not: a volume that it asks
//! for again is unknown to the new process, a container is half there. None of that can be asked for: but each request for
//! a step is a connection of its own (`DisableKeepAlives`: atc/worker/factory.go, gclient/factory.go), which the kernel
//! remembers for a minute, and a container comes by programs. What a step needs follows within some milliseconds upon what
//! it had. Others keep their connections: the worker itself sweeps volumes through one.

use crate::config::WORKER_PORTS;
use crate::host::cmd::cmd;
use crate::host::fs::Root;
use crate::observe::containers::makes;
use crate::observe::{Connection, connections};
use crate::world::Role;
use anyhow::Result;
use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Nothing may change for so long: the steps from one request to the next take a tenth of it.
const CALM: Duration = Duration::from_millis(500);
/// What has to do on a worker that is never calm.
pub const BRIEFLY: Duration = Duration::from_millis(100);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// A worker's process, and where it is asked.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Whose it is.
    pub role: Role,
    /// It.
    pub pid: u32,
    ports: Ports,
}

impl Process {
    /// The service's main process.
    pub fn new(root: &Root, role: Role, pid: u32) -> Self {
        Process { role, pid, ports: Ports::of(root, pid) }
    }

    /// What is to be seen now.
    ///
    /// # Errors
    /// `/proc` can't be read.
    pub fn look(&self, root: &Root) -> Result<Look> {
        let (requests, volumes) = self.requests(root)?;
        let busy = makes(root, self.role)? || (volumes && self.has_volumes_made());
        Ok(Look { busy, requests })
    }

    /// Whether a request has come since that look.
    ///
    /// # Errors
    /// `/proc` can't be read.
    pub fn is_asked(&self, root: &Root, before: &Look) -> Result<bool> {
        Ok(!self.requests(root)?.0.is_subset(&before.requests))
    }

    /// The connections of the last minute, and whether one about volumes is open.
    fn requests(&self, root: &Root) -> Result<(BTreeSet<(u16, u16)>, bool)> {
        let (mut requests, mut volumes) = (BTreeSet::new(), false);
        for Connection { local, remote, established, .. } in connections(root)? {
            let (at, to) = (local.port(), remote.port());
            let asked = |port: u16| port == self.ports.containers || port == self.ports.volumes;
            // The side that was the first to go is the one that is remembered.
            if asked(at) {
                requests.insert((at, to));
            } else if asked(to) {
                requests.insert((to, at));
            }
            volumes |= at == self.ports.volumes && established;
        }
        Ok((requests, volumes))
    }

    /// Waits for a moment that has been calm for [`CALM`], or on a worker that is never calm, in the second half of the
    /// time, for [`BRIEFLY`]; gives what is seen then, or `None` when the time is over.
    ///
    /// # Errors
    /// `/proc` can't be read.
    pub fn calm(&self, root: &Root, end: Instant) -> Result<Option<Look>> {
        let begin = Instant::now();
        let half = begin + end.saturating_duration_since(begin) / 2;
        let mut calm = None;
        while Instant::now() < end {
            calm = see(calm, self.look(root)?, Instant::now());
            let enough = if Instant::now() < half { CALM } else { BRIEFLY };
            match calm {
                Some((look, since)) if since.elapsed() >= enough => return Ok(Some(look)),
                _ => sleep(PAUSE),
            }
        }
        Ok(None)
    }

    /// Whether nothing comes in some more moments.
    ///
    /// # Errors
    /// `/proc` can't be read.
    pub fn stays(&self, root: &Root, calm: &Look) -> Result<bool> {
        let begin = Instant::now();
        loop {
            // One that ends after it.
            let over = begin.elapsed() >= BRIEFLY;
            if !self.look(root)?.is_as(calm) {
                return Ok(false);
            }
            if over {
                return Ok(true);
            }
            sleep(PAUSE);
        }
    }

    /// Whether somebody waits for a volume, or has one filled or read. Nobody but the kernel knows.
    fn has_volumes_made(&self) -> bool {
        let port = format!(":{}", self.ports.volumes);
        let told = cmd("ss").args(["-tinHO", "state", "established", "sport", "=", &port]).run();
        told.map_or(true, |told| told.lines().any(in_use))
    }
}

/// Whether a connection of `ss -i` has a request that is not answered, or data that flows. It leaves out what is 0; times
/// are in milliseconds since (tcp_info in the kernel's uapi/linux/tcp.h).
fn in_use(line: &str) -> bool {
    let number = |name: &str| {
        let value = |word: &str| word.strip_prefix(name)?.strip_prefix(':')?.parse::<u128>().ok();
        line.split_whitespace().find_map(value).unwrap_or(0)
    };
    let (sent, received) = (number("lastsnd"), number("lastrcv"));
    let unanswered = received < sent || (number("bytes_received") > 0 && number("bytes_sent") == 0);
    unanswered || sent.min(received) < CALM.as_millis()
}

/// What a look sees.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Somebody has a volume made, filled or read, or a container.
    busy: bool,
    /// The connections of the last minute, by their ports.
    requests: BTreeSet<(u16, u16)>,
}

impl Look {
    /// Whether nothing has come since that look. That one of them has gone means nothing.
    pub fn is_as(&self, before: &Look) -> bool {
        !self.busy && self.requests.is_subset(&before.requests)
    }
}

/// What is seen all the time, and since when; `None`: something is being made.
fn see(before: Option<(Look, Instant)>, look: Look, now: Instant) -> Option<(Look, Instant)> {
    match before {
        _ if look.busy => None,
        Some((last, since)) if look.is_as(&last) => Some((look, since)),
        _ => Some((look, now)),
    }
}

/// Where a worker is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ports {
    containers: u16,
    volumes: u16,
}

impl Ports {
    /// Those that the process has got, whatever the options say by now.
    fn of(root: &Root, pid: u32) -> Self {
        // One that has ended has none.
        let environment = std::fs::read(root.path(format!("/proc/{pid}/environ"))).unwrap_or_default();
        let set = |name: &str| {
            environment.split(|byte| *byte == 0).find_map(|variable| {
                std::str::from_utf8(variable).ok()?.strip_prefix(name)?.strip_prefix('=')?.parse().ok()
            })
        };
        let port = |i: usize| set(WORKER_PORTS[i].0).unwrap_or(WORKER_PORTS[i].1);
        Ports { containers: port(0), volumes: port(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    const LIMIT: Duration = Duration::from_secs(30);

    /// A machine with one worker, whose process listens at these ports of this very machine.
    fn machine(containers: u16, volumes: u16) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let proc = dir.path().join("proc");
        fs::create_dir_all(proc.join("7")).unwrap();
        let environment = format!(
            "CONCOURSE_BIND_PORTS=1\0CONCOURSE_BIND_PORT={containers}\0CONCOURSE_BAGGAGECLAIM_BIND_PORT={volumes}\0"
        );
        fs::write(proc.join("7/environ"), environment).unwrap();
        start(dir.path(), 7, "concourse");
        std::os::unix::fs::symlink("/proc/net", proc.join("net")).unwrap();
        dir
    }

    fn start(root: &std::path::Path, pid: u32, name: &str) {
        let dir = root.join(format!("proc/{pid}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("comm"), format!("{name}\n")).unwrap();
        fs::write(dir.join("cgroup"), format!("0::/system.slice/{}\n", Role::Worker.unit())).unwrap();
    }

    fn listen() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    #[test]
    fn what_is_being_made_is_waited_for_and_what_runs_is_not() {
        let ((_garden, containers), (_baggageclaim, volumes)) = (listen(), listen());
        let dir = machine(containers, volumes);
        let root = Root::new(dir.path());
        let process = Process::new(&root, Role::Worker, 7);
        let calm = |patience| process.calm(&root, Instant::now() + patience).unwrap().is_some();
        assert_eq!(Ports::of(&root, 7), Ports { containers, volumes });
        assert_eq!(Ports::of(&root, 8), Ports { containers: 7777, volumes: 7788 });
        let _attached = TcpStream::connect(("127.0.0.1", containers)).unwrap();
        assert!(calm(LIMIT));

        let mut volume = TcpStream::connect(("127.0.0.1", volumes)).unwrap();
        volume.write_all(b"GET /volumes").unwrap();
        assert!(!calm(CALM * 3));
        drop(volume);
        assert!(calm(LIMIT));
        let before = process.look(&root).unwrap();
        drop(TcpStream::connect(("127.0.0.1", volumes)).unwrap());
        assert!(!process.look(&root).unwrap().is_as(&before), "what is over was not seen");

        start(dir.path(), 8, "runc");
        assert!(!calm(CALM * 3));
        fs::remove_dir_all(dir.path().join("proc/8")).unwrap();
        assert!(calm(LIMIT));
    }

    #[test]
    fn a_connection_that_is_only_kept_is_not_in_use() {
        let line = |rest: &str| {
            in_use(&format!("0 0 127.0.0.1:7788 127.0.0.1:51044 cubic rto:204 {rest} pacing_rate 9bps"))
        };
        assert!(!line(
            "bytes_sent:185 bytes_acked:185 bytes_received:62 lastsnd:1764 lastrcv:1764 lastack:1764"
        ));
        assert!(!line("bytes_sent:185 bytes_received:62 lastsnd:1764 lastrcv:2100"));
        assert!(!line("lastsnd:900 lastrcv:900"), "nothing was asked");
        assert!(line("bytes_sent:185 bytes_received:62 lastsnd:31764 lastrcv:1764"), "asked again");
        assert!(line("bytes_received:62 lastsnd:1764 lastrcv:1764"), "never answered");
        assert!(line("bytes_sent:1850 bytes_received:62 lastsnd:12 lastrcv:4000"), "a volume is read");
        assert!(line("bytes_sent:185 bytes_received:62 lastrcv:900"), "just answered");
    }

    #[test]
    fn each_request_begins_anew() {
        let times: Vec<Instant> = (0..9).map(|i| Instant::now() + PAUSE * i).collect();
        let calm =
            |ports: &[u16]| Look { requests: ports.iter().map(|p| (7777, *p)).collect(), ..Look::default() };
        let looks = [
            (calm(&[]), Some(0)),
            (calm(&[]), Some(0)),
            (calm(&[1]), Some(2)),
            (calm(&[1]), Some(2)),
            // As many as before, and another one.
            (calm(&[2]), Some(4)),
            (calm(&[]), Some(4)),
            (Look { busy: true, ..calm(&[]) }, None),
            (calm(&[2]), Some(7)),
            (calm(&[2]), Some(7)),
        ];
        let mut seen = None;
        for ((look, since), now) in looks.into_iter().zip(&times) {
            seen = see(seen, look, *now);
            assert_eq!(seen.as_ref().map(|(_, since)| *since), since.map(|i: usize| times[i]), "{seen:?}");
        }
    }
}
