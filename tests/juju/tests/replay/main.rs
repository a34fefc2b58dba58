//! The captured life of two applications on a real Juju 4.0.15, played again on the emulated one: every call of every
//! tool must answer the same, and the events must come in the same order.

mod sample;
mod world;

use emulated_juju::Outcome;
use emulated_juju::model::{Grant, Operation, Owner, Secret};
use emulated_juju::time::now;
use serde_json::{Value, json};
use world::World;

#[test]
fn every_captured_call_is_answered_the_same() {
    let mut world = World::new();
    world.deploy("pa", "probe", Some("0"));
    world.attach("pa");
    world.deploy("pb", "probe", Some("1"));
    world.play("pa/0", "install", "install");
    world.play("pa/0", "ring-relation-created", "peer-relation-created");
    world.play("pa/0", "leader-elected", "leader-elected");
    world.play("pa/0", "config-changed", "config-changed");
    world.play("pa/0", "start", "start");
    world.run_until(None);
    relate(&mut world);
    act(&mut world);
    share_secrets(&mut world);
    fail_and_grow(&mut world);
    leave(&mut world);
    assert!(
        world.wrong.is_empty(),
        "{} of {} differ:\n{}",
        world.wrong.len(),
        world.compared,
        world.wrong.join("\n")
    );
    assert!(world.compared > 2000, "only {} calls were compared", world.compared);
}

#[test]
fn a_unit_that_does_not_lead_is_answered_the_same() {
    let mut world = World::new();
    world.model.next_relation = 3;
    world.model.unit_numbers.insert("pb".into(), 1);
    world.deploy("pb", "probe", Some("0"));
    world.deploy("pc", "probe", Some("1"));
    world.run_until(None);
    world.model.relate("pc:src", "pb:snk").unwrap();
    world.run_until(None);
    world.model.add_unit("pc", "0", "").unwrap();
    world.run_until(None);
    world.run_exec("pc/0", "status-set blocked before\u{1}failing");
    world.play_exec("pc/1", "non-leader", &sample::exec("cli-nonleader.txt", 0));
    assert!(world.wrong.is_empty(), "{}", world.wrong.join("\n"));
    assert_eq!(world.compared, 13);
}

#[test]
fn an_expired_secret_is_told_the_same() {
    let mut world = World::new();
    world.model.uuid = "0b56706c-c6a1-465b-8f61-9576a70e823a".into();
    world.deploy("px", "probe", Some("0"));
    world.run_until(None);
    for (theirs, call) in [
        ("2gkb21rhte1la8aoelo0", "secret-add --label exp --expire 1m token=abc"),
        ("943aadpiggv5j903p33g", "secret-add --label rot --rotate hourly token=abc"),
    ] {
        world.run_exec("px/0", call);
        let label = call.split(' ').nth(2).unwrap_or_default();
        let made = world.model.secrets.values_mut().find(|secret| secret.label == label).unwrap();
        made.expires = made.expires.map(|_| now());
        let id = made.id.clone();
        world.rename(theirs, &id);
    }
    world.play("px/0", "secret-expired", "secret-expired");
    assert!(world.wrong.is_empty(), "{}", world.wrong.join("\n"));
    assert!(world.compared > 100);
}

fn relate(world: &mut World) {
    world.model.relate("pa:src", "pb:snk").unwrap();
    world.play("pa/0", "src-relation-created", "relation-created");
    // The other unit's -created was still running when this one saw it.
    world.run_until(Some(("pb/0", "snk-relation-created")));
    let created = world.model.next_operation("pb/0", now()).unwrap();
    let created = world.begin_probe("pb/0", created, "snk-relation-created");
    let joined = world.model.next_operation("pa/0", now()).unwrap();
    world.model.finish(&created, &Outcome::default());
    world.play_operation("pa/0", joined, "relation-joined");
    world.play("pa/0", "src-relation-changed", "relation-changed-unit");
    world.play("pa/0", "src-relation-changed", "relation-changed-app");
    world.run_until(None);
}

