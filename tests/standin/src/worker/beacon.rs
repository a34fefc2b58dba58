//! The worker's standing connection to a web: registered as long as it lasts, tried again for ever.

use super::config::Config;
use super::tasks::Tasks;
use crate::gate::{ALL_UNREACHABLE, Connection};
use crate::log::Log;
use crate::protocol::{FromWeb, FromWorker};
use anyhow::Result;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// The pause before another try, as in the real one.
const PAUSE: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(200);

/// Runs until the web says that the worker has landed, retired or is gone.
pub fn run(config: &Config, tasks: &Arc<Tasks>, draining: &AtomicBool) {
    let runner = Log::new("worker").session("beacon-runner");
    let log = runner.session("beacon");
    log.debug("start", json!({}));
    loop {
        match connection(config, tasks, &log) {
            Ok(true) => {
                log.info("exited", json!({}));
                return;
            }
            Ok(false) => {
                log.error("exited-with-error", "Process exited with status 1");
                runner.info("exiting", json!({"reason": "registration process exited via SSH gateway"}));
                return;
            }
            Err(e) => {
                log.error("exited-with-error", format!("{e:#}"));
                if e.to_string() == ALL_UNREACHABLE && draining.load(Ordering::Relaxed) {
                    runner.info("exiting", json!({"reason": "all SSH gateways disappeared while draining"}));
                    return;
                }
                runner.error("failed", format!("{e:#}"));
            }
        }
        std::thread::sleep(PAUSE);
        runner.info("restarting", json!({}));
    }
}

/// One connection: true when its command ended well, false when the web ended it with an error.
fn connection(config: &Config, tasks: &Arc<Tasks>, log: &Log) -> Result<bool> {
    let mut line = config.gate.dial(log).inspect_err(|e| log.error("failed-to-dial", format!("{e:#}")))?;
    let mut worker = config.worker.clone();
    (worker.active_containers, worker.active_volumes) = tasks.counts();
    if line.send(&FromWorker::ForwardWorker { worker }).is_err() {
        return Err(failed(&mut line, log, false));
    }
    tasks.new_connection();
    let mut registered = false;
    loop {
        match line.messages.recv_timeout(TICK) {
            Ok(FromWeb::Registered) => {
                registered = true;
                log.info("registered", json!({}));
                say(&mut line, &FromWorker::Known { tasks: tasks.known() });
            }
            Ok(FromWeb::Heartbeated) => log.debug("heartbeated", json!({})),
            Ok(FromWeb::Ping) => {
                let (containers, volumes) = tasks.counts();
                say(&mut line, &FromWorker::Pong { containers, volumes });
            }
            Ok(FromWeb::Run { task }) => tasks.run(task),
            Ok(FromWeb::Resume { task, offset }) => tasks.resume(task, offset),
            Ok(FromWeb::Forget { task }) => tasks.forget(task),
            Ok(FromWeb::Exit { status: 0, .. }) => {
                log.session("run").debug("command-exited", json!({"command": "forward-worker"}));
                return Ok(true);
            }
            Ok(FromWeb::Exit { message, .. }) => {
                log.session("run")
                    .with("command", "forward-worker")
                    .error("command-failed", format!("Process exited with status 1: {message}"));
                return Ok(false);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(failed(&mut line, log, registered)),
        }
        for message in tasks.news() {
            say(&mut line, &message);
        }
    }
}

/// A connection that takes nothing any more may still hold the web's last word, so its end is left to the reader.
fn say(line: &mut Connection, message: &FromWorker) {
    let _ = line.send(message);
}

fn failed(line: &mut Connection, log: &Log, registered: bool) -> anyhow::Error {
    let e = line.failure();
    if registered {
        log.session("run").with("command", "forward-worker").error("command-failed", format!("{e:#}"));
    } else {
        log.error("failed-to-dial", format!("{e:#}"));
    }
    e
}
