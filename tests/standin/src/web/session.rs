//! One worker's connection: registration, heartbeats, and the tasks that go out and come back.

use super::Web;
use crate::db::{tasks, workers};
use crate::log::Log;
use crate::protocol::{FromWeb, FromWorker, Worker};
use anyhow::{Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(250);
/// How often a session looks whether its worker has landed or is gone.
const LOOK: Duration = Duration::from_secs(1);

/// Takes connections that come through the ssh server; gives the port.
pub fn listen(web: &Arc<Web>) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let web = web.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let web = web.clone();
            std::thread::spawn(move || serve(&web, stream));
        }
    });
    Ok(port)
}

struct Session<'a> {
    web: &'a Web,
    log: Log,
    out: TcpStream,
    worker: Worker,
    sent: HashSet<i64>,
}

fn serve(web: &Web, stream: TcpStream) {
    let log = Log::new("tsa").session("connection").session("channel");
    let Ok(out) = stream.try_clone() else { return };
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let Ok(message) = serde_json::from_str::<FromWorker>(&line) else { break };
            if sender.send(message).is_err() {
                break;
            }
        }
    });
    let mut session = Session { web, log, out, worker: Worker::default(), sent: HashSet::new() };
    let (status, message) = match session.command(&lines) {
        Ok(()) => (0, String::new()),
        Err(e) => {
            session.log.error("exited-with-error", format!("{e:#}"));
            (1, format!("{e:#}"))
        }
    };
    let _ = session.send(&FromWeb::Exit { status, message });
    let _ = session.out.shutdown(std::net::Shutdown::Both);
}

