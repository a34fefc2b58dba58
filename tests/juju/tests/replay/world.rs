//! The model of the samples, and playing them against it.

use crate::sample::{Step, hook};
use emulated_juju::Outcome;
use emulated_juju::charm::Charm;
use emulated_juju::model::{Application, Hook, Model, Network, Operation, Resource};
use emulated_juju::time::now;
use emulated_juju::tools::{TOOLS, ToolReply, ToolRequest};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const UUID: &str = "4075b630-e862-4195-830a-20ca42d22366";

/// What the probe charm did in hooks that were not captured.
const WRITES: [(&str, &[&str]); 8] = [
    (
        "install",
        &[
            "application-version-set 1.2.3",
            "state-set k1=v1 k2=a\u{1}b",
            "open-port 8080",
            "open-port icmp",
            "open-port 8443/tcp --endpoints src",
            "status-set maintenance installing\u{1}stuff",
        ],
    ),
    (
        "-relation-created",
        &["relation-set foo=bar sp=a\u{1}b x=1 json={\"a\":1} num=5", "relation-set --app appkey=UNIT"],
    ),
    ("config-changed", &["state-delete k2"]),
    ("start", &["status-set active", "status-set --application active app\u{1}is\u{1}fine"]),
    ("-relation-changed", &["relation-set y=2"]),
    ("-relation-departed", &["relation-set z=3"]),
    ("-relation-broken", &["relation-set z=4"]),
    ("stop", &[]),
];

/// The lab of the samples.
pub struct World {
    /// The model.
    pub model: Model,
    /// Our ids of the samples' secrets.
    ids: BTreeMap<String, String>,
    /// What differed.
    pub wrong: Vec<String>,
    /// How many calls were compared.
    pub compared: usize,
    /// Files that the probe charm wrote.
    pub files: BTreeMap<String, String>,
}

fn charm_dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/charms").join(name)
}

impl World {
    /// Two machines, nothing deployed.
    pub fn new() -> World {
        let mut model = Model::new("4.0.15.1", std::env::temp_dir());
        model.uuid = UUID.into();
        model.api_address = "10.98.0.10:17070".into();
        for (mac, address) in [("ee:ae:50:67:53:80", "10.98.0.11"), ("0a:de:5e:ed:fd:fc", "10.98.0.12")] {
            let id = model.add_machine();
            model.make_up_network(&id);
            model.machines.get_mut(&id).unwrap().network = Some(Network {
                interface: "host0".into(),
                mac: mac.into(),
                address: address.into(),
                cidr: "10.98.0.0/24".into(),
            });
        }
        let files = BTreeMap::from([
            ("/tmp/rs.yaml".to_string(), "fromfile: v\n".to_string()),
            ("-".into(), "num: 5\n".into()),
            ("/tmp/sc".into(), "filecontent\n".into()),
            ("/tmp/sf.yaml".into(), "file-key: file-val\nn: 5\n".into()),
        ]);
        World { model, ids: BTreeMap::new(), wrong: Vec::new(), compared: 0, files }
    }

    /// Deploys one of the probe charms.
    pub fn deploy(&mut self, app: &str, charm: &str, machine: Option<&str>) {
        let charm = Charm::load(&charm_dir(charm)).unwrap();
        self.model.add_application(Application::new(app, charm)).unwrap();
        if let Some(machine) = machine {
            self.model.add_unit(app, machine, "").unwrap();
        }
    }

    /// A secret of ours stands for one of the samples.
    pub fn rename(&mut self, theirs: &str, ours: &str) {
        self.ids.insert(theirs.into(), ours.into());
    }

    /// Gives an application its resource.
    pub fn attach(&mut self, app: &str) {
        let resource = Resource { blob: "b".into(), at: now() };
        self.model.applications.get_mut(app).unwrap().resources.insert("blob".into(), resource);
    }

    /// Runs whatever comes, until `unit` is about to run `name`; then plays the sample against that hook.
    pub fn play(&mut self, unit: &str, name: &str, sample: &str) {
        self.run_until(Some((unit, name)));
        let operation = self.model.next_operation(unit, now()).unwrap();
        self.play_operation(unit, operation, sample);
    }

