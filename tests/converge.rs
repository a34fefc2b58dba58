//! Properties of plans, over worlds that options, relations and accidents may lead to.

#![allow(missing_docs)]

mod kit;

use concourse_ci_machine::actions::{self, Action};
use concourse_ci_machine::event::Goal;
use concourse_ci_machine::gpu::lacks::Lacks;
use concourse_ci_machine::parse::Moment;
use concourse_ci_machine::step::{Level, Step};
use concourse_ci_machine::world::{Role, Worker, World};
use concourse_ci_machine::{paths, plan::plan, status::status};
use kit::model::Model;
use kit::unit::{KEYS, TestUnit};
use proptest::prelude::*;

/// What may happen to a unit between two hooks.
#[derive(Clone, Debug)]
enum Happening {
    Mode(&'static str),
    BadOption,
    Tag(&'static str),
    Untagged(bool),
    Gpus(bool),
    Access(&'static str),
    Lacks(&'static str),
    Drivers(bool),
    Version(&'static str),
    Password(&'static str),
    NoDatabase,
    Joins(usize),
    NoWorkers,
    Tsa(&'static str),
    NoTsa,
    Asked(&'static str),
    Answered(&'static str),
    Later(u64),
    RestartServices,
    Leader(bool),
    Reboot,
    Killed(Role),
    LostWorkDir(Worker),
    Containers(Worker),
    LostFile(&'static str),
    ForeignEdit(&'static str),
    Drained(bool),
    PartsOfVersions,
}

/// Which version was seen working is known from nowhere else: who loses that loses the way back to it.
fn written_anew() -> Vec<&'static str> {
    paths::MANAGED.into_iter().filter(|path| *path != paths::PROVEN).collect()
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening::*;
    prop_oneof![
        prop::sample::select(vec!["auto", "all", "web", "worker"]).prop_map(Mode),
        Just(BadOption),
        prop::sample::select(vec!["", "a", "a,b"]).prop_map(Tag),
        any::<bool>().prop_map(Untagged),
        any::<bool>().prop_map(Gpus),
        prop::sample::select(&["shared", "request", "exclusive"][..]).prop_map(Access),
        prop::sample::select(&["libraries", "driver", "generator"][..]).prop_map(Lacks),
        any::<bool>().prop_map(Drivers),
        prop::sample::select(vec!["", "8.2.5", "8.2.6", "8.2.7"]).prop_map(Version),
        prop::sample::select(vec!["one", "two'\"\\%"]).prop_map(Password),
        Just(NoDatabase),
        (0..KEYS.len()).prop_map(Joins),
        Just(NoWorkers),
        prop::sample::select(vec!["10.0.0.5:2222", "[fd00::5]:2222", "nonsense"]).prop_map(Tsa),
        Just(NoTsa),
        prop::sample::select(vec!["1000", "1031", "soon", ""]).prop_map(Asked),
        prop::sample::select(vec!["1000", "1000 1031", "1031", "yes", ""]).prop_map(Answered),
        prop::sample::select(vec![1000, 1029, 1031, 5000]).prop_map(Later),
        Just(RestartServices),
        any::<bool>().prop_map(Leader),
        Just(Reboot),
        prop::sample::select(Role::ALL.to_vec()).prop_map(Killed),
        prop::sample::select(Worker::ALL.to_vec()).prop_map(LostWorkDir),
        prop::sample::select(Worker::ALL.to_vec()).prop_map(Containers),
        prop::sample::select(written_anew()).prop_map(LostFile),
        prop::sample::select(written_anew()).prop_map(ForeignEdit),
        any::<bool>().prop_map(Drained),
        Just(PartsOfVersions),
    ]
}

fn happen(unit: TestUnit, what: &Happening) -> TestUnit {
    let mut unit = match what {
        Happening::Mode(mode) => unit.config("deployment-mode", *mode),
        Happening::BadOption => unit.config("web-port", 0),
        Happening::Tag(tag) => unit.config("tag", *tag).config("web-port", 8080),
        Happening::Untagged(on) => unit.config("worker-untagged", *on),
        Happening::Gpus(on) => unit.config("enable-gpu", *on),
        Happening::Access(word) => unit.config("gpu-access", *word),
        Happening::Drivers(on) => unit.config("install-drivers", *on),
        Happening::Lacks(what) if unit.world.machine.gpus.is_some() => unit.lacking(Lacks {
            libraries: (*what == "libraries").then(|| "550.163.01".into()),
            driver: (*what == "driver").then(|| vec![0x2335]),
            generator: *what == "generator",
        }),
        Happening::Version(version) => unit.config("concourse-version", *version),
        Happening::Password(password) => unit.database(password),
        Happening::NoDatabase => unit.unrelated("database:3"),
        Happening::Joins(i) => unit.worker(&format!("w{i}/0"), KEYS[*i]),
        Happening::NoWorkers => unit.unrelated("web-tsa:2"),
        Happening::Tsa(host) => unit.tsa(host),
        Happening::NoTsa => unit.unrelated("worker-tsa:1"),
        Happening::Asked(since) => unit.asked(since),
        Happening::Answered(answer) => unit.answered(answer),
        other => return accident(unit, other),
    };
    unit.world.problems.truncate(3);
    unit
}

fn accident(mut unit: TestUnit, what: &Happening) -> TestUnit {
    if matches!(what, Happening::RestartServices) {
        let restart = Action::parse("restart-services", &serde_json::Map::new()).unwrap();
        // It may be refused: what can't be started again is not stopped.
        if let Ok(first) = actions::steps(&restart, &unit.world) {
            Model::default().carry_out(&mut unit.world, &first);
        }
        return unit;
    }
    let machine = &mut unit.world.machine;
    match what {
        Happening::Later(now) => unit.world.now = Moment::new(*now),
        Happening::Leader(leads) => unit.world.leader = *leads,
        Happening::Reboot => {
            machine.boot.push('+');
            for service in machine.services.values_mut() {
                service.active = service.enabled;
            }
        }
        Happening::Killed(role) => machine.services.entry(*role).or_default().active = false,
        Happening::LostWorkDir(worker) => drop(machine.work_dirs.remove(worker)),
        Happening::Containers(worker) => {
            // Only a worker that has been there and does not run any more can have left some.
            if machine
                .services
                .get(&worker.role())
                .is_some_and(|service| !service.active && !service.changing)
            {
                machine.containers.insert(*worker);
            }
        }
        Happening::LostFile(path) => drop(machine.files.remove(*path)),
        Happening::ForeignEdit(path) => {
            if let Some(file) = machine.files.get_mut(*path) {
                file.text.push_str("# edited");
            }
        }
        Happening::Lacks(_) => {}
        Happening::PartsOfVersions => machine.half_installed = true,
        Happening::Drained(true) => {
            let root = concourse_ci_machine::host::fs::Owner { uid: 0, gid: 0 };
            let note =
                concourse_ci_machine::world::FileOnDisk { text: String::new(), mode: 0o644, owner: root };
            machine.files.insert(paths::DRAINED.into(), note);
            machine.drained = true;
        }
        _ => {
            machine.files.remove(paths::DRAINED);
            machine.drained = false;
        }
    }
    kit::model::refresh(&mut unit.world);
    unit
}

fn history() -> impl Strategy<Value = (&'static str, Vec<Happening>)> {
    let starts = vec!["web", "web alone", "worker", "two workers"];
    (prop::sample::select(starts), prop::collection::vec(happening(), 0..8))
}

fn start(with: &str) -> TestUnit {
    match with {
        "web" => TestUnit::web(),
        "web alone" => TestUnit::web_alone(),
        "worker" => TestUnit::worker_unit(),
        _ => TestUnit::two_workers(),
    }
}

/// What matters of a world: everything but the traces of the hook itself.
fn essence(world: &World) -> String {
    let mut world = world.clone();
    world.troubles.clear();
    world.started.clear();
    world.committed = Default::default();
    world.looked = false;
    format!("{world:?}")
}

/// Nobody waits for anybody's pause any more: until then, how far a hook came decides who starts and who waits.
fn unpaused(unit: TestUnit) -> TestUnit {
    let now = unit.world.now.to_string();
    let mut unit = unit.answered(&now).asked("");
    unit.hook(Goal::Run);
    unit.hook(Goal::Run);
    unit
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// After any history, hooks come to rest, and a further one plans nothing. (The model panics if they don't.)
    #[test]
    fn hooks_come_to_rest((with, happenings) in history()) {
        let mut unit = start(with);
        for what in &happenings {
            unit = happen(unit, what);
            unit.hook(Goal::Run);
        }
        unit.hook(Goal::Run);
        prop_assert_eq!(unit.plan(), "nothing");
    }

    /// Cut off after any step, the next hooks end where an uninterrupted one does.
    #[test]
    fn a_hook_cut_off_anywhere_ends_the_same((with, happenings) in history(), cut in 0usize..40) {
        let mut whole = start(with);
        for what in &happenings {
            whole = happen(whole, what);
        }
        let mut broken = whole.clone();
        whole.hook(Goal::Run);
        Model { cut: Some(cut), ..Model::default() }.hook(&mut broken.world, Goal::Run);
        broken.hook(Goal::Run);
        prop_assert_eq!(essence(&unpaused(broken).world), essence(&unpaused(whole).world));
    }

    /// What is blocked or waiting stops no service that runs well, unless its role or relation is gone.
    #[test]
    fn blocked_is_gentle((with, happenings) in history()) {
        let mut unit = start(with);
        for what in &happenings {
            if matches!(what, Happening::Mode(_) | Happening::NoTsa | Happening::Leader(_) | Happening::LostWorkDir(_)
                | Happening::Drained(_)) {
                continue;
            }
            unit = happen(unit, what);
            if status(&unit.world).level != Level::Active {
                let unasked = |step: &Step| match step {
                    Step::Stop(_) => true,
                    // The second worker goes with its option, or with the last tag.
                    Step::Leave(workers, ..) => workers[..] != [Worker::Untagged],
                    _ => false,
                };
                prop_assert!(!plan(Goal::Run, &unit.world).iter().any(unasked), "{}", unit.plan());
            }
            unit.hook(Goal::Run);
        }
    }

    /// No secret shows in a plan, a status, or the debug text of a world.
    #[test]
    fn secrets_stay_secret((with, happenings) in history()) {
        let mut unit = start(with).database("MARKERdatabase");
        for what in &happenings {
            unit = happen(unit, what);
            let said = format!("{}{}", unit.plan(), unit.status());
            prop_assert!(!said.contains("MARKER"), "{said}");
            unit.hook(Goal::Run);
        }
        for bag in unit.world.record.unit_bags.values().chain(unit.world.record.app_bags.values()) {
            let text = format!("{bag:?}");
            prop_assert!(!text.contains("MARKER") && !text.contains("private half"), "{text}");
        }
    }
}