impl Session<'_> {
    fn send(&mut self, message: &FromWeb) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        Ok(self.out.write_all(&line)?)
    }

    fn command(&mut self, lines: &Receiver<FromWorker>) -> Result<()> {
        let pool = &self.web.pool;
        let (word, worker) = match lines.recv_timeout(Duration::from_secs(10)) {
            Ok(FromWorker::ForwardWorker { worker }) => ("forward-worker", worker),
            Ok(FromWorker::LandWorker { worker }) => ("land-worker", worker),
            Ok(FromWorker::RetireWorker { worker }) => ("retire-worker", worker),
            Ok(FromWorker::DeleteWorker { worker }) => ("delete-worker", worker),
            Ok(other) => bail!("unknown command: {other:?}"),
            Err(_) => bail!("no command came"),
        };
        self.log = self.log.session("command").with("command", word);
        self.worker = worker;
        let name = self.worker.name.as_str();
        if word != "forward-worker" {
            self.log.info("start", json!({"worker": name}));
        }
        match word {
            "land-worker" if !workers::land(pool, name)? => {
                bail!("bad-response (404): worker '{name}' not found")
            }
            "retire-worker" if !workers::retire(pool, name)? => self.log.info("worker-not-found", json!({})),
            "delete-worker" => workers::delete(pool, name)?,
            "forward-worker" => return self.forward(lines),
            _ => {}
        }
        Ok(())
    }

    /// Keeps a worker registered until it lands, goes away or hangs up.
    fn forward(&mut self, lines: &Receiver<FromWorker>) -> Result<()> {
        self.log.info("start", json!({}));
        let port = self.out.peer_addr()?.port();
        let addr = format!("{}:{port}", self.web.config.peer_address);
        let about = json!({"worker-platform": self.worker.platform, "worker-address": addr, "worker-tags": self.worker.tags.join(","), "worker": self.worker.name});
        let ttl = self.ttl();
        let register = self.log.session("register");
        register.info("start", about.clone());
        while let Err(e) = workers::save(&self.web.pool, &self.worker, &addr, &format!("http://{addr}"), ttl)
        {
            register.error("failed-to-register", format!("{e:#}"));
            match lines.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                _ => continue,
            }
        }
        register.info("done", about.clone());
        self.send(&FromWeb::Registered)?;
        let (mut beat, mut looked, mut known) = (Instant::now(), Instant::now(), false);
        loop {
            match lines.recv_timeout(TICK) {
                Ok(FromWorker::Pong { containers, volumes }) => {
                    let heartbeat = self.log.session("heartbeat");
                    heartbeat.info("start", about.clone());
                    match workers::heartbeat(&self.web.pool, &self.worker.name, containers, volumes, ttl) {
                        Err(e) => heartbeat.error("failed-to-heartbeat", format!("{e:#}")),
                        Ok(None) => return self.over(&heartbeat, "worker-has-gone-away"),
                        Ok(Some(_)) => self.send(&FromWeb::Heartbeated)?,
                    }
                    heartbeat.info("done", about.clone());
                }
                Ok(FromWorker::Known { tasks }) => {
                    self.reconcile(&tasks)?;
                    known = true;
                }
                Ok(other) => self.task_message(other),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.log.info("done", json!({}));
                    return Ok(());
                }
            }
            if beat.elapsed() >= self.web.config.heartbeat {
                beat = Instant::now();
                self.send(&FromWeb::Ping)?;
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                match workers::state(&self.web.pool, &self.worker.name) {
                    Ok(None) => return self.over(&self.log.session("heartbeat"), "worker-has-gone-away"),
                    Ok(Some(s)) if s == "landed" => {
                        return self.over(&self.log.session("heartbeat"), "worker-landed");
                    }
                    _ => {}
                }
            }
            if known {
                self.hand_out()?;
            }
        }
    }

    /// The end that lets the worker's process end too.
    fn over(&self, log: &Log, why: &str) -> Result<()> {
        log.debug(why, json!({}));
        Ok(())
    }

    fn ttl(&self) -> f64 {
        self.web.config.heartbeat.as_secs_f64() * 2.0
    }

    /// Compares what the worker still has with what the database thinks it has.
    fn reconcile(&mut self, known: &[i64]) -> Result<()> {
        let pool = &self.web.pool;
        let running = tasks::started_on(pool, &self.worker.name)?;
        for lost in running.iter().filter(|id| !known.contains(id)) {
            tasks::ended(
                pool,
                *lost,
                None,
                Some(&format!("container of task {lost} disappeared from worker {}", self.worker.name)),
            )?;
        }
        for id in known {
            let state = tasks::show(pool, *id)?.map(|t| t["state"].as_str().unwrap_or_default().to_owned());
            let message = match state.as_deref() {
                Some("pending" | "started") => FromWeb::Resume { task: *id, offset: tasks::size(pool, *id)? },
                _ => FromWeb::Forget { task: *id },
            };
            self.send(&message)?;
        }
        Ok(())
    }

    /// Sends the worker what it has to start.
    fn hand_out(&mut self) -> Result<()> {
        let pending = match tasks::pending(&self.web.pool, &self.worker.name) {
            Ok(pending) => pending,
            Err(e) => {
                self.log.debug("failed-to-look-for-tasks", json!({"error": format!("{e:#}")}));
                return Ok(());
            }
        };
        for task in pending {
            if self.sent.insert(task.id) {
                self.send(&FromWeb::Run { task })?;
            }
        }
        Ok(())
    }

    /// A task's news. If the database can't take it, the connection ends and the worker sends it again.
    fn task_message(&mut self, message: FromWorker) {
        let pool = &self.web.pool;
        let result = match message {
            FromWorker::Started { task } => tasks::started(pool, task),
            FromWorker::Output { task, offset, data } => STANDARD
                .decode(data)
                .map_err(anyhow::Error::from)
                .and_then(|bytes| tasks::output(pool, task, offset, &bytes)),
            FromWorker::Ended { task, exit_code, error } => {
                tasks::ended(pool, task, exit_code, error.as_deref())
                    .and_then(|()| self.send(&FromWeb::Forget { task }))
            }
            _ => Ok(()),
        };
        if let Err(e) = result {
            self.log.error("failed-to-store", format!("{e:#}"));
            let _ = self.out.shutdown(std::net::Shutdown::Both);
        }
    }
}