    /// Plays a sample against a hook that is fired by hand.
    pub fn play_fired(&mut self, unit: &str, hook: &str, sample: &str) {
        self.play_operation(unit, Operation::Hook(Hook::plain(hook)), sample);
    }

    /// Plays a sample against an operation.
    pub fn play_operation(&mut self, unit: &str, operation: Operation, sample: &str) {
        let captured = hook(sample);
        let context = self.model.begin(unit, operation);
        let env: BTreeMap<String, String> =
            self.model.environment(&self.model.contexts[&context]).into_iter().collect();
        self.compare_env(sample, env, captured.env);
        for step in &captured.steps {
            self.compare(sample, &context, step);
        }
        self.model.finish(&context, &Outcome::default());
    }

    /// Plays the calls of a `juju exec`.
    pub fn play_exec(&mut self, unit: &str, what: &str, steps: &[Step]) {
        let task = self.model.enqueue_exec(unit, "").unwrap();
        let context = self.model.begin(unit, Operation::Exec(task));
        for step in steps {
            self.compare(what, &context, step);
            if step.line == "secret-add --file /tmp/sf.yaml" {
                self.files.insert("/tmp/sf.yaml".into(), "file-key: file-val\nnum: \"5\"\n".into());
            }
        }
        self.model.finish(&context, &Outcome::default());
    }

    /// Runs hooks as the probe charm did, until nothing is left or `(unit, hook)` is next.
    pub fn run_until(&mut self, stop: Option<(&str, &str)>) {
        const MOST: usize = 500;
        for _ in 0..MOST {
            self.model.synchronize();
            let units: Vec<String> = self.model.units.keys().cloned().collect();
            let mut ran = false;
            for unit in units {
                let Some(operation) = self.model.next_operation(&unit, now()) else { continue };
                let name = self.model.operation_name(&operation);
                if stop == Some((&unit, &name)) {
                    return;
                }
                self.run_probe(&unit, operation, &name);
                ran = true;
                break;
            }
            if !ran {
                assert!(stop.is_none(), "{stop:?} never came");
                return;
            }
        }
        panic!("the units do not come to rest");
    }

    fn run_probe(&mut self, unit: &str, operation: Operation, name: &str) {
        let context = self.begin_probe(unit, operation, name);
        self.model.finish(&context, &Outcome::default());
    }

    /// Runs what the probe charm did in a hook, and leaves the hook open.
    pub fn begin_probe(&mut self, unit: &str, operation: Operation, name: &str) -> String {
        let context = self.model.begin(unit, operation);
        for (suffix, lines) in WRITES {
            for line in lines.iter().filter(|_| name.ends_with(suffix)) {
                self.call(&context, &line.replace("UNIT", unit));
            }
        }
        context
    }

    /// Calls a tool.
    pub fn call(&mut self, context: &str, line: &str) -> ToolReply {
        let mut words = line.split_whitespace().map(|word| self.ours(&word.replace('\u{1}', " ")));
        let tool = words.next().unwrap_or_default();
        let args: Vec<String> = words.collect();
        let request = ToolRequest { context: context.into(), tool, args, files: self.files.clone() };
        self.model.call_tool(&request)
    }

    fn ours(&self, text: &str) -> String {
        self.ids.iter().fold(text.into(), |text: String, (theirs, ours)| text.replace(theirs, ours))
    }

    fn theirs(&self, text: &str) -> String {
        self.ids.iter().fold(text.into(), |text: String, (theirs, ours)| text.replace(ours, theirs))
    }

