//! Packages for GPUs: when they are ordered, what is said meanwhile, and that they go again.

use crate::kit::model::Model;
use crate::kit::unit::TestUnit;
use concourse_ci_machine::event::Goal;
use concourse_ci_machine::gpu::lacks::Lacks;
use concourse_ci_machine::plan::plan;
use concourse_ci_machine::step::Step;
use concourse_ci_machine::view::packages::order;
use insta::assert_snapshot;

fn libraries() -> Lacks {
    Lacks { libraries: Some("550.163.01".into()), ..Lacks::default() }
}

fn driver() -> Lacks {
    Lacks { driver: Some(vec![0x2335]), ..Lacks::default() }
}

fn lacking(lacks: Lacks) -> TestUnit {
    TestUnit::worker_unit().config("enable-gpu", true).settled().lacking(lacks)
}

#[test]
fn libraries_are_installed_when_all_else_is_done() {
    let mut unit = lacking(libraries()).config("tag", "big");
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    write /etc/concourse/worker.env 600 Root
    say maintenance: Restarting the worker...
    restart concourse-worker.service
    --
    look at GPUs
    --
    write /etc/concourse/worker.env 600 Root
    --
    say maintenance: Installing NVIDIA's libraries 550.163.01...
    install NVIDIA's libraries 550.163.01
    look at GPUs
    --
    write /etc/concourse/worker.env 600 Root
    ");
    assert_snapshot!(unit.status(), @"active: Worker ready (GPU: 2x NVIDIA)");
    assert_eq!(unit.plan(), "nothing");
}

