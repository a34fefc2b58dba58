//! The workers' files as they should be, or what they still lack.

use super::gpu;
use super::roles::peers_exchange;
use super::tsa::registration;
use super::web::{address, digest, operator_settings};
use crate::config::VolumeDriver;
use crate::install::Installed;
use crate::parse::{PublicKey, Tag};
use crate::paths;
use crate::render::worker::{WorkerInput, tsa_keys, worker_dropin, worker_env};
use crate::step::{File, FileOwner, Level, Status};
use crate::world::{Volumes, Worker, World};
use std::collections::BTreeSet;

/// The text of a worker's unit, as it ships.
fn unit(worker: Worker) -> &'static str {
    match worker {
        Worker::Main => include_str!("../../charm/units/concourse-worker.service"),
        Worker::Untagged => include_str!("../../charm/units/concourse-worker-untagged.service"),
    }
}

/// The tags of a unit's main worker.
pub fn tags(world: &World) -> BTreeSet<Tag> {
    let own = world.config.iter().flat_map(|config| config.tags.iter().cloned());
    own.chain(gpu::tags(world)).collect()
}

/// Everything that a worker reads, its own key aside, which is made on the machine and never leaves it.
///
/// # Errors
/// What is missing, as the status that says so.
pub fn files(world: &World, worker: Worker) -> Result<Vec<File>, Status> {
    let blocked = |message: String| Status { level: Level::Blocked, message };
    let waiting = |message: &str| Status { level: Level::Waiting, message: message.to_owned() };
    let config = world.config.as_ref().ok_or_else(|| blocked("The options have never been valid".into()))?;
    let found = registration(world);
    if !found.related {
        let app = world.unit.application();
        return Err(blocked(format!("Relate a web node: juju integrate WEB:web-tsa {app}:worker-tsa")));
    }
    if found.servers.is_empty() {
        return Err(match found.bad.first() {
            Some(bad) => blocked(format!("The web node's data can't be used: {bad}")),
            None => waiting("Waiting for TSA connection info..."),
        });
    }
    if config.dns_proxy && world.machine.dns_port_taken {
        return Err(blocked(
            "containerd-dns-proxy-enable: another program has port 53 of this machine; set it to false, or free the port \
             (of systemd-resolved: DNSStubListener=no in /etc/systemd/resolved.conf, and /etc/resolv.conf a link to \
             /run/systemd/resolve/resolv.conf)"
                .into(),
        ));
    }
    let secrets = operator_settings(world)?;
    let volumes =
        world.machine.volumes.get(&worker).ok_or_else(|| waiting("Waiting for a way to keep volumes"))?;
    let address = address(world);
    if worker == Worker::Untagged && config.dns_proxy && address.is_none() {
        return Err(waiting("Waiting for Juju to tell this unit's address"));
    }
    let env = worker_env(&WorkerInput {
        config,
        secrets: &secrets,
        worker,
        name: worker.name(&world.unit),
        servers: &found.servers,
        tags: &tags(world),
        volumes: *volumes,
        address,
    })
    .map_err(blocked)?;
    let file = |path: &str, text: &str, mode| File {
        path: path.into(),
        text: text.into(),
        mode,
        owner: FileOwner::Root,
    };
    Ok(vec![
        file(worker.paths().unit, unit(worker), 0o644),
        file(worker.paths().dropin, &worker_dropin(*volumes, gpu::wanted(world).is_some()), 0o644),
        file(worker.paths().env, &env, 0o600),
        file(paths::TSA_KEYS, &tsa_keys(&found.servers), 0o644),
    ])
}

/// The digest that the unit's `ExecStartPre` will record when started with these files and this version.
pub fn start_digest(worker: Worker, files: &[File], worker_key: &str, current: &Installed) -> String {
    let key =
        File { path: paths::WORKER_KEY.into(), text: worker_key.into(), mode: 0o600, owner: FileOwner::Root };
    let mut all = files.to_vec();
    all.push(key);
    let own = worker.paths();
    let inputs = [own.unit, own.dropin, own.env, paths::WORKER_KEY, paths::TSA_KEYS];
    digest(&all, &inputs, current)
}

/// The workers' public key.
pub fn public_key(world: &World) -> Option<PublicKey> {
    world.file(paths::WORKER_KEY_PUB)?.trim().parse().ok()
}

/// The relation over which this worker's key travels.
pub fn endpoint(world: &World) -> &'static str {
    if peers_exchange(world) { "concourse-peer" } else { "worker-tsa" }
}

/// Whether the web nodes can have seen this worker's key by now: it was published before this hook began.
pub fn key_is_known(world: &World) -> bool {
    let Some(key) = public_key(world) else { return false };
    if super::roles::roles(world).web {
        return true;
    }
    let key = key.to_string();
    world.memory.of(endpoint(world)).any(|(id, _)| {
        world.committed.unit_bags.get(id).and_then(|b| b.get("worker-public-key")) == Some(&key)
    })
}

/// What may be tried for volumes, best first (proven.md §2).
pub fn volume_candidates(driver: VolumeDriver) -> Vec<Volumes> {
    match driver {
        VolumeDriver::Auto => {
            vec![Volumes::Overlay, Volumes::OverlayMasked, Volumes::Btrfs, Volumes::Naive]
        }
        VolumeDriver::Overlay => vec![Volumes::Overlay, Volumes::OverlayMasked],
        VolumeDriver::Btrfs => vec![Volumes::Btrfs],
        VolumeDriver::Naive => vec![Volumes::Naive],
    }
}

/// Whether `volume-driver` names another way than the one in use, which takes a drain and a resume to change.
pub fn waits_for_drain(world: &World, worker: Worker) -> bool {
    let candidates = world.config.as_ref().map(|c| volume_candidates(c.volume_driver)).unwrap_or_default();
    world.machine.volumes.get(&worker).is_some_and(|used| !candidates.contains(used))
}

/// The workers that run, or are about to.
pub fn running(world: &World) -> Vec<Worker> {
    let runs = |worker: &Worker| {
        let service = world.service(worker.role());
        service.active || service.changing
    };
    Worker::ALL.into_iter().filter(runs).collect()
}
