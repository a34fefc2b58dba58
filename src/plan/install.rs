//! The wanted version is installed and the services start it; one that does not come up is left again.

use crate::config::{Config, ProxyUrl};
use crate::install::{Limits, Order, Origin, Proxy, Source};
use crate::parse::Version;
use crate::paths;
use crate::step::{Level, Status, Step};
use crate::view::roles::roles;
use crate::view::version::{Wanted, wanted};
use crate::world::{Concern, Failed, Role, World};

/// Where releases are published.
const RELEASES: &str = "https://github.com/concourse/concourse/releases/download/v{version}/concourse-{version}-linux-{arch}.tgz";

/// Gets, switches to, or goes back from a version.
pub fn steps(world: &World) -> Vec<Step> {
    let Some(config) = &world.config else { return vec![] };
    if let Some(steps) = go_back(world) {
        return steps;
    }
    if world.troubles.contains_key(&Concern::Install) {
        return vec![];
    }
    if let Some(order) = unread_resource(world, config) {
        return install(order);
    }
    let Wanted::Exactly(version) = wanted(world) else { return vec![] };
    let machine = &world.machine;
    if let Some(failed) = machine.failed.as_ref().filter(|failed| failed.version != version) {
        // The operator went on to something else; should they come back to it, it deserves a new try. But what an
        // action once wished for does not come back by itself.
        let wish = machine.override_version.as_ref().filter(|wish| wish.version == failed.version);
        let gone = wish.map(|_| paths::OVERRIDE).into_iter().chain([paths::FAILED]);
        return gone.map(|path| Step::Remove(path.into())).collect();
    }
    let given_up = machine.failed.as_ref().is_some_and(|failed| failed.version == version);
    if given_up && machine.current.is_some() {
        return vec![];
    }
    let ready = is_installed(world, &version) && has_right_digest(world, config, &version);
    if ready && machine.current.as_ref() == Some(&version) {
        return vec![];
    }
    if !ready {
        return install(Order {
            source: Source::Url(url(config, &version, &machine.arch)),
            version: Some(version),
            sha256: config.sha256.as_ref().map(ToString::to_string),
            proxy: proxy(config),
            limits: Limits::default(),
        });
    }
    let previous = machine.current.clone().filter(|_| machine.proven);
    vec![Step::Switch { to: version, previous }]
}

/// A version that was never seen working, did not come up, and has one before it that did.
fn go_back(world: &World) -> Option<Vec<Step>> {
    let machine = &world.machine;
    let (current, previous) = (machine.current.as_ref()?, machine.previous.as_ref()?);
    if machine.proven || current == previous || !is_installed(world, previous) {
        return None;
    }
    let reason = [Concern::Web, Concern::Worker].iter().find_map(|c| world.troubles.get(c))?;
    let mut steps = vec![];
    if roles(world).web {
        steps.push(Step::Stop(Role::Web));
        // A schema that can't be brought back is told of; the older version is still the better one to run.
        if !world.troubles.contains_key(&Concern::Migration) {
            steps.push(Step::MigrateDown { with: current.clone(), to: previous.clone() });
        }
    }
    steps.push(Step::MarkFailed(Failed { version: current.clone(), reason: reason.clone() }));
    steps.push(Step::Switch { to: previous.clone(), previous: None });
    Some(steps)
}

/// Only unpacking tells which version an attached resource holds.
fn unread_resource(world: &World, config: &Config) -> Option<Order> {
    let stamp = world.machine.resource.as_ref()?;
    let known = world.machine.installed.iter().any(|i| i.origin.stamps.contains(stamp));
    if known {
        return None;
    }
    Some(Order {
        version: None,
        source: Source::Resource(world.memory.resource.clone()?),
        sha256: config.sha256.as_ref().map(ToString::to_string),
        proxy: proxy(config),
        limits: Limits::default(),
    })
}

fn install(order: Order) -> Vec<Step> {
    let what = match &order.version {
        Some(version) => format!("Installing Concourse {version}..."),
        None => "Installing Concourse from the resource...".to_owned(),
    };
    vec![Step::Say(Status { level: Level::Maintenance, message: what }), Step::Install(order)]
}

fn url(config: &Config, version: &Version, arch: &str) -> String {
    match &config.download_url {
        Some(template) => template.fill(version, arch),
        None => RELEASES.replace("{version}", &version.to_string()).replace("{arch}", arch),
    }
}

fn proxy(config: &Config) -> Proxy {
    let plain = |url: &Option<ProxyUrl>| url.as_ref().map(|url| url.expose().to_owned());
    let no = (!config.proxy.no.is_empty()).then(|| config.proxy.no.join(","));
    Proxy { http: plain(&config.proxy.http), https: plain(&config.proxy.https), no }
}

fn is_installed(world: &World, version: &Version) -> bool {
    world.machine.installed.iter().any(|i| i.version == *version)
}

/// What is installed may have come before the operator said which digest it must have.
fn has_right_digest(world: &World, config: &Config, version: &Version) -> bool {
    let Some(digest) = &config.sha256 else { return true };
    world.machine.installed.iter().any(|i| i.version == *version && i.sha256 == digest.as_str())
}

/// Versions that nothing needs any more: not the current one, nor the one to go back to, nor one whose containers
/// still run, nor the one that is about to be switched to.
pub fn cleanup(world: &World) -> Vec<Step> {
    let machine = &world.machine;
    if !machine.proven {
        return vec![];
    }
    let Wanted::Exactly(wanted) = wanted(world) else { return vec![] };
    let from_resource =
        |origin: &Origin| machine.resource.as_ref().is_some_and(|s| origin.stamps.contains(s));
    // What has begun is gone on with for as long as it is wanted.
    let open = machine.current.as_ref() != Some(&wanted) || world.troubles.contains_key(&Concern::Install);
    let tidy = (machine.half_installed && !open).then_some(Step::TidyInstallations);
    machine
        .installed
        .iter()
        .filter(|i| {
            Some(&i.version) != machine.current.as_ref() && Some(&i.version) != machine.previous.as_ref()
        })
        .filter(|i| i.version != wanted && !machine.in_use.contains(&i.version) && !from_resource(&i.origin))
        .map(|i| Step::RemoveVersion(i.version.clone()))
        .chain(tidy)
        .collect()
}