#[test]
fn what_cant_be_had_is_said_and_stops_nothing() {
    let mut unit = lacking(libraries());
    let mut model =
        Model { no_packages: Some("No source of apt has it: mirror it".into()), ..Model::default() };
    assert_snapshot!(model.hook(&mut unit.world, Goal::Run).join("\n--\n"), @"
    look at GPUs
    --
    write /etc/concourse/worker.env 600 Root
    say maintenance: Restarting the worker...
    restart concourse-worker.service
    --
    say maintenance: Installing NVIDIA's libraries 550.163.01...
    install NVIDIA's libraries 550.163.01
    look at GPUs
    ");
    assert_snapshot!(unit.status(), @"blocked: No source of apt has it: mirror it");
    model.no_packages = Some("Waiting for apt, which another program uses".into());
    model.hook(&mut unit.world, Goal::Run);
    assert_snapshot!(unit.status(), @"waiting: Waiting for apt, which another program uses");
    // While other GPUs work, it is a note.
    unit.world.machine.gpus.as_mut().unwrap().blocked = None;
    assert_snapshot!(unit.status(), @"active: Worker ready");
}

#[test]
fn drivers_are_for_who_asks_and_wait_for_a_restart_if_they_must() {
    let mut unit = lacking(driver());
    assert_eq!(unit.plan(), "nothing");
    unit = unit.config("install-drivers", true).config("nvidia-driver-branch", "550-server");
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    look at GPUs
    --
    write /etc/concourse/worker.env 600 Root
    say maintenance: Restarting the worker...
    restart concourse-worker.service
    --
    say maintenance: Installing NVIDIA's driver 550-server...
    install NVIDIA's driver 550-server
    look at GPUs
    ");
    assert_snapshot!(unit.status(), @"blocked: NVIDIA's driver is installed: restart the machine to load it");
    assert_eq!(unit.plan(), "nothing", "no second driver while the first waits");
    unit.world.machine.boot = "next".into();
    unit.hook(Goal::Run);
    let mut unit = unit.config("install-drivers", false);
    assert_snapshot!(unit.hook(Goal::Run).join("\n--\n"), @"
    say maintenance: Removing the charm's packages for GPUs...
    remove packages of [Driver]
    look at GPUs
    ");
}

/// Two drivers don't go together, and the loaded one stays until a restart.
#[test]
fn another_branch_is_for_the_operator_to_exchange() {
    use concourse_ci_machine::actions::{Action, answer};
    use concourse_ci_machine::packages::{Entry, Purpose};
    let told = |installed: &str, wanted: &str| {
        let mut unit = lacking(Lacks::default()).config("install-drivers", true);
        unit = unit.config("nvidia-driver-branch", wanted);
        let driver = Entry { purpose: Purpose::Driver, held: false };
        for name in ["linux-modules-nvidia-", "nvidia-headless-no-dkms-"] {
            unit.world.machine.packages.packages.insert(format!("{name}{installed}"), driver.clone());
        }
        answer(&Action::CheckStatus { verbose: false }, &unit.world).results["gpus"].clone()
    };
    assert_snapshot!(told("550-server", "580-server"), @"
    GPU: 2x NVIDIA
    nvidia-driver-branch=580-server, and the charm has installed 550-server: to exchange it set compute-runtime=none, restart the machine when its packages are gone, and set it back
    ");
    for (installed, wanted) in
        [("550-server", "auto"), ("550-server", "550-server"), ("580-server-open", "580-server")]
    {
        assert!(!told(installed, wanted).contains("exchange"), "{installed} for {wanted}");
    }
    assert!(told("580-server", "580-server-open").contains("exchange"), "the open module was asked for");
}

#[test]
fn nobody_waits_for_the_toolkit() {
    use concourse_ci_machine::view::packages::circumstances;
    use concourse_ci_machine::world::NoToolkit;
    let mut unit = lacking(Lacks { generator: true, ..Lacks::default() });
    assert_snapshot!(unit.clone().hook(Goal::Run).join("\n--\n"), @"
    look at GPUs
    --
    say maintenance: Installing NVIDIA's container toolkit...
    install NVIDIA's container toolkit
    look at GPUs
    ");
    let note = NoToolkit { circumstances: circumstances(&unit.world), why: "it can't be had".into() };
    unit.world.machine.no_toolkit = Some(note);
    assert_eq!(unit.plan(), "nothing");
    assert_snapshot!(unit.status(), @"active: Worker ready (GPU: 2x NVIDIA)");
    let unit = unit.config("http-proxy", "http://proxy:3128");
    assert!(order(&unit.world).is_some(), "another proxy is another try");
}

#[test]
fn what_was_installed_goes_with_the_option_and_with_the_unit() {
    let mut unit = lacking(libraries());
    unit.hook(Goal::Run);
    unit.world.machine.gpus_persist = true;
    let mut off = unit.clone().config("enable-gpu", false);
    let plans = off.hook(Goal::Run);
    assert!(plans[0].contains("restore GPUs\nremove /etc/concourse/gpu.json"), "{plans:#?}");
    assert_snapshot!(plans.last().unwrap(), @"
    say maintenance: Removing the charm's packages for GPUs...
    remove packages of [Libraries]
    ");

    let steps = |unit: &TestUnit| -> Vec<String> {
        plan(Goal::Remove, &unit.world).iter().map(ToString::to_string).collect()
    };
    let at = |steps: &[String], what: &str| steps.iter().position(|step| step.starts_with(what)).unwrap();
    unit.world.machine.leftovers = vec!["/run/concourse-gpu".into(), "/var/lib/concourse".into()];
    let all = steps(&unit);
    assert!(at(&all, "restore GPUs") < at(&all, "remove packages of [Libraries]"), "{all:#?}");
    assert!(at(&all, "remove packages") < at(&all, "remove /run/concourse-gpu"), "{all:#?}");
    // A unit that leaves does not stay for an apt that won't.
    let mut model = Model { no_packages: Some("apt did not end".into()), ..Model::default() };
    let plans = model.hook(&mut unit.world, Goal::Remove);
    assert!(plans.last().unwrap().contains("remove /var/lib/concourse"), "{plans:#?}");
}

/// The action that says what to do about it does not fail for it.
#[test]
fn gpu_diagnose_tells_of_packages_that_cant_be_had() {
    use concourse_ci_machine::actions::{Action, answer};
    let mut unit = lacking(libraries());
    let why = "No source of apt has it: mirror it";
    let mut model = Model { no_packages: Some(why.into()), ..Model::default() };
    model.hook(&mut unit.world, Goal::Run);
    let told = answer(&Action::GpuDiagnose, &unit.world);
    assert_eq!((told.failure, told.results["notes"].as_str()), (None, why));
}

#[test]
fn orders_know_where_to_look() {
    let mut unit = lacking(libraries()).config("https-proxy", "http://u:MARKER@proxy:3128");
    let url = |unit: &TestUnit| order(&unit.world).unwrap().repository.map(|repository| repository.url);
    assert_eq!(url(&unit), None, "a system that NVIDIA has nothing for");
    unit.world.machine.system = "ubuntu 24.04".into();
    assert!(url(&unit).unwrap().ends_with("/ubuntu2404/x86_64"));
    assert!(order(&unit.world).unwrap().proxy.https.unwrap().contains("MARKER"));
    assert!(
        plan(Goal::Run, &unit.world).iter().all(|step| !matches!(step, Step::InstallPackages(_))),
        "looks first"
    );
}
