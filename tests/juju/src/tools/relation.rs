//! The relation tools.

use super::{Answer, Args, Output, ToolError, failure, usage};
use crate::context::{Bag, Context};
use crate::data::{Data, map, text, texts};
use crate::model::{Model, Relation, app_of};

impl Model {
    /// The relation that `-r` names, if this unit knows it.
    pub(super) fn relation_argument(&self, context: &Context, given: &str) -> Result<u32, ToolError> {
        let invalid = |why: &str| usage(format!("invalid value {given:?} for option -r: {why}"));
        let number = given.rsplit(':').next().unwrap_or(given);
        let id: u32 = number.parse().map_err(|_| invalid("invalid relation id"))?;
        let known = context.members.contains_key(&id) && self.relations.contains_key(&id);
        if known { Ok(id) } else { Err(invalid("relation not found")) }
    }

    fn relation_of(&self, context: &Context, args: &Args) -> Result<u32, ToolError> {
        match args.value("relation") {
            Some(given) => self.relation_argument(context, &given),
            None => context.relation.ok_or_else(|| usage("no relation id specified")),
        }
    }

    fn known_relation(&self, context: &Context, args: &Args) -> Result<&Relation, ToolError> {
        let id = self.relation_of(context, args)?;
        self.relations.get(&id).ok_or_else(|| failure("relation not found"))
    }

    pub(super) fn relation_ids(&self, context: &Context, args: &Args) -> Answer {
        let app = app_of(&context.unit);
        let own =
            context.relation.and_then(|id| self.relations.get(&id)).and_then(|relation| relation.end_of(app));
        let Some(endpoint) = args.at_most(1)?.or(own.map(|end| end.name.as_str())) else {
            return Err(usage("no endpoint name specified"));
        };
        let known = context.members.keys().filter_map(|id| self.relations.get(id));
        let mut ids: Vec<String> = known
            .filter(|relation| relation.end_of(app).is_some_and(|end| end.name == endpoint))
            .map(|relation| relation.key_for(app))
            .collect();
        ids.sort();
        Ok(Output::Show(texts(ids)))
    }

    pub(super) fn relation_list(&self, context: &Context, args: &Args) -> Answer {
        args.at_most(0)?;
        let relation = self.known_relation(context, args)?;
        if args.flag("app") {
            return Ok(Output::Show(text(&relation.other_end(app_of(&context.unit)).app)));
        }
        Ok(Output::Show(texts(context.members.get(&relation.id).into_iter().flatten())))
    }

    pub(super) fn relation_model_get(&self, context: &Context, args: &Args) -> Answer {
        args.at_most(0)?;
        self.known_relation(context, args)?;
        Ok(Output::Show(map([("uuid", text(&self.uuid))])))
    }

    pub(super) fn relation_get(&self, context: &mut Context, args: &Args) -> Answer {
        args.at_most(2)?;
        let id = self.relation_of(context, args)?;
        let subject = self.subject(context, args)?;
        let bag = self.read_bag(context, id, &subject)?;
        let key = args.words.first().map_or("-", String::as_str);
        if key == "-" || key.is_empty() {
            return Ok(Output::Show(Data::strings(&bag)));
        }
        Ok(Output::Show(bag.get(key).map_or(Data::Null, text)))
    }

    /// Whose bag is meant: a unit or an application.
    fn subject(&self, context: &Context, args: &Args) -> Result<String, ToolError> {
        let app = args.flag("app");
        match args.words.get(1) {
            Some(name) if app => Ok(app_of(name).into()),
            Some(name) if !name.contains('/') => {
                Err(usage(format!("expected unit name, got application name {name:?}")))
            }
            Some(name) => {
                let number = name.split('/').nth(1).unwrap_or_default();
                if name.matches('/').count() != 1 || number.parse::<u32>().is_err() {
                    return Err(usage(format!("invalid unit name {name:?}")));
                }
                Ok(name.clone())
            }
            None if !app && !context.remote_unit.is_empty() => Ok(context.remote_unit.clone()),
            None if !context.remote_app.is_empty() => Ok(context.remote_app.clone()),
            None => Err(usage("no unit or application specified")),
        }
    }

    fn read_bag(&self, context: &mut Context, id: u32, subject: &str) -> Result<Bag, ToolError> {
        let relation = &self.relations[&id];
        let (unit, app) = (context.unit.clone(), app_of(&context.unit));
        self.may_read(relation, &unit, subject)?;
        let stored = || relation.bag(subject).map(|bag| bag.data.clone());
        let own = subject == unit || subject == app;
        if own {
            let mut bag = match stored() {
                Some(bag) => bag,
                None => {
                    let why = format!("cannot read relation settings: unit {unit:?}: settings not found");
                    return Err(failure(why));
                }
            };
            if let Some(changes) = context.pending.bags.get(&id).and_then(|bags| bags.get(subject)) {
                bag.extend(changes.clone());
                bag.retain(|_, value| !value.is_empty());
            }
            return Ok(bag);
        }
        let cached = context.cache.entry(id).or_default().entry(subject.into()).or_insert_with(stored);
        cached.clone().ok_or_else(|| {
            let ends: Vec<_> = relation.endpoints.iter().rev().map(|end| format!("{}:{}", end.app, end.name)).collect();
            failure(format!(
                "cannot read settings for unit {subject:?} in relation {:?}: unit {subject:?}: settings not found",
                ends.join(" ")
            ))
        })
    }

    fn may_read(&self, relation: &Relation, unit: &str, subject: &str) -> Result<(), ToolError> {
        let denied = || failure("permission denied");
        let app = app_of(unit);
        if relation.end_of(app_of(subject)).is_none() {
            return Err(denied());
        }
        let own_app = subject == app;
        let sibling = subject != unit && app_of(subject) == app && !own_app;
        if !self.is_40() && !relation.is_peer() && (sibling || own_app && !self.is_leader(unit)) {
            return Err(denied());
        }
        Ok(())
    }

    pub(super) fn relation_set(&self, context: &mut Context, args: &Args) -> Answer {
        let id = self.relation_of(context, args)?;
        let words = args.pairs(0)?;
        let mut changes = args.file_map()?;
        changes.extend(words);
        let app = app_of(&context.unit).to_string();
        let owner = if args.flag("app") {
            if !self.is_leader(&context.unit) {
                return Err(failure("cannot write relation settings"));
            }
            app
        } else {
            context.unit.clone()
        };
        context.pending.bags.entry(id).or_default().entry(owner).or_default().extend(changes);
        Ok(Output::Silent)
    }
}
