//! What to tell the operator: a list of checks over plain data; the worst finding wins.

use crate::packages::passes;
use crate::plan::machine::belongs_to_another;
use crate::render::web::external_url;
use crate::step::{Level, Status};
use crate::view::pause::{asked, silent, waits};
use crate::view::roles::{Roles, roles};
use crate::view::runtime::folder_count;
use crate::view::tsa::registration;
use crate::view::version::{Wanted, wanted};
use crate::view::workers::workers;
use crate::view::{gpu, packages, web, worker};
use crate::world::{Concern, Role, Worker, World};

/// The status of the unit.
pub fn status(world: &World) -> Status {
    let mut worst = ready(world);
    for finding in findings(world) {
        if finding.level > worst.level {
            worst = finding;
        }
    }
    worst
}

/// All that is not as it should be, most important first.
pub fn findings(world: &World) -> Vec<Status> {
    let mut found = vec![];
    if belongs_to_another(world) {
        let other = world.machine.claim.as_deref().unwrap_or_default().split(' ').next().unwrap_or_default();
        return vec![blocked(format!(
            "Unit {other} of this charm runs this machine: use another machine, or deployment-mode=all for both roles"
        ))];
    }
    if !world.problems.is_empty() {
        let all: Vec<String> = world.problems.iter().map(ToString::to_string).collect();
        found.push(blocked(all.join("; ")));
    }
    for concern in [
        Concern::Ports,
        Concern::Install,
        Concern::Migration,
        Concern::Volumes,
        Concern::Leave,
        Concern::Gpus,
    ] {
        found.extend(world.troubles.get(&concern).cloned().map(blocked));
    }
    found.extend(version(world));
    let roles = roles(world);
    if roles.web {
        found.extend(web_findings(world));
    }
    if roles.worker {
        found.extend(worker_findings(world));
        found.extend(gpu_finding(world));
    }
    found
}

/// What is missing, where that leaves no GPU to give: packages that can't be had tell more of it than the ladder.
fn gpu_finding(world: &World) -> Option<Status> {
    let missing = gpu::report(world)?.blocked.clone()?;
    Some(match world.troubles.get(&Concern::Packages) {
        Some(why) if passes(why) => waiting(why.clone()),
        Some(why) => blocked(why.clone()),
        None => blocked(packages::restart(world).unwrap_or(missing)),
    })
}

fn blocked(message: String) -> Status {
    Status { level: Level::Blocked, message }
}

fn waiting(message: impl Into<String>) -> Status {
    Status { level: Level::Waiting, message: message.into() }
}

fn version(world: &World) -> Option<Status> {
    let machine = &world.machine;
    if machine.current.is_none() && !world.troubles.contains_key(&Concern::Install) && world.config.is_some()
    {
        return Some(blocked("Concourse is not installed yet".into()));
    }
    let Wanted::Exactly(wanted) = wanted(world) else { return None };
    let failed = machine.failed.as_ref().filter(|f| f.version == wanted)?;
    let current = machine.current.as_ref()?;
    Some(blocked(format!(
        "Concourse {wanted} did not come up, {current} runs ({}); set concourse-version={current}, or try again with update-concourse-version",
        failed.reason
    )))
}

fn web_findings(world: &World) -> Vec<Status> {
    let mut found = vec![];
    if let Some(missing) = web::missing(world) {
        found.push(missing);
    } else if world.machine.web.is_none() && world.machine.current.is_some() {
        let port = world.config.as_ref().map_or(8080, |c| c.web_port);
        let seen = match (world.troubles.get(&Concern::Web), world.service(Role::Web).active) {
            (Some(why), _) => why.clone(),
            (None, true) => format!("The web node does not answer on port {port}"),
            (None, false) => "The web node does not run".to_owned(),
        };
        found.push(blocked(format!("{seen}: see journalctl -u concourse-web")));
    }
    found.extend(pausing(world));
    found.extend(
        workers(world).bad.into_iter().map(|bad| blocked(format!("A worker's data can't be used: {bad}"))),
    );
    found
}

/// Only of workers that run is asked a pause, and only until they have answered.
fn pausing(world: &World) -> Option<Status> {
    let silent = silent(world, Some(asked(world)?));
    let (first, more) = (silent.first()?, silent.len() - 1);
    let others = if more == 0 { String::new() } else { format!(" and {more} more") };
    Some(waiting(format!("Waiting for {first}{others} to pause, then the web node restarts")))
}

fn worker_findings(world: &World) -> Vec<Status> {
    if world.machine.drained {
        return vec![blocked("Worker drained: bring it back with the action resume".into())];
    }
    let mut found = vec![];
    let workers = roles(world).workers();
    if let Some(missing) = workers.iter().find_map(|worker| worker::files(world, *worker).err()) {
        found.push(missing);
        return found;
    }
    found.extend(
        registration(world)
            .bad
            .into_iter()
            .map(|bad| blocked(format!("A web node's data can't be used: {bad}"))),
    );
    if world.machine.current.is_some() {
        found.extend(workers.into_iter().filter_map(|worker| absent(world, worker)));
    }
    found
}

/// Why a worker is not registered, if it is not.
fn absent(world: &World, worker: Worker) -> Option<Status> {
    if world.machine.connected.contains(&worker) {
        return None;
    }
    let role = worker.role();
    let (service, noun) = (world.service(role), role.noun());
    let journal = format!("see journalctl -u {}", role.unit().trim_end_matches(".service"));
    let concern = match worker {
        Worker::Main => Concern::Worker,
        Worker::Untagged => Concern::Untagged,
    };
    Some(if let Some(why) = world.troubles.get(&concern) {
        blocked(format!("{why}: {journal}"))
    } else if waits(world, worker) {
        waiting("Waiting for the web node to restart")
    } else if !service.active && !service.changing {
        blocked(format!("The {noun} does not run: {journal}"))
    } else {
        waiting(format!("Waiting for the web node to accept this {noun}"))
    })
}

fn ready(world: &World) -> Status {
    let roles = roles(world);
    let Roles { web: is_web, worker: is_worker, .. } = roles;
    let waits = |worker: &Worker| worker::waits_for_drain(world, *worker);
    let message = match (is_web, is_worker, &world.config) {
        (true, both, Some(config)) => {
            let version = world.machine.web.as_ref().map(|info| info.version.as_str()).unwrap_or_default();
            let url = web::address(world).map(|a| external_url(config, a)).unwrap_or_default();
            let word = if both { "Web server and worker ready" } else { "Web server ready" };
            format!("{word} (v{version}){} {url}", equipment(world))
        }
        (false, true, _) if roles.workers().iter().any(waits) => {
            "Worker ready (volume-driver takes effect with the actions drain and resume)".to_owned()
        }
        (false, true, _) => format!("Worker ready{}", equipment(world)),
        _ => return blocked("The options have never been valid".into()),
    };
    Status { level: Level::Active, message }
}

/// What tasks find on the worker: ` (GPU: 1x NVIDIA) (3 folders: 2 RO, 1 RW)`.
fn equipment(world: &World) -> String {
    let gpus = gpu::report(world).and_then(|report| report.summary.clone());
    [gpus, folder_count(world)].into_iter().flatten().map(|what| format!(" ({what})")).collect()
}
