//! What Juju wants: its environment variables, parsed once. Nothing else reads `JUJU_*`.

use crate::config::ModelProxy;
use crate::parse::UnitName;
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;

/// The environment of one dispatch (juju-protocol §1.2).
#[derive(Clone, Debug)]
pub struct Context {
    /// This unit.
    pub unit: UnitName,
    /// Name of the model.
    pub model: String,
    /// UUID of the model.
    pub model_uuid: String,
    /// Where the charm is unpacked.
    pub charm_dir: String,
    /// The model's proxy, used where the charm's own options are empty.
    pub model_proxy: ModelProxy,
    /// What happened.
    pub event: Event,
}

/// Why the charm was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An operator runs an action.
    Action(String),
    /// Something about a relation.
    Relation(RelationEvent),
    /// A secret that this unit has read has a new revision; the id is without `secret:`.
    SecretChanged(String),
    /// Any other hook, by its name; one that this charm has never heard of is one of these.
    Hook(String),
}

/// A relation hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelationEvent {
    /// Which of the five.
    pub phase: Phase,
    /// This charm's side, for example `web-tsa`.
    pub endpoint: String,
    /// For example `web-tsa:7`.
    pub id: String,
    /// The remote unit; `None` in created, broken, and in changed when the application's bag moved.
    pub unit: Option<String>,
    /// Who leaves, in departed; possibly this unit.
    pub departing: Option<String>,
}

/// Which relation hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The relation exists.
    Created,
    /// A remote unit is there.
    Joined,
    /// Data moved.
    Changed,
    /// A unit left.
    Departed,
    /// The relation is going.
    Broken,
}

/// Where a hook is heading. Every event leads to one of these; there are no handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Be what the options and relations say.
    Run,
    /// The unit is about to go: its worker retires, files stay.
    Stop,
    /// The unit goes: leave a clean machine.
    Remove,
}

impl Context {
    /// Parses the environment.
    ///
    /// # Errors
    /// The variables of a dispatch are missing: somebody started the program by hand.
    pub fn from_env(env: &BTreeMap<String, String>) -> Result<Self> {
        let get = |name: &str| env.get(name).map(String::as_str).filter(|v| !v.is_empty());
        let Some(path) = get("JUJU_DISPATCH_PATH") else {
            bail!("this program is run by Juju for hooks and actions: JUJU_DISPATCH_PATH is not set");
        };
        let need = |name: &str| get(name).with_context(|| format!("{name} is not set"));
        let variable = |name: &str| get(name).unwrap_or_default().to_owned();
        let model_proxy = ModelProxy {
            http: variable("JUJU_CHARM_HTTP_PROXY"),
            https: variable("JUJU_CHARM_HTTPS_PROXY"),
            no: variable("JUJU_CHARM_NO_PROXY"),
        };
        Ok(Context {
            unit: need("JUJU_UNIT_NAME")?.parse()?,
            model: get("JUJU_MODEL_NAME").unwrap_or_default().to_owned(),
            model_uuid: get("JUJU_MODEL_UUID").unwrap_or_default().to_owned(),
            charm_dir: need("JUJU_CHARM_DIR")?.to_owned(),
            model_proxy,
            event: Event::parse(path, &get)?,
        })
    }
}

impl Event {
    fn parse<'a>(path: &str, get: &dyn Fn(&str) -> Option<&'a str>) -> Result<Self> {
        if let Some(action) = path.strip_prefix("actions/") {
            return Ok(Event::Action(action.to_owned()));
        }
        let hook = path.rsplit('/').next().unwrap_or(path);
        if hook == "secret-changed" {
            let id = get("JUJU_SECRET_ID").context("JUJU_SECRET_ID is not set")?;
            return Ok(Event::SecretChanged(bare_secret_id(id).to_owned()));
        }
        const PHASES: [(&str, Phase); 5] = [
            ("-relation-created", Phase::Created),
            ("-relation-joined", Phase::Joined),
            ("-relation-changed", Phase::Changed),
            ("-relation-departed", Phase::Departed),
            ("-relation-broken", Phase::Broken),
        ];
        for (suffix, phase) in PHASES {
            if let Some(endpoint) = hook.strip_suffix(suffix) {
                return Ok(Event::Relation(RelationEvent {
                    phase,
                    endpoint: endpoint.to_owned(),
                    id: get("JUJU_RELATION_ID").context("JUJU_RELATION_ID is not set")?.to_owned(),
                    unit: get("JUJU_REMOTE_UNIT").map(str::to_owned),
                    departing: get("JUJU_DEPARTING_UNIT").map(str::to_owned),
                }));
            }
        }
        Ok(Event::Hook(hook.to_owned()))
    }

    /// Where this event leads.
    pub fn goal(&self) -> Goal {
        match self {
            Event::Hook(name) if name == "stop" => Goal::Stop,
            Event::Hook(name) if name == "remove" => Goal::Remove,
            _ => Goal::Run,
        }
    }
}

/// The part of a secret's id that is the same in `secret:ID`, `secret://MODEL/ID` and `ID`.
pub fn bare_secret_id(id: &str) -> &str {
    id.rsplit(['/', ':']).next().unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(vars: &[(&str, &str)]) -> Event {
        let mut env: BTreeMap<String, String> = [("JUJU_UNIT_NAME", "web/0"), ("JUJU_CHARM_DIR", "/c")]
            .iter()
            .chain(vars)
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        env.entry("JUJU_REMOTE_UNIT".into()).or_default();
        Context::from_env(&env).unwrap().event
    }

    #[test]
    fn events_and_goals() {
        let rows = [
            ("hooks/install", Event::Hook("install".into()), Goal::Run),
            ("hooks/stop", Event::Hook("stop".into()), Goal::Stop),
            ("hooks/remove", Event::Hook("remove".into()), Goal::Remove),
            ("hooks/never-heard-of", Event::Hook("never-heard-of".into()), Goal::Run),
            ("actions/drain", Event::Action("drain".into()), Goal::Run),
        ];
        for (path, expected, goal) in rows {
            let found = event(&[("JUJU_DISPATCH_PATH", path)]);
            assert_eq!(found, expected);
            assert_eq!(found.goal(), goal);
        }
    }

    #[test]
    fn an_empty_remote_unit_is_none() {
        let found = event(&[
            ("JUJU_DISPATCH_PATH", "hooks/web-tsa-relation-broken"),
            ("JUJU_RELATION_ID", "web-tsa:7"),
        ]);
        let Event::Relation(found) = found else { panic!("{found:?}") };
        assert_eq!((found.phase, found.endpoint.as_str(), found.unit), (Phase::Broken, "web-tsa", None));
    }

    #[test]
    fn every_form_of_a_secret_id_is_the_same_secret() {
        for id in ["secret:d0abc", "secret://8f7c-uuid/d0abc", "d0abc"] {
            let found = event(&[("JUJU_DISPATCH_PATH", "hooks/secret-changed"), ("JUJU_SECRET_ID", id)]);
            assert_eq!(found, Event::SecretChanged("d0abc".into()));
        }
    }

    #[test]
    fn by_hand_is_a_plain_sentence() {
        let error = Context::from_env(&BTreeMap::new()).unwrap_err();
        assert!(error.to_string().contains("run by Juju"), "{error}");
    }
}
