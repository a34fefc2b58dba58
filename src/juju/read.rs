//! Brings the memory up to date: as few calls as the event allows.

use super::memory::{ENDPOINTS, Memory, PEERS, Stale};
use super::tools;
use crate::event::{Context, bare_secret_id};
use anyhow::Result;
use std::collections::BTreeSet;

/// Reads what `stale` names.
///
/// # Errors
/// A hook tool failed.
pub fn refresh(memory: &mut Memory, context: &Context, stale: &Stale) -> Result<()> {
    if stale.everything {
        for endpoint in ENDPOINTS {
            let ids = tools::relation_ids(endpoint)?;
            memory.retain_relations(endpoint, &ids);
            for id in &ids {
                relation(memory, context, endpoint, id, None, true)?;
            }
        }
        // What was attached once can't be taken away, but a controller may be unable to tell for a while.
        memory.resource = tools::resource_get("concourse")?.or(memory.resource.take());
    }
    if let Some(of) = &stale.relation {
        relation(memory, context, &of.endpoint, &of.id, of.unit.as_deref(), of.app)?;
    }
    if stale.everything || stale.addresses || stale.relation.is_some() {
        addresses(memory, stale.everything || stale.addresses)?;
    }
    Ok(())
}

/// This unit's addresses: for its peers, and for the other side of each relation that is told one.
fn addresses(memory: &mut Memory, again: bool) -> Result<()> {
    let of = |endpoint: &'static str| memory.of(endpoint).map(move |(id, _)| (endpoint, id.clone()));
    let told: Vec<_> = of("web-tsa").chain(of("monitoring")).collect();
    memory.addresses.retain(|key, _| key == PEERS || told.iter().any(|(_, id)| id == key));
    let relations = told.iter().map(|(endpoint, id)| (*endpoint, Some(id.as_str())));
    for (endpoint, id) in relations.chain([(PEERS, None)]) {
        let key = id.unwrap_or(endpoint);
        if (again || !memory.addresses.contains_key(key))
            && let Some(address) = tools::ingress_address(endpoint, id)?
        {
            memory.addresses.insert(key.to_owned(), address);
        }
    }
    Ok(())
}

fn relation(
    memory: &mut Memory,
    context: &Context,
    endpoint: &str,
    id: &str,
    moved: Option<&str>,
    app: bool,
) -> Result<()> {
    let Some(members) = tools::relation_list(id)? else {
        memory.relations.entry(endpoint.to_owned()).or_default().remove(id);
        return Ok(());
    };
    let mut unread = memory.set_members(endpoint, id, &members);
    // The event's unit may not be listed: in departed it is gone, and its bag is of no more use.
    let moved = moved.filter(|unit| members.iter().any(|m| m == unit) && !unread.iter().any(|u| u == unit));
    unread.extend(moved.map(str::to_owned));
    for unit in unread {
        let bag = tools::relation_get_unit(id, &unit)?;
        memory.relation_mut(endpoint, id).units.insert(unit, bag);
    }
    let name = match &memory.relation_mut(endpoint, id).app {
        _ if endpoint == "concourse-peer" => Some(context.unit.application().to_owned()),
        Some(name) => Some(name.clone()),
        None => tools::relation_app(id)?,
    };
    // Only these two speak through the application's bag.
    if app
        && matches!(endpoint, "database" | "concourse-peer")
        && let Some(name) = &name
    {
        memory.relation_mut(endpoint, id).app_bag = tools::relation_get_app(id, name)?;
    }
    memory.relation_mut(endpoint, id).app = name;
    Ok(())
}

/// Whether [`secrets`] has anything to do.
pub fn moves_secrets(memory: &Memory, stale: &Stale, wanted: &[&str]) -> bool {
    let bare: BTreeSet<&str> = wanted.iter().map(|id| bare_secret_id(id)).collect();
    let known: BTreeSet<&str> = memory.secrets.keys().map(String::as_str).collect();
    *stale != Stale::default() || bare != known
}

/// Reads the secrets that are wanted and not yet known, and forgets those that are not wanted any more.
/// One that this unit may not read stays unknown, and is asked for again next time.
///
/// # Errors
/// A hook tool failed.
pub fn secrets(memory: &mut Memory, stale: &Stale, wanted: &[&str]) -> Result<()> {
    let bare: Vec<&str> = wanted.iter().map(|id| bare_secret_id(id)).collect();
    // The leader tells the other owners of a shared secret by the peers' bag: Juju tells consumers only.
    let shared = stale.relation.as_ref().is_some_and(|r| r.endpoint == "concourse-peer" && r.app);
    memory.secrets.retain(|id, _| bare.contains(&id.as_str()));
    for id in wanted {
        let key = bare_secret_id(id);
        let moved = stale.everything || shared || stale.secret.as_deref() == Some(key);
        if !moved && memory.secrets.contains_key(key) {
            continue;
        }
        match tools::secret_get(id)? {
            Ok(content) => drop(memory.secrets.insert(key.to_owned(), content)),
            Err(tools::Denied) => drop(memory.secrets.remove(key)),
        }
    }
    Ok(())
}
