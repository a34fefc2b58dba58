//! `concourse worker`: containerd, a registration, and containers.

mod beacon;
mod bundle;
mod config;
mod containerd;
mod image;
mod shim;
mod start;
pub mod tasklog;
mod tasks;
mod volumes;

pub use config::OPTIONS;

use crate::gate;
use crate::http::{self, Response};
use crate::log::Log;
use crate::opts::Values;
use crate::protocol::{FromWorker, Worker};
use crate::version::{banner, broken};
use anyhow::{Result, bail};
use config::Config;
use serde_json::json;
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tasks::Tasks;

/// Runs until the worker has landed or retired, or a signal ends it.
pub fn run(values: &Values) -> Result<()> {
    let log = Log::new("worker");
    if broken("worker") {
        log.error("failed-to-start", "this version was packed as one whose worker is broken");
        bail!("this version of the stand-in was packed as one whose worker is broken");
    }
    let config = Arc::new(Config::new(values)?);
    containerd::own_bin_first();
    log.info("stand-in", json!({"what": banner()}));
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGCHLD])?;
    let volumes = volumes::Volumes::new(&config, &log.session("baggageclaim"))?;
    let mut daemon = containerd::start(&config, &log.session("garden"))?;
    let garden = log.session("garden-runner");
    containerd::list_containers().inspect_err(|e| garden.error("logging-runner-exited", format!("{e:#}")))?;
    listen(&config)?;
    let tasks = Tasks::recover(config.clone(), volumes)?;
    let draining = Arc::new(AtomicBool::new(false));
    let over = Arc::new(AtomicBool::new(false));
    start_beacon(&config, &tasks, &draining, &over);
    let drain = log.session("beacon-runner").session("beacon").session("drain");
    let mut retiring = false;
    for signal in signals.forever() {
        let about = Worker {
            name: config.worker.name.clone(),
            team: config.worker.team.clone(),
            ..Worker::default()
        };
        match signal {
            SIGUSR1 | SIGUSR2 => {
                draining.store(true, Ordering::Relaxed);
                retiring |= signal == SIGUSR2;
                begin_drain(&config, &drain, signal == SIGUSR2, about);
            }
            SIGCHLD => {
                if let Ok(Some(status)) = daemon.try_wait() {
                    garden.error(
                        "logging-runner-exited",
                        format!("Exit trace for group:\ncontainerd exited with error: {status}"),
                    );
                    bail!("containerd exited: {status}");
                }
            }
            _ => {
                let log = log.session("beacon-runner").session("beacon").session("signal");
                if !over.load(Ordering::Relaxed) {
                    log.info("signalled", json!({}));
                }
                if retiring && !over.load(Ordering::Relaxed) {
                    log.info("deleting-worker", json!({}));
                    gate::command(&config.gate, &log, &FromWorker::DeleteWorker { worker: about })?;
                }
                break;
            }
        }
    }
    stop(&mut daemon);
    log.session("beacon-runner").info("logging-runner-exited", json!({}));
    Ok(())
}

/// Tells a web that the worker wants to land or retire; a failure is logged, as the real one keeps running then.
fn begin_drain(config: &Arc<Config>, log: &Log, retire: bool, worker: Worker) {
    log.debug(
        "received-drain-signal",
        json!({"signal": if retire { "user defined signal 2" } else { "user defined signal 1" }}),
    );
    let (config, log) = (config.clone(), log.clone());
    std::thread::spawn(move || {
        let (word, message) = match retire {
            true => ("retire", FromWorker::RetireWorker { worker }),
            false => ("land", FromWorker::LandWorker { worker }),
        };
        log.info(if retire { "retiring-worker" } else { "landing-worker" }, json!({}));
        if let Err(e) = gate::command(&config.gate, &log, &message) {
            log.error(&format!("failed-to-{word}-worker"), format!("{e:#}"));
        }
    });
}

/// The beacon runs beside; when it is done the whole worker is, as if it had been told to stop.
fn start_beacon(
    config: &Arc<Config>,
    tasks: &Arc<Tasks>,
    draining: &Arc<AtomicBool>,
    over: &Arc<AtomicBool>,
) {
    let (config, tasks, draining, over) = (config.clone(), tasks.clone(), draining.clone(), over.clone());
    std::thread::spawn(move || {
        beacon::run(&config, &tasks, &draining);
        over.store(true, Ordering::Relaxed);
        // SAFETY: a signal to ourselves, handled by the main thread.
        unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
        // ssh children die with this thread; it must outlive the main one.
        std::thread::sleep(Duration::from_secs(60));
    });
}

/// The ports that the real worker opens; those of the stand-in only say that they are there.
fn listen(config: &Config) -> Result<()> {
    let [garden, baggageclaim, debug, volume_debug, health] = &config.addresses;
    for address in [garden, baggageclaim, debug, volume_debug] {
        http::serve(
            address,
            None,
            Arc::new(|request| match request.path.as_str() {
                "/ping" => Response::json(200, &json!({})),
                "/volumes" => Response::json(200, &json!([])),
                _ => Response::text(404, "stand-in"),
            }),
        )?;
    }
    http::serve(
        health,
        None,
        Arc::new(|_| {
            let healthy = containerd::list_containers();
            let garden = json!({"healthy": healthy.is_ok(), "response_error": healthy.as_ref().err().map(|e| format!("{e:#}"))});
            Response::json(
                if healthy.is_ok() { 200 } else { 503 },
                &json!({"garden": garden, "baggageclaim": {"healthy": true}}),
            )
        }),
    )
}

/// Ends containerd; the shims and their containers live on.
fn stop(daemon: &mut Child) {
    // SAFETY: a plain kill(2) of our own child.
    unsafe { libc::kill(daemon.id() as i32, libc::SIGTERM) };
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(10) && matches!(daemon.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = daemon.kill();
    let _ = daemon.wait();
}