    fn compare(&mut self, sample: &str, context: &str, step: &Step) {
        let tool = step.line.split_whitespace().next().unwrap_or_default();
        if step.line.contains("--help") {
            return;
        }
        if step.rc == 127 {
            assert!(!TOOLS.contains(&tool), "{tool} does not exist in 4.0");
            return;
        }
        let mut line = step.line.clone();
        for phrase in ["sp=a b", "k2=a b", "installing stuff", "app is fine", "sp=x y", "--description d d"] {
            let (start, last) = phrase.split_once(' ').unwrap();
            let joined = if start.starts_with("--") {
                format!("{start} d\u{1}d")
            } else {
                format!("{start}\u{1}{}", last.replace(' ', "\u{1}"))
            };
            line = line.replace(phrase, &joined);
        }
        let reply = self.call(context, &line);
        if tool == "secret-add" && step.rc == 0 && reply.rc == 0 {
            let id = |out: &str| out.trim().rsplit('/').next().unwrap_or_default().to_string();
            self.ids.insert(id(&step.out), id(&reply.stdout));
        }
        self.compared += 1;
        let out = normal(tool, &self.theirs(&reply.stdout));
        let err = normal(tool, &self.theirs(reply.stderr.trim_end()));
        let (wanted_out, wanted_err) = (normal(tool, &step.out), normal(tool, &step.err));
        if (&out, &err, reply.rc) != (&wanted_out, &wanted_err, step.rc) {
            self.wrong.push(format!(
                "{sample}: $ {}\n  wanted rc={} {wanted_out:?} {wanted_err:?}\n  got    rc={} {out:?} {err:?}",
                step.line, step.rc, reply.rc
            ));
        }
    }

    fn compare_env(
        &mut self,
        sample: &str,
        ours: BTreeMap<String, String>,
        mut theirs: BTreeMap<String, String>,
    ) {
        // The probe's own shell made these.
        for name in ["PWD", "SHLVL", "_"] {
            theirs.remove(name);
        }
        for (key, value) in &theirs {
            let same = ours.get(key).is_some_and(|own| shape(key, &self.theirs(own)) == shape(key, value));
            if !same {
                self.wrong.push(format!("{sample}: {key}: wanted {value:?}, got {:?}", ours.get(key)));
            }
        }
        for key in ours.keys().filter(|key| !theirs.contains_key(*key)) {
            self.wrong.push(format!("{sample}: {key} is not there in the sample"));
        }
        self.compared += 1;
    }
}

/// A value without what differs from run to run.
fn shape(key: &str, value: &str) -> String {
    match key {
        "JUJU_CONTEXT_ID" => {
            let (name, hex) = value.rsplit_once('-').unwrap_or_default();
            let digits = hex.len() == 32 && hex.chars().all(|c| c.is_ascii_hexdigit());
            format!("{name} {digits}")
        }
        // The numbers of operations count what else was done in the lab.
        "JUJU_ACTION_UUID" => format!("{}", value.parse::<u64>().is_ok()),
        "JUJU_ACTION_TAG" => format!("{}", value.starts_with("action-")),
        _ => value.into(),
    }
}

/// An output without times and made-up ids; lists of secrets sorted.
fn normal(tool: &str, text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("20") {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let length = time_length(from);
        out.push_str(if length > 0 { "TIME" } else { &from[..2] });
        rest = &from[if length > 0 { length } else { 2 }..];
    }
    out.push_str(rest);
    if let Some(at) = out.find("for application ") {
        let start = at + "for application ".len();
        out.replace_range(start..(start + 36).min(out.len()), "UUID");
    }
    if tool == "secret-ids" {
        let mut ids: Vec<&str> = out.trim().trim_matches(['[', ']']).split(['\n', ',']).collect();
        ids.sort_unstable();
        return ids.join("\n");
    }
    out
}

/// How long the time at the beginning of `text` is: `2026-11-21T08:24:23.185156528Z` with all its variants.
fn time_length(text: &str) -> usize {
    let pattern = "0000-00-00?00:00:00";
    let fits = |(c, p): (char, char)| if p == '0' { c.is_ascii_digit() } else { p == '?' || c == p };
    if text.len() < pattern.len() || !text.chars().zip(pattern.chars()).all(fits) {
        return 0;
    }
    let rest = &text[pattern.len()..];
    pattern.len() + rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != 'Z').unwrap_or(rest.len())
}
