//! `concourse web`: the API, the database, and the gate for workers.

mod api;
mod auth;
mod command;
mod config;
mod session;
mod tsa;

pub use command::{ARGUMENT as COMMAND, run as command};
pub use config::OPTIONS;
pub use tsa::die_with_parent;

use crate::db::{self, schema, tasks, workers};
use crate::http;
use crate::log::Log;
use crate::opts::Values;
use crate::version::{banner, broken, schema_of, version};
use anyhow::{Result, bail};
use config::Config;
use serde_json::json;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;

/// A web and what its threads share.
pub struct Web {
    config: Config,
    pool: db::Pool,
    log: Log,
}

/// Runs until a signal ends it.
pub fn run(values: &Values) -> Result<()> {
    let log = Log::new("atc");
    if broken("web") {
        log.session("cmd").error("failed-to-start", "this version was packed as one whose web is broken");
        bail!("this version of the stand-in was packed as one whose web is broken");
    }
    let config = Config::new(values)?;
    log.info("stand-in", json!({"what": banner()}));
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGTERM, SIGINT, SIGCHLD])?;
    let pool = Config::pool(values)?;
    pool.wait_for_database()?;
    schema::up(&pool, schema_of(&version()))?;
    let web = Arc::new(Web { config, pool, log });
    listen(&web)?;
    let port = session::listen(&web)?;
    let mut gate = tsa::start(&web, port)?;
    let collector = web.clone();
    std::thread::spawn(move || collect(&collector));
    for signal in signals.forever() {
        match signal {
            SIGHUP => gate.reload(),
            SIGCHLD => {
                if let Ok(Some(status)) = gate.child.try_wait() {
                    bail!("tsa exited: sshd: {status}");
                }
            }
            _ => break,
        }
    }
    gate.stop();
    let log = Log::new("web");
    log.session("atc-runner").info("logging-runner-exited", json!({}));
    log.session("tsa-runner").info("logging-runner-exited", json!({}));
    Ok(())
}

fn listen(web: &Arc<Web>) -> Result<()> {
    let handler: http::Handler = {
        let web = web.clone();
        Arc::new(move |request| api::answer(&web, request))
    };
    let mut about = json!({"http": web.config.http, "debug": web.config.debug});
    http::serve(&web.config.http, None, handler.clone())?;
    if let Some((address, tls)) = &web.config.https {
        http::serve(address, Some(tls.clone()), handler)?;
        about["https"] = address.clone().into();
    }
    if let Some(address) = &web.config.prometheus {
        let metrics = web.clone();
        http::serve(
            address,
            None,
            Arc::new(move |request| match request.path.as_str() {
                "/metrics" => api::metrics(&metrics),
                _ => http::Response::text(404, "404 page not found"),
            }),
        )?;
    }
    web.log.info("listening", about);
    Ok(())
}

/// What passes with time: workers stall, land and go.
fn collect(web: &Web) {
    let log = web.log.session("worker-collector");
    loop {
        std::thread::sleep(web.config.gc_interval);
        let result = workers::tick(&web.pool, web.config.stalled_timeout.as_secs_f64()).and_then(|changed| {
            for (what, worker) in changed {
                log.info(what, json!({"count": 1, "workers": [worker]}));
            }
            tasks::fail_orphans(&web.pool)
        });
        if let Err(e) = result {
            log.error("failed-to-collect", format!("{e:#}"));
        }
    }
}
