//! A stand-in for the `concourse` binary: for tests, and for a demo on a machine that has no release at hand.
//! It really uses PostgreSQL, OpenSSH, containerd and runc; it knows no pipelines. See README.md.

mod db;
mod gate;
mod http;
mod keys;
mod log;
mod migrate;
mod opts;
mod pem;
mod protocol;
mod task_client;
mod time;
mod tls;
mod version;
mod web;
mod worker;

use anyhow::{Result, bail};
use log::Log;
use opts::{Opt, Values, one};
use protocol::{FromWorker, Worker};

const DRAIN: &[Opt] = &[one("name"), one("team")];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Err(e) = dispatch(&args) {
        eprintln!("error: {e:#}");
        std::process::exit(1);
    }
}

fn dispatch(args: &[String]) -> Result<()> {
    let (command, rest) = args.split_first().map_or(("", args), |(c, r)| (c.as_str(), r));
    let read = |table: &[&[Opt]]| opts::parse(table, rest, &|name| std::env::var(name).ok());
    match command {
        "-v" | "--version" => {
            println!("{}", version::version());
            eprintln!("{}", version::banner());
            Ok(())
        }
        "-h" | "--help" | "help" => {
            println!(
                "{}\n\nCommands: web, worker, migrate, land-worker, retire-worker, generate-key, standin-task",
                version::banner()
            );
            Ok(())
        }
        "web" => web::run(&read(&[web::OPTIONS, db::OPTIONS])?),
        "worker" => worker::run(&read(&[worker::OPTIONS, gate::OPTIONS])?),
        "migrate" => migrate::run(&read(&[migrate::OPTIONS, db::OPTIONS])?),
        "land-worker" => drain(&read(&[DRAIN, gate::OPTIONS])?, "land-worker"),
        "retire-worker" => drain(&read(&[DRAIN, gate::OPTIONS])?, "retire-worker"),
        "generate-key" => keys::run(&read(&[keys::OPTIONS])?),
        "standin-task" => task_client::run(&read(&[task_client::OPTIONS])?),
        web::COMMAND => web::command(rest),
        "--standin-task-log" => worker::tasklog::run(rest),
        "" => bail!(
            "Please specify one command of: generate-key, land-worker, migrate, retire-worker, standin-task, web or worker"
        ),
        other => bail!(
            "Unknown command `{other}'. Please specify one command of: generate-key, land-worker, migrate, retire-worker, standin-task, web or worker"
        ),
    }
}

/// `land-worker` and `retire-worker`.
fn drain(values: &Values, command: &str) -> Result<()> {
    let worker =
        Worker { name: values.required("name")?.into(), team: values.text("team"), ..Worker::default() };
    let options = gate::GateOptions::new(values)?;
    let message = if command == "land-worker" {
        FromWorker::LandWorker { worker }
    } else {
        FromWorker::RetireWorker { worker }
    };
    gate::command(&options, &Log::new(command), &message)
}
