//! The worker's tasks: what is known about each, on disk too, so that a new worker process finds them again.

use super::config::Config;
use super::shim::State;
use super::start;
use super::tasklog;
use super::volumes::Volumes;
use crate::log::Log;
use crate::protocol::{FromWorker, Task};
use anyhow::Result;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How often a shim is asked.
const LOOK: Duration = Duration::from_millis(250);
/// After so many looks without a shim the container counts as lost.
const PATIENCE: u32 = 8;
/// How long the end of the output may come after the end of the process.
const LOG_PATIENCE: Duration = Duration::from_secs(10);
const PIECE: usize = 48 * 1024;
const PIECES_AT_ONCE: usize = 16;

/// How a task ended.
#[derive(Clone, Serialize, Deserialize)]
struct Outcome {
    exit_code: Option<i32>,
    error: Option<String>,
}

/// What is known about one task.
struct Entry {
    running: bool,
    outcome: Option<Outcome>,
    misses: u32,
    ended_at: Option<Instant>,
    /// Up to where the output has been sent over this connection; nothing until the web has said where to begin.
    sent: Option<u64>,
    said_started: bool,
    said_ended: bool,
}

/// All tasks.
pub struct Tasks {
    config: Arc<Config>,
    volumes: Volumes,
    entries: Mutex<BTreeMap<i64, Entry>>,
    log: Log,
}

