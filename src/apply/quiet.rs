//! A moment at which a worker can be restarted, and nobody will have lost a thing.
//!
//! What runs goes on without the worker's process. What a web node is just having made does not: a volume that it asks
//! for again is unknown to the new process, a container is half there. None of that can be asked for: but each of a
//! web node's requests is a connection of its own (`DisableKeepAlives`: atc/worker/factory.go, gclient/factory.go), and
//! with containerd a container comes by `runc`. What a step needs follows within some milliseconds upon what it had.

use crate::config::WORKER_PORTS;
use crate::host::fs::Root;
use crate::observe::containers::has_runc;
use crate::observe::{Connection, connections};
use crate::world::Role;
use anyhow::Result;
use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Nothing may change for so long: the steps from one request to the next take a tenth of it.
const CALM: Duration = Duration::from_millis(500);
/// What has to do on a worker that is never calm, in the second half of the time.
const LESS: Duration = Duration::from_millis(100);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// What a look sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Look {
    /// Somebody has a volume made, filled or read.
    volumes: bool,
    /// A container is being made or a process in it started.
    runc: bool,
    /// Connections about containers. Most of them last as long as a process that somebody listens to.
    containers: BTreeSet<Connection>,
}

/// Waits for the moment, so long at most; whether it came.
///
/// # Errors
/// `/proc` can't be read.
pub fn wait(root: &Root, role: Role, pid: u32, patience: Duration) -> Result<bool> {
    let (ports, begin, mut calm) = (Ports::of(root, pid), Instant::now(), None);
    while begin.elapsed() < patience {
        let enough = if begin.elapsed() < patience / 2 { CALM } else { LESS };
        calm = see(calm, look(root, role, ports)?, Instant::now());
        if calm.as_ref().is_some_and(|(_, since)| since.elapsed() >= enough) {
            return Ok(true);
        }
        sleep(PAUSE);
    }
    Ok(false)
}

/// What is seen all the time, and since when; `None`: something is being made.
fn see(before: Option<(Look, Instant)>, look: Look, now: Instant) -> Option<(Look, Instant)> {
    match before {
        _ if look.volumes || look.runc => None,
        Some((last, since)) if last == look => Some((last, since)),
        _ => Some((look, now)),
    }
}

fn look(root: &Root, role: Role, ports: Ports) -> Result<Look> {
    let all = connections(root)?;
    let to = |port: u16| all.iter().filter(move |connection| connection.local.port() == port);
    Ok(Look {
        volumes: to(ports.volumes).next().is_some(),
        runc: has_runc(root, role)?,
        containers: to(ports.containers).cloned().collect(),
    })
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
        process(dir.path(), 7, "concourse");
        std::os::unix::fs::symlink("/proc/net", proc.join("net")).unwrap();
        dir
    }

    fn process(root: &std::path::Path, pid: u32, name: &str) {
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
        let calm = |patience| wait(&root, Role::Worker, 7, patience).unwrap();
        assert_eq!(Ports::of(&root, 7), Ports { containers, volumes });
        assert_eq!(Ports::of(&root, 8), Ports { containers: 7777, volumes: 7788 });
        let _attached = TcpStream::connect(("127.0.0.1", containers)).unwrap();
        assert!(calm(LIMIT));

        let volume = TcpStream::connect(("127.0.0.1", volumes)).unwrap();
        assert!(!calm(CALM * 3));
        drop(volume);
        assert!(calm(LIMIT));

        process(dir.path(), 8, "runc");
        assert!(!calm(CALM * 3));
        fs::remove_dir_all(dir.path().join("proc/8")).unwrap();
        assert!(calm(LIMIT));
    }

    #[test]
    fn each_change_begins_anew() {
        let times: Vec<Instant> = (0..9).map(|i| Instant::now() + PAUSE * i).collect();
        let side = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let connection = |port| Connection { local: side(7777), remote: side(port), inode: 0 };
        let calm = |ports: &[u16]| Look {
            containers: ports.iter().map(|p| connection(*p)).collect(),
            ..Look::default()
        };
        let looks = [
            (calm(&[]), Some(0)),
            (calm(&[]), Some(0)),
            (calm(&[1]), Some(2)),
            (calm(&[1]), Some(2)),
            // As many as before, and another one.
            (calm(&[2]), Some(4)),
            (Look { volumes: true, ..calm(&[2]) }, None),
            (Look { runc: true, ..calm(&[2]) }, None),
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
