//! The machine agent: connects to the controller and runs what it is told, one hook at a time.

use super::addresses::{boot_id, look};
use super::deploy::Layout;
use super::exec::{What, find, start, wait};
use super::link::Link;
use super::toolserver::{Handler, serve};
use crate::operation::Outcome;
use crate::tools::{ToolReply, ToolRequest, reply_error};
use crate::wire::{FromAgent, Job, ToAgent, receive, send};
use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, killpg};
use nix::sys::stat::{Mode, umask};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::fs;
use std::io::BufReader;
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Between two attempts to connect, and between two looks at the addresses.
const PAUSE: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_secs(3);

/// How an agent is started.
pub struct Settings {
    /// `host:port` of the controller.
    pub controller: String,
    /// The machine's number.
    pub machine: String,
    /// A directory that stands for `/`.
    pub root: PathBuf,
}

/// What runs now.
#[derive(Default)]
struct Running {
    context: Option<String>,
    group: Option<i32>,
}

struct Agent {
    link: Arc<Link>,
    layout: Layout,
    running: Mutex<Running>,
    served: Mutex<HashSet<String>>,
    /// The address that reaches the controller, and all that were told to it.
    known: Mutex<Option<(IpAddr, Vec<String>)>>,
}

/// Runs the agent until the process is ended.
pub fn main(settings: &Settings) -> Result<()> {
    umask(Mode::from_bits_truncate(0o022));
    let data_dir = settings.root.join("var/lib/juju");
    fs::create_dir_all(data_dir.join("agents")).context("cannot make the agents' directory")?;
    install_juju_exec(&settings.root)?;
    let agent = Arc::new(Agent {
        link: Arc::new(Link::new(&settings.controller)),
        layout: Layout { data_dir },
        running: Mutex::default(),
        served: Mutex::default(),
        known: Mutex::default(),
    });
    agent.serve_known_units();
    agent.watch_addresses();
    loop {
        if let Err(error) = agent.connect(settings) {
            eprintln!("jujud: {}: {error:#}", settings.controller);
        }
        agent.link.lost();
        thread::sleep(PAUSE);
    }
}

/// `/usr/bin/juju-exec` is part of what an agent brings along.
fn install_juju_exec(root: &Path) -> Result<()> {
    let folder = root.join("usr/bin");
    fs::create_dir_all(&folder)?;
    let link = folder.join("juju-exec");
    if !link.exists() {
        // It may dangle.
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(std::env::current_exe()?, &link).context("cannot install juju-exec")?;
    }
    Ok(())
}