impl Tasks {
    /// Finds what an earlier worker process left: running containers are watched again, half-made ones are made anew.
    pub fn recover(config: Arc<Config>, volumes: Volumes) -> Result<Arc<Tasks>> {
        let tasks = Arc::new(Tasks {
            config,
            volumes,
            entries: Mutex::default(),
            log: Log::new("worker").session("standin-tasks"),
        });
        fs::create_dir_all(tasks.dir())?;
        for entry in fs::read_dir(tasks.dir())?.flatten() {
            let read = |name: &str| fs::read(entry.path().join(name)).ok();
            let Some(task) = read("task.json").and_then(|t| serde_json::from_slice::<Task>(&t).ok()) else {
                let _ = fs::remove_dir_all(entry.path());
                continue;
            };
            let outcome = read("outcome.json").and_then(|o| serde_json::from_slice(&o).ok());
            let made = entry.path().join("made").exists();
            tasks.log.info("recovered", json!({"task": task.id, "running": made && outcome.is_none()}));
            let id = task.id;
            let unfinished = !made && outcome.is_none();
            tasks.lock().insert(id, Entry::new(made, outcome, None));
            if unfinished {
                tasks.start(task);
            }
        }
        let watcher = tasks.clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(LOOK);
                watcher.look();
            }
        });
        Ok(tasks)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i64, Entry>> {
        self.entries.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn dir(&self) -> PathBuf {
        self.config.work_dir.join("standin-tasks")
    }

    fn place(&self, id: i64) -> start::Place<'_> {
        start::Place { dir: self.dir().join(id.to_string()), config: &self.config, volumes: &self.volumes }
    }

    /// How many containers and volumes there are.
    pub fn counts(&self) -> (i32, i32) {
        (self.lock().len() as i32, self.volumes.handles().len() as i32)
    }

    /// The tasks that the web is told about.
    pub fn known(&self) -> Vec<i64> {
        self.lock().keys().copied().collect()
    }

    /// Everything has to be said again.
    pub fn new_connection(&self) {
        for entry in self.lock().values_mut() {
            (entry.sent, entry.said_started, entry.said_ended) = (None, false, false);
        }
    }

    /// Starts a task, unless it is known already.
    pub fn run(self: &Arc<Self>, task: Task) {
        if self.lock().contains_key(&task.id) {
            return;
        }
        self.log.info("run", json!({"task": task.id, "step": task.step}));
        let stored = fs::create_dir_all(self.place(task.id).dir)
            .and_then(|()| fs::write(self.place(task.id).dir.join("task.json"), json!(task).to_string()));
        self.lock().insert(task.id, Entry::new(false, None, Some(0)));
        match stored {
            Ok(()) => self.start(task),
            Err(e) => self.end(task.id, Outcome { exit_code: None, error: Some(e.to_string()) }),
        }
    }

    fn start(self: &Arc<Self>, task: Task) {
        let tasks = self.clone();
        std::thread::spawn(move || {
            let place = tasks.place(task.id);
            place.clear();
            match place.start(&task) {
                Ok(()) => {
                    if let Some(entry) = tasks.lock().get_mut(&task.id) {
                        entry.running = true;
                    }
                }
                Err(e) => {
                    tasks.log.with("task", task.id).error("failed-to-start", format!("{e:#}"));
                    tasks.end(task.id, Outcome { exit_code: None, error: Some(format!("{e:#}")) });
                }
            }
        });
    }

    /// The web says from where on it wants a task's output.
    pub fn resume(&self, id: i64, offset: i64) {
        if let Some(entry) = self.lock().get_mut(&id) {
            entry.sent = u64::try_from(offset).ok();
        }
    }

    /// The task is settled: its container and volumes go.
    pub fn forget(self: &Arc<Self>, id: i64) {
        let tasks = self.clone();
        std::thread::spawn(move || {
            tasks.place(id).clear();
            let _ = fs::remove_dir_all(tasks.place(id).dir);
            tasks.lock().remove(&id);
            tasks.log.debug("forgotten", json!({"task": id}));
        });
    }

    fn end(&self, id: i64, outcome: Outcome) {
        let _ = fs::write(self.place(id).dir.join("outcome.json"), json!(outcome).to_string());
        self.log.info("ended", json!({"task": id, "exit_code": outcome.exit_code, "error": outcome.error}));
        if let Some(entry) = self.lock().get_mut(&id) {
            entry.outcome = Some(outcome);
        }
    }

    /// Asks the shims of running tasks.
    fn look(&self) {
        let running: Vec<i64> =
            self.lock().iter().filter(|(_, e)| e.running && e.outcome.is_none()).map(|(id, _)| *id).collect();
        for id in running {
            let place = self.place(id);
            let state = place.state();
            let complete = tasklog::mark(&place.log()).exists();
            let mut entries = self.lock();
            let Some(entry) = entries.get_mut(&id) else { continue };
            let outcome = match state {
                Ok(State::Running) => {
                    entry.misses = 0;
                    continue;
                }
                Ok(State::Stopped(code)) => {
                    let since = entry.ended_at.get_or_insert_with(Instant::now).elapsed();
                    if !complete && since < LOG_PATIENCE {
                        continue;
                    }
                    Outcome { exit_code: Some(code), error: None }
                }
                Err(e) => {
                    entry.misses += 1;
                    if entry.misses < PATIENCE {
                        continue;
                    }
                    Outcome { exit_code: None, error: Some(format!("container disappeared: {e:#}")) }
                }
            };
            drop(entries);
            self.end(id, outcome);
        }
    }

    /// What the web has to be told now.
    pub fn news(&self) -> Vec<FromWorker> {
        let mut news = Vec::new();
        for (id, entry) in self.lock().iter_mut() {
            let id = *id;
            let Some(mut sent) = entry.sent else { continue };
            if (entry.running || entry.outcome.is_some()) && !entry.said_started {
                entry.said_started = true;
                news.push(FromWorker::Started { task: id });
            }
            let mut more = false;
            if let Ok(file) = fs::File::open(self.place(id).log()) {
                let mut buffer = vec![0; PIECE];
                for _ in 0..PIECES_AT_ONCE {
                    let n = file.read_at(&mut buffer, sent).unwrap_or(0);
                    if n > 0 {
                        news.push(FromWorker::Output {
                            task: id,
                            offset: sent as i64,
                            data: STANDARD.encode(&buffer[..n]),
                        });
                        sent += n as u64;
                    }
                    more = n == PIECE;
                    if !more {
                        break;
                    }
                }
            }
            entry.sent = Some(sent);
            if let Some(outcome) = entry.outcome.clone().filter(|_| !more && !entry.said_ended) {
                entry.said_ended = true;
                news.push(FromWorker::Ended { task: id, exit_code: outcome.exit_code, error: outcome.error });
            }
        }
        news
    }
}

impl Entry {
    fn new(running: bool, outcome: Option<Outcome>, sent: Option<u64>) -> Entry {
        Entry { running, outcome, misses: 0, ended_at: None, sent, said_started: false, said_ended: false }
    }
}
