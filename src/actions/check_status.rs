//! `check-status`: what was found on each point, and what to do.

use super::Answer;
use crate::config::FolderMounts;
use crate::oci::folders::Folder;
use crate::packages::Ledger;
use crate::status::findings;
use crate::step::Level;
use crate::view::database::{Database, database};
use crate::view::roles::roles;
use crate::view::tsa::registration;
use crate::view::version::{Wanted, wanted};
use crate::view::workers::workers;
use crate::view::{gpu, packages};
use crate::world::{Role, Worker, World};

/// Which steps see what, and what is no folder although it may be meant as one.
fn folders(world: &World) -> String {
    let mounts = world.config.as_ref().map_or(FolderMounts::None, |config| config.folder_mounts);
    let found = &world.machine.folders;
    let seen = |folder: &Folder| {
        format!("{} {}", folder.path.display(), if folder.writable { "read-write" } else { "read-only" })
    };
    let listed: Vec<String> = found.folders.iter().map(seen).chain(found.skipped.iter().cloned()).collect();
    let listed = if listed.is_empty() { "there are none in /srv".to_owned() } else { listed.join("\n") };
    match mounts {
        FolderMounts::None => "no step sees folders".to_owned(),
        FolderMounts::Tasks => format!("tasks see folders: {listed}"),
        FolderMounts::All => format!("all steps see folders: {listed}"),
    }
}

/// Findings, and with `verbose` all that is in order.
pub fn report(world: &World, verbose: bool) -> Answer {
    let mut answer = Answer::default();
    let mut say = |key: &str, value: String| drop(answer.results.insert(key.to_owned(), value));
    let found = findings(world);
    let lines: Vec<String> = found.iter().map(|f| format!("{}: {}", f.level.word(), f.message)).collect();
    say("healthy", found.iter().all(|f| f.level == Level::Active).to_string());
    say("findings", if lines.is_empty() { "nothing to do".to_owned() } else { lines.join("\n") });

    let roles = roles(world);
    let machine = &world.machine;
    let state = |role| {
        let service = world.service(role);
        match (service.active, service.changing) {
            (true, _) => "runs",
            (_, true) => "is starting or stopping",
            _ => "does not run",
        }
    };
    if roles.web {
        let answers =
            machine.web.as_ref().map_or("no answer".into(), |info| format!("answers as {}", info.version));
        say("web", format!("{}, {answers}", state(Role::Web)));
        let workers = workers(world);
        say("authorized-workers", workers.keys.len().to_string());
    }
    if roles.worker {
        let tsa: Vec<String> = registration(world).servers.iter().map(|t| t.host.to_string()).collect();
        let tsa = if tsa.is_empty() { "any web node".to_owned() } else { tsa.join(", ") };
        let volumes =
            |worker| machine.volumes.get(worker).map_or("not yet known".to_owned(), |v| v.to_string());
        for worker in roles.workers() {
            let link = if machine.connected.contains(&worker) { "connected to" } else { "not connected to" };
            let name = worker.role().record();
            say(name, format!("{}, {link} {tsa}", state(worker.role())));
        }
        if let Some(report) = gpu::report(world) {
            let summary =
                report.blocked.clone().or(report.summary.clone()).unwrap_or_else(|| "no GPU".to_owned());
            let notes = report.notes.iter().cloned().chain(packages::other_branch(world));
            say("gpus", std::iter::once(summary).chain(notes).collect::<Vec<_>>().join("\n"));
        }
        say("folders", folders(world));
        say("volumes", volumes(&Worker::Main));
        if roles.untagged {
            say("volumes-untagged", volumes(&Worker::Untagged));
        } else if world.config.as_ref().is_some_and(|c| c.worker_untagged) {
            let why = "not needed: the worker has no tags, so it takes untagged steps itself";
            say(Role::Untagged.record(), why.to_owned());
        }
    }
    if verbose {
        let version = machine.current.as_ref().map_or("none".to_owned(), ToString::to_string);
        say("version", version);
        if let Wanted::Exactly(version) = wanted(world) {
            say("wanted-version", version.to_string());
        }
        let installed: Vec<String> = machine.installed.iter().map(|i| i.version.to_string()).collect();
        say("installed-versions", installed.join(", "));
        if roles.web {
            let text = match database(world) {
                Database::None => "not related".to_owned(),
                Database::Ambiguous => "related twice".to_owned(),
                Database::Waiting(what) => format!("waiting for {what}"),
                Database::Bad(why) => format!("bad: {why}"),
                Database::Ready(postgres) => {
                    postgres.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
                }
            };
            say("database", text);
        }
        if machine.packages != Ledger::default() {
            let names: Vec<&str> = machine.packages.packages.keys().map(String::as_str).collect();
            say("packages", names.join("\n"));
        }
        let files: Vec<&str> = machine.files.keys().map(String::as_str).collect();
        say("files", files.join("\n"));
    }
    answer
}
