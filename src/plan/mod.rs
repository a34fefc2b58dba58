//! What to do about the world: the only place where that is decided.
//!
//! A plan may be cut short anywhere and made again: each step is one that the next observation can see, and steps
//! that need the outcome of others simply come in the next pass. An empty plan means: done for now.

mod gpu;
mod install;
mod keys;
mod leave;
pub(crate) mod machine;
mod packages;
mod pause;
mod publish;
mod runtime;
mod web;
pub(crate) mod worker;

use crate::event::Goal;
use crate::paths;
use crate::step::{File, FileOwner, Step};
use crate::world::World;

/// The steps from `world` towards `goal`.
pub fn plan(goal: Goal, world: &World) -> Vec<Step> {
    if machine::belongs_to_another(world) {
        return vec![];
    }
    match goal {
        Goal::Run if world.config.is_none() => vec![],
        Goal::Run => {
            let mut steps = machine::steps(world);
            steps.extend(install::steps(world));
            let mut ask = None;
            if world.machine.user.is_some() {
                steps.extend(keys::steps(world));
                let web = web::steps(world);
                ask = web.ask;
                steps.extend(web.steps);
                steps.extend(runtime::steps(world));
                let gpus = gpu::steps(world);
                steps.extend(gpus);
                // What a worker advertises is known when they have been looked at; one that pauses for the web node
                // of its own unit is back in its place with the next look; and one that has paused starts but once,
                // with the version that it is to have.
                let paused = world.file(paths::PAUSE).is_some();
                let first = |step: &Step| match step {
                    Step::LookAtGpus | Step::Pause(_) => true,
                    Step::Install(_) | Step::Switch { .. } => paused,
                    _ => false,
                };
                // Beside a web node that waits for its workers' answers, with new keys or another version perhaps, its
                // own worker goes on as it is.
                if ask.is_none() && !steps.iter().any(first) {
                    steps.extend(worker::steps(world));
                }
            }
            steps.extend(publish::steps(world, ask));
            steps.extend(install::cleanup(world));
            if steps.is_empty() { packages::steps(world) } else { steps }
        }
        Goal::Stop => leave::stop(world),
        Goal::Remove => leave::remove(world),
    }
}

/// Writes for those files that are not yet as they should be.
fn writes(world: &World, files: &[File]) -> Vec<Step> {
    files.iter().filter(|file| !is_as_wanted(world, file)).cloned().map(Step::Write).collect()
}

fn is_as_wanted(world: &World, file: &File) -> bool {
    is_owned(world, &file.path, file.mode, file.owner) && world.file(&file.path) == Some(&file.text)
}

/// Whether a file is there, with this mode and owner.
fn is_owned(world: &World, path: &str, mode: u32, owner: FileOwner) -> bool {
    let Some(found) = world.machine.files.get(path) else { return false };
    let user = world.machine.user.as_ref();
    let (uid, gid) = match owner {
        FileOwner::Root => (Some(0), Some(0)),
        FileOwner::RootConcourse => (Some(0), user.map(|u| u.gid)),
        FileOwner::Concourse => (user.map(|u| u.uid), user.map(|u| u.gid)),
    };
    found.mode == mode && Some(found.owner.uid) == uid && Some(found.owner.gid) == gid
}

/// Removals for those paths that are there.
fn removals(world: &World, paths: &[&str]) -> Vec<Step> {
    paths.iter().filter(|path| world.file(path).is_some()).map(|path| Step::Remove((*path).into())).collect()
}