fn act(world: &mut World) {
    world.set("pa", json!({"str-def": "changed"}));
    world.run_until(None);
    let params = json!({"msg": "dflt", "cnt": 3});
    let task = world.model.enqueue_action("pa/0", "probe", params).unwrap();
    world.play_operation("pa/0", Operation::Action(task), "action");
    assert_eq!(world.model.actions[&task].results["b"], json!({"c": "two", "d": "three"}));
}

/// The charm's own secrets and one of the operator's.
fn share_secrets(world: &mut World) {
    world.play_exec("pa/0", "secrets", &sample::exec("cli-secrets.txt", 0));
    world.run_until(None);
    let mut grant = sample::exec("cli-secrets2.txt", 0);
    let added = "secret://4075b630-e862-4195-830a-20ca42d22366/282pkbdh3k9qjmvfrr70\n";
    let line = "secret-add --label g1 shared=yes".into();
    grant.insert(0, sample::Step { line, out: added.into(), ..sample::Step::default() });
    world.play_exec("pa/0", "grant", &grant);
    world.run_until(None);
    world.play_exec("pb/0", "consume", &sample::exec("cli-secrets2.txt", 1));
    let shared = world.model.secrets.values().find(|secret| secret.label == "g1").unwrap().id.clone();
    world.run_exec("pa/0", &format!("secret-set {shared} shared=rev2"));
    world.play("pb/0", "secret-changed", "secret-changed-charm");
    world.play_fired("pa/0", "update-status", "update-status");
    world.play_exec("pa/0", "more secrets", &sample::exec("cli-secrets.txt", 1));
    let content =
        [("token", "abc"), ("key2", "v 2")].map(|(key, value)| (key.to_string(), value.to_string()));
    let mut user = Secret::new("ucu4o1sjbggcst5n2aug", Owner::Model, content.clone().into(), now());
    user.grants.push(Grant { target: "pa".into(), relation: None });
    world.model.secrets.insert(user.id.clone(), user);
    world.set("pa", json!({"sec": "secret:ucu4o1sjbggcst5n2aug"}));
    world.run_until(None);
    world.run_exec("pa/0", "secret-get secret:ucu4o1sjbggcst5n2aug");
    let user = world.model.secrets.get_mut("ucu4o1sjbggcst5n2aug").unwrap();
    user.add_revision([("token".to_string(), "def".to_string())].into(), now());
    world.play("pa/0", "secret-changed", "secret-changed-user");
}

fn fail_and_grow(world: &mut World) {
    world.set("pa", json!({"str-def": "boom2", "sec": "secret:ucu4o1sjbggcst5n2aug"}));
    world.run_until(None);
    world.deploy("sub", "probe-sub", None);
    world.model.relate("sub:host", "pa").unwrap();
    world.model.add_unit("pb", "0", "").unwrap();
    world.play("sub/0", "host-relation-joined", "subordinate-joined");
    world.run_until(None);
}

fn leave(world: &mut World) {
    let id = world.model.find_relation("pa:src", "pb:snk").unwrap();
    world.model.remove_relation(id);
    world.play("pa/0", "src-relation-departed", "relation-departed");
    world.play("pa/0", "src-relation-broken", "relation-broken");
    world.run_until(None);
    world.model.remove_application("pa").unwrap();
    world.play("pa/0", "stop", "stop");
    world.play("pa/0", "remove", "remove");
    world.run_until(None);
    assert!(!world.model.applications.contains_key("pa"));
}

impl World {
    /// Sets options, like `juju config`.
    fn set(&mut self, app: &str, options: Value) {
        let mut config = self.model.applications[app].config.clone();
        config.extend(options.as_object().unwrap().clone());
        self.model.set_config(app, config);
    }

    /// Runs calls of one tool in a context of its own, like `juju exec`.
    fn run_exec(&mut self, unit: &str, line: &str) {
        let task = self.model.enqueue_exec(unit, "").unwrap();
        let context = self.model.begin(unit, Operation::Exec(task));
        let reply = self.call(&context, line);
        assert_eq!(reply.rc, 0, "{line}: {}", reply.stderr);
        self.model.finish(&context, &Outcome::default());
    }
}
