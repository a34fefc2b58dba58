//! A controller in this process: runs hooks of a charm on this host, without daemon or machine.

use crate::agent::exec::{What, find, start, wait};
use crate::agent::toolserver::serve;
use crate::charm::{Charm, unpack};
use crate::cli;
use crate::model::{Application, Call, Model, Operation, app_of, tag_of};
use crate::operation::Outcome;
use crate::shared::Shared;
use crate::time::now;
use crate::tools::{TOOLS, TOOLS_36, ToolReply, ToolRequest, reply_error};
use crate::wire::{Command, Printed};
use anyhow::{Context as _, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// What became of one hook.
#[derive(Clone, Debug)]
pub struct HookResult {
    /// The hook's name.
    pub hook: String,
    /// Exit code; 1 also if the controller refused the changes of a hook that ended well.
    pub rc: i32,
    /// What the charm printed.
    pub stdout: String,
    /// What the charm complained of.
    pub stderr: String,
    /// Why the changes were refused.
    pub refused: Option<String>,
    /// Every call of a hook tool.
    pub calls: Vec<Call>,
    /// How long it took.
    pub duration: Duration,
}

/// What a command of the client printed.
#[derive(Clone, Debug, Default)]
pub struct CliResult {
    /// Exit code.
    pub rc: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// A controller in this process: runs hooks of a charm directory on this host, without daemon or machine.
pub struct Controller {
    shared: Arc<Shared>,
    folder: tempfile::TempDir,
    charm_dirs: BTreeMap<String, PathBuf>,
    prepared: BTreeSet<String>,
    tool_program: PathBuf,
    extra_env: Vec<(String, String)>,
}

impl Controller {
    /// An empty model of a version (`4.0.15.1`, `3.6.27`). `tool_program` is the path of the `emulated-juju` binary.
    pub fn new(version: &str, tool_program: &Path) -> Result<Controller> {
        let folder = tempfile::Builder::new().prefix("juju-").tempdir()?;
        let blobs = folder.path().join("blobs");
        fs::create_dir_all(&blobs)?;
        let shared = Arc::new(Shared::new(Model::new(version, blobs)));
        let tool_program = tool_program.to_path_buf();
        Ok(Controller {
            shared,
            folder,
            charm_dirs: BTreeMap::new(),
            prepared: BTreeSet::new(),
            tool_program,
            extra_env: Vec::new(),
        })
    }

    /// The model, to look at or to change by hand.
    pub fn model(&self) -> MutexGuard<'_, Model> {
        self.shared.lock()
    }

    /// Variables that every hook gets besides Juju's own.
    pub fn set_extra_env(&mut self, env: Vec<(String, String)>) {
        self.extra_env = env;
    }

    /// Adds an application of a charm directory, without units.
    pub fn add_app(&mut self, name: &str, charm_dir: &Path) -> Result<()> {
        let charm = Charm::load(charm_dir)?;
        self.charm_dirs.insert(name.into(), charm_dir.into());
        let mut model = self.shared.lock();
        model.add_application(Application::new(name, charm))
    }

    /// Adds a unit on a machine of its own, with a made-up address.
    pub fn add_unit(&mut self, app: &str) -> Result<String> {
        let mut model = self.shared.lock();
        let machine = model.add_machine();
        model.make_up_network(&machine);
        model.add_unit(app, &machine, "")
    }

    /// Puts another charm directory in the place of an application's, like `juju refresh`.
    pub fn refresh(&mut self, app: &str, charm_dir: &Path) -> Result<()> {
        let charm = Charm::load(charm_dir)?;
        let mut model = self.shared.lock();
        let known =
            model.applications.get_mut(app).with_context(|| format!("application {app:?} not found"))?;
        known.charm = charm;
        known.revision += 1;
        known.modified += 1;
        drop(model);
        self.charm_dirs.insert(app.into(), charm_dir.into());
        Ok(())
    }

    /// Makes a unit's machine, tools and socket, once.
    fn prepare(&mut self, unit: &str) -> Result<()> {
        if !self.prepared.insert(unit.into()) {
            return Ok(());
        }
        let mut model = self.shared.lock();
        let machine = model.units[unit].machine.clone();
        if model.machines.get(&machine).is_some_and(|machine| machine.network.is_none()) {
            model.make_up_network(&machine);
        }
        let data_dir = self.folder.path().join(format!("m{machine}"));
        if let Some(machine) = model.machines.get_mut(&machine) {
            machine.data_dir = data_dir.display().to_string();
        }
        let mut tools: Vec<&str> = TOOLS.to_vec();
        if !model.is_40() {
            tools.extend(TOOLS_36);
        }
        drop(model);
        let folder = data_dir.join("tools").join(tag_of(unit));
        fs::create_dir_all(&folder)?;
        for tool in tools {
            symlink(&self.tool_program, folder.join(tool))?;
        }
        let agent = data_dir.join("agents").join(tag_of(unit));
        fs::create_dir_all(&agent)?;
        let shared = Arc::clone(&self.shared);
        serve(&agent.join("agent.socket"), Arc::new(move |request| local_answer(&shared, &request)))?;
        Ok(())
    }

    /// Runs one command of the client.
    pub fn juju(&self, argv: &[&str]) -> CliResult {
        let mut result = CliResult::default();
        let command = Command {
            argv: argv.iter().map(ToString::to_string).collect(),
            cwd: std::env::current_dir().unwrap_or_default().display().to_string(),
            stdin: None,
        };
        result.rc = cli::run(&self.shared, &command, &mut |printed| match printed {
            Printed::Out(text) => result.out.push_str(&text),
            Printed::Err(text) => result.err.push_str(&text),
            Printed::End(_) => {}
        });
        result
    }

    /// Runs one hook of a unit now, whatever the order of events says, in the application's charm directory.
    pub fn run_hook(&mut self, unit: &str, hook: &str) -> Result<HookResult> {
        let hook = self.shared.lock().hook_named(unit, hook)?;
        self.run(unit, Operation::Hook(hook))
    }

    /// Runs what the order of events says comes next for a unit, if anything.
    pub fn run_next(&mut self, unit: &str) -> Result<Option<HookResult>> {
        let next = self.shared.lock().next_operation(unit, now());
        next.map(|operation| self.run(unit, operation)).transpose()
    }

    /// Runs everything that all units have to run; an error if that does not end or a hook fails.
    pub fn settle(&mut self) -> Result<Vec<(String, HookResult)>> {
        const MOST: usize = 10_000;
        let mut done = Vec::new();
        for _ in 0..MOST {
            self.shared.lock().synchronize();
            let units: Vec<String> = self.shared.lock().units.keys().cloned().collect();
            let next = units.iter().find_map(|unit| {
                let operation = self.shared.lock().next_operation(unit, now())?;
                Some((unit.clone(), operation))
            });
            let Some((unit, operation)) = next else { return Ok(done) };
            let result = self.run(&unit, operation)?;
            if result.rc != 0
                && self.shared.lock().units.get(&unit).is_some_and(|unit| unit.local.failed.is_some())
            {
                bail!("hook {:?} of {unit} failed with {}: {}", result.hook, result.rc, result.stderr);
            }
            done.push((unit, result));
        }
        bail!("the units do not come to rest")
    }

    /// The directory that was given for an application; its archive, unpacked, if it was deployed by the verb.
    fn charm_dir(&mut self, app: &str) -> Result<PathBuf> {
        let model = self.shared.lock();
        let known = model.applications.get(app).with_context(|| format!("application {app:?} not found"))?;
        if known.blob.is_empty() {
            return self.charm_dirs.get(app).cloned().context("the application has no charm directory");
        }
        let target = self.folder.path().join("charms").join(&known.blob);
        if !target.exists() {
            unpack(&model.blobs.join(&known.blob), &target)?;
        }
        Ok(target)
    }

    fn run(&mut self, unit: &str, operation: Operation) -> Result<HookResult> {
        self.prepare(unit)?;
        let charm_dir = self.charm_dir(app_of(unit))?;
        let mut model = self.shared.lock();
        let id = model.begin(unit, operation);
        let context = model.contexts[&id].clone();
        let name = model.operation_name(&context.operation);
        let mut env = model.environment(&context);
        drop(model);
        for (key, value) in &mut env {
            if key == "CHARM_DIR" || key == "JUJU_CHARM_DIR" {
                *value = charm_dir.display().to_string();
            }
        }
        env.extend(self.extra_env.clone());
        let dispatch = env.iter().find(|(key, _)| key == "JUJU_DISPATCH_PATH").map(|(_, path)| path.clone());
        let begun = Instant::now();
        let outcome = match find(&charm_dir, &dispatch.unwrap_or_default()) {
            Ok(What::Program(program)) => wait(start(&program, &[], &charm_dir, &env)?, |_, _| {}),
            Ok(What::Nothing) => Outcome::default(),
            Err(message) => Outcome { rc: 1, stderr: message.clone(), message, ..Outcome::default() },
        };
        let duration = begun.elapsed();
        let mut model = self.shared.lock();
        model.finish(&id, &outcome);
        let record = model.history.last().cloned().context("no record of the hook")?;
        drop(model);
        self.shared.kick();
        Ok(HookResult {
            hook: name,
            rc: record.rc,
            stdout: outcome.stdout,
            stderr: outcome.stderr,
            refused: record.refused,
            calls: record.calls,
            duration,
        })
    }
}

fn local_answer(shared: &Shared, request: &ToolRequest) -> ToolReply {
    let mut model = shared.lock();
    let reply = model.call_tool(request);
    let blobs = model.blobs.clone();
    drop(model);
    if let Some((blob, path)) = &reply.download {
        let target = Path::new(path);
        let copied = target
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::copy(blobs.join(blob), target));
        if let Err(error) = copied {
            return reply_error(1, format!("could not download resource: {error}"));
        }
    }
    reply
}
