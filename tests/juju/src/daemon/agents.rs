//! Talking with machine agents.

use super::Daemon;
use crate::model::{ActionStatus, Model, Network, Operation};
use crate::operation::Outcome;
use crate::tools::{ToolReply, reply_error};
use crate::wire::{FromAgent, ToAgent, receive, send};
use std::fs::File;
use std::io::{self, BufReader};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long `juju-exec` may take.
const EXEC_DEADLINE: Duration = Duration::from_secs(3600);

/// Serves one connection until it ends.
pub fn serve(daemon: &Arc<Daemon>, stream: TcpStream) {
    let mut machine = String::new();
    if let Err(error) = converse(daemon, stream, &mut machine)
        && !machine.is_empty()
    {
        eprintln!("juju-controller: machine {machine}: {error}");
    }
}

fn converse(daemon: &Arc<Daemon>, stream: TcpStream, machine: &mut String) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    let writer = Arc::new(Mutex::new(stream.try_clone()?));
    let mut reader = BufReader::new(stream);
    let result = loop {
        match receive::<FromAgent>(&mut reader) {
            Ok(Some(message)) => take(daemon, &writer, machine, message)?,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    disconnected(daemon, machine, &writer);
    result
}

fn disconnected(daemon: &Daemon, machine: &str, writer: &Arc<Mutex<TcpStream>>) {
    let mut agents = daemon.agents.lock().unwrap_or_else(PoisonError::into_inner);
    if agents.get(machine).is_some_and(|known| Arc::ptr_eq(known, writer)) {
        agents.remove(machine);
        drop(agents);
        if let Some(machine) = daemon.shared.lock().machines.get_mut(machine) {
            machine.connected = false;
        }
    }
}

fn take(
    daemon: &Arc<Daemon>,
    writer: &Arc<Mutex<TcpStream>>,
    machine: &mut String,
    message: FromAgent,
) -> io::Result<()> {
    let reply =
        |message: &ToAgent| send(&mut *writer.lock().unwrap_or_else(PoisonError::into_inner), message);
    match message {
        FromAgent::Fetch { blob } => {
            let path = daemon.shared.lock().blobs.join(blob);
            let mut file = File::open(path)?;
            let mut stream = writer.lock().unwrap_or_else(PoisonError::into_inner);
            send(&mut *stream, &file.metadata()?.len())?;
            io::copy(&mut file, &mut *stream)?;
        }
        FromAgent::Hello { machine: id, boot_id, hostname, data_dir, running } => {
            daemon
                .agents
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(id.clone(), Arc::clone(writer));
            let mut model = daemon.shared.lock();
            model.greeted(&id, &boot_id, running.as_deref());
            if let Some(machine) = model.machines.get_mut(&id) {
                machine.hostname = hostname;
                machine.data_dir = data_dir;
            }
            *machine = id;
        }
        FromAgent::Addresses { network, all } => {
            daemon.shared.lock().addresses(machine, network, all);
            daemon.shared.kick();
        }
        FromAgent::Call { seq, request } => {
            let answer = daemon.shared.lock().call_tool(&request);
            if request.tool == "action-log" {
                daemon.shared.kick();
            }
            if request.tool == "juju-reboot"
                && request.args.iter().any(|arg| arg == "--now")
                && answer.rc == 0
            {
                let context = request.context;
                daemon.shared.lock().interrupt(&context);
                reply(&ToAgent::Kill { context })?;
                daemon.shared.kick();
            }
            reply(&ToAgent::Reply { seq, reply: answer })?;
        }
        FromAgent::Line { context, error, line } => daemon.shared.lock().printed(&context, error, &line),
        FromAgent::Done { context, rc, message, stdout, stderr } => {
            daemon.shared.lock().finish(&context, &Outcome { rc, message, stdout, stderr });
            daemon.shared.kick();
        }
        FromAgent::Exec { seq, unit, script } => {
            let daemon = Arc::clone(daemon);
            let writer = Arc::clone(writer);
            thread::spawn(move || {
                let reply = exec(&daemon, &unit, &script);
                // The agent may be gone by now.
                let _ = send(
                    &mut *writer.lock().unwrap_or_else(PoisonError::into_inner),
                    &ToAgent::Reply { seq, reply },
                );
            });
        }
    }
    Ok(())
}

fn exec(daemon: &Daemon, unit: &str, script: &str) -> ToolReply {
    let deadline = Instant::now() + EXEC_DEADLINE;
    let mut model = daemon.shared.lock();
    let Ok(task) = model.enqueue_exec(unit, script) else {
        return reply_error(1, format!("unit {unit:?} not found"));
    };
    if let Some(action) = model.actions.get_mut(&task) {
        action.local = true;
    }
    daemon.shared.kick();
    while Instant::now() < deadline {
        match model.actions.get(&task) {
            Some(action) if action.status.is_final() => {
                let rc = if action.status == ActionStatus::Failed && action.rc == 0 { 1 } else { action.rc };
                return ToolReply {
                    rc,
                    stdout: action.stdout.clone(),
                    stderr: action.stderr.clone(),
                    ..ToolReply::default()
                };
            }
            _ => model = daemon.shared.wait(model, Duration::from_secs(1)),
        }
    }
    reply_error(1, "timed out".into())
}

impl Model {
    /// An agent has greeted: what it no longer runs is interrupted; after a boot start is due.
    pub fn greeted(&mut self, id: &str, boot_id: &str, running: Option<&str>) {
        self.register_machine(id);
        let Some(machine) = self.machines.get_mut(id) else { return };
        let rebooted = !machine.boot_id.is_empty() && machine.boot_id != boot_id;
        machine.boot_id = boot_id.into();
        machine.started = true;
        let lost = machine.running.clone().filter(|context| Some(context.as_str()) != running);
        if let Some(context) = lost {
            self.interrupt(&context);
        }
        for unit in self.units.values_mut().filter(|unit| unit.machine == id) {
            if rebooted && unit.local.started {
                unit.local.rebooted = true;
            }
            if unit.status.message == "waiting for machine" {
                unit.status = crate::model::Status::new("waiting", "agent initialising");
            }
        }
    }

    /// An agent has told its addresses: a change of them fires config-changed.
    pub fn addresses(&mut self, id: &str, network: Network, all: Vec<String>) {
        let Some(machine) = self.machines.get_mut(id) else { return };
        let changed = !machine.addresses.is_empty() && machine.addresses != all;
        machine.network = Some(network);
        machine.addresses = all;
        machine.connected = true;
        for unit in self.units.values_mut().filter(|unit| unit.machine == id && changed) {
            unit.config_pending = unit.config_pending.max(1);
        }
    }

    /// A hook has printed a line.
    pub fn printed(&mut self, context: &str, error: bool, line: &str) {
        let Some(context) = self.contexts.get(context) else { return };
        let (unit, operation) = (context.unit.clone(), context.operation.clone());
        if matches!(operation, Operation::Hook(_)) {
            let logger = format!("unit.{unit}.{}", self.operation_name(&operation));
            self.log(&unit, if error { "WARNING" } else { "DEBUG" }, &logger, line);
        }
    }
}