impl Agent {
    fn connect(self: &Arc<Self>, settings: &Settings) -> Result<()> {
        let stream = TcpStream::connect(&settings.controller)?;
        stream.set_nodelay(true)?;
        let local = stream.local_addr()?.ip();
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).context.clone();
        let hello = FromAgent::Hello {
            machine: settings.machine.clone(),
            boot_id: boot_id(),
            hostname: nix::unistd::gethostname()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default(),
            data_dir: self.layout.data_dir.display().to_string(),
            running,
        };
        let mut writer = stream.try_clone()?;
        let (network, all) = look(local);
        send(&mut writer, &hello)?;
        send(&mut writer, &FromAgent::Addresses { network, all: all.clone() })?;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((local, all));
        self.link.connected(writer)?;
        let mut reader = BufReader::new(stream);
        while let Some(message) = receive::<ToAgent>(&mut reader)? {
            self.take(message);
        }
        Ok(())
    }

    /// Tells the controller when the machine's addresses change.
    fn watch_addresses(self: &Arc<Self>) {
        let agent = Arc::clone(self);
        thread::spawn(move || {
            loop {
                thread::sleep(LOOK_AGAIN);
                let known = agent.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let Some((local, before)) = known else { continue };
                let (network, all) = look(local);
                if all != before {
                    *agent.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((local, all.clone()));
                    agent.link.say(&FromAgent::Addresses { network, all });
                }
            }
        });
    }

    fn take(self: &Arc<Self>, message: ToAgent) {
        match message {
            ToAgent::Run(job) => {
                let agent = Arc::clone(self);
                self.running.lock().unwrap_or_else(PoisonError::into_inner).context =
                    Some(job.context.clone());
                thread::spawn(move || agent.run(&job));
            }
            ToAgent::Reply { seq, reply } => self.link.answered(seq, reply),
            ToAgent::RemoveUnit { unit } => {
                self.layout.remove_unit(&unit);
                self.served.lock().unwrap_or_else(PoisonError::into_inner).remove(&unit);
            }
            ToAgent::Kill { context } => self.kill(&context),
            ToAgent::Reboot => self.reboot(),
        }
    }

    /// Boots the machine; an agent under a root of its own has none.
    fn reboot(&self) {
        if self.layout.data_dir.starts_with("/var/lib/juju") {
            let booted = std::process::Command::new("/bin/systemctl").arg("reboot").status();
            eprintln!("jujud: reboot: {booted:?}");
        }
    }

    fn kill(&self, context: &str) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.context.as_deref() == Some(context)
            && let Some(group) = running.group
        {
            // It may have ended just now.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }

    fn run(&self, job: &Job) {
        let outcome = self.execute(job).unwrap_or_else(|error| {
            let text = format!("{error:#}");
            self.line(job, true, &text);
            Outcome { rc: 1, message: text, ..Outcome::default() }
        });
        self.link.say(&FromAgent::Done {
            context: job.context.clone(),
            rc: outcome.rc,
            message: outcome.message,
            stdout: outcome.stdout,
            stderr: outcome.stderr,
        });
        // The next job may have come already.
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.context.as_ref() == Some(&job.context) {
            *running = Running::default();
        }
    }

    fn line(&self, job: &Job, error: bool, line: &str) {
        self.link.say(&FromAgent::Line { context: job.context.clone(), error, line: line.into() });
    }

    fn execute(&self, job: &Job) -> Result<Outcome> {
        self.layout.prepare(job)?;
        self.serve_unit(&job.unit)?;
        if self.layout.wants_charm(job) {
            let archive = self.layout.agent_dir(&job.unit).join("state/charm.zip");
            self.link.fetch(&job.blob, &archive).context("cannot fetch the charm")?;
            self.layout.unpack(job, &archive)?;
        }
        let charm_dir = self.layout.charm_dir(&job.unit);
        let child = if job.dispatch.is_empty() {
            start(Path::new("/bin/bash"), &["-c", &job.script], &charm_dir, &job.env)
        } else {
            match find(&charm_dir, &job.dispatch).map_err(anyhow::Error::msg)? {
                What::Nothing => return Ok(Outcome::default()),
                What::Program(program) => start(&program, &[], &charm_dir, &job.env),
            }
        };
        let child = child.context("cannot run the charm")?;
        self.running.lock().unwrap_or_else(PoisonError::into_inner).group = i32::try_from(child.id()).ok();
        let hook = job.dispatch.starts_with("hooks/");
        let mut outcome = wait(child, |error, line| {
            if hook {
                self.line(job, error, line);
            }
        });
        if hook {
            outcome.stdout.clear();
            outcome.stderr.clear();
        }
        Ok(outcome)
    }

    /// Units of an agent before this one: their sockets must work before their next hook.
    fn serve_known_units(&self) {
        for entry in fs::read_dir(self.layout.data_dir.join("agents")).into_iter().flatten().flatten() {
            let folder = entry.file_name().to_string_lossy().into_owned();
            let Some((app, number)) = folder.strip_prefix("unit-").and_then(|tag| tag.rsplit_once('-'))
            else {
                continue;
            };
            if let Err(error) = self.serve_unit(&format!("{app}/{number}")) {
                eprintln!("jujud: {folder}: {error:#}");
            }
        }
    }

    /// Serves the unit's sockets, once per unit.
    fn serve_unit(&self, unit: &str) -> Result<()> {
        if !self.served.lock().unwrap_or_else(PoisonError::into_inner).insert(unit.into()) {
            return Ok(());
        }
        let folder = self.layout.agent_dir(unit);
        let link = Arc::clone(&self.link);
        let tools: Handler = Arc::new(move |request| answer(&link, request));
        serve(&folder.join("agent.socket"), tools).context("cannot serve agent.socket")?;
        let link = Arc::clone(&self.link);
        let exec: Handler =
            Arc::new(move |request: ToolRequest| link.exec(request.context, request.args.join(" ")));
        serve(&folder.join("run.socket"), exec).context("cannot serve run.socket")
    }
}

/// Relays a call; fetches what the answer says is to be fetched.
fn answer(link: &Link, request: ToolRequest) -> ToolReply {
    let reply = link.call(request);
    if let Some((blob, path)) = &reply.download
        && let Err(error) = link.fetch(blob, Path::new(path))
    {
        return reply_error(1, format!("could not download resource: {error}"));
    }
    reply
}
