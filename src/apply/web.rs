//! What the web node is asked to do: workers off its list, the database's schema.

use super::{Outcome, Trouble};
use crate::host::cmd::{cmd, tail};
use crate::host::fs::Root;
use crate::host::http::Api;
use crate::parse::Version;
use crate::paths;
use crate::view::secrets::admin_password;
use crate::view::tsa::registration;
use crate::world::{Worker, World};
use anyhow::{Context, Result};
use std::io::Write;
use std::time::Duration;

/// Takes workers off the list: a worker that still runs retires first, one that does not is pruned.
pub fn prune(world: &World, names: &[String]) -> Outcome {
    let (Some(config), Some(password)) = (&world.config, admin_password(world)) else { return Ok(Ok(())) };
    let done = (|| -> Result<()> {
        let api = Api::login(config.web_port, &config.admin.to_string(), password)?;
        let listed = api.workers()?;
        for worker in listed.iter().filter(|w| names.contains(&w.name)) {
            if worker.state == "running" || worker.state == "landing" {
                api.worker(&worker.name, "retire")?;
            }
            api.worker(&worker.name, "prune")?;
        }
        Ok(())
    })();
    // Not worth a failed hook: the next one tries again, and a worker that is gone is stalled at the worst.
    Ok(done.map_err(|e| Trouble(format!("workers could not be taken off the list: {e:#}"))))
}

/// Takes a worker's old registration off the list, as the worker itself would when it retires.
pub fn forget_worker(root: &Root, world: &World, worker: Worker) -> Outcome {
    let name = worker.name(&world.unit);
    let servers = registration(world).servers;
    let Some(tsa) = servers.first() else { return Ok(Ok(())) };
    let mut known = tempfile::NamedTempFile::new().context("failed to make a temporary file")?;
    let host = tsa.host.host().to_string();
    writeln!(known, "[{}]:{} {}", host.trim_matches(['[', ']']), tsa.host.port(), tsa.key)?;
    let out = cmd("ssh")
        .args([
            "-F",
            "none",
            "-o",
            "BatchMode=yes",
            "-o",
            "StrictHostKeyChecking=yes",
            "-o",
            "ConnectTimeout=10",
        ])
        .arg("-o")
        .arg(format!("UserKnownHostsFile={}", known.path().display()))
        .arg("-i")
        .arg(root.path(paths::WORKER_KEY))
        .args(["-p", &tsa.host.port().to_string(), "-l", "concourse"])
        .args([host.trim_matches(['[', ']']), "delete-worker"])
        .stdin(serde_json::json!({"name": name}).to_string())
        .deadline(Duration::from_secs(60))
        .output()?;
    if out.status.success() {
        return Ok(Ok(()));
    }
    Ok(Err(Trouble(format!(
        "The old registration of {name} could not be taken off the web node's list: {}",
        tail(&out.stderr).lines().last().unwrap_or("no answer")
    ))))
}

/// Brings the schema to what `to` supports, by the program that knows the way back.
pub fn migrate_down(with: &Version, to: &Version) -> Outcome {
    let number = |what: &str| -> Result<std::result::Result<u64, Trouble>> {
        let answer = concourse(to, &["migrate", what])?;
        Ok(answer.and_then(|text| {
            text.trim()
                .parse()
                .map_err(|_| Trouble(format!("concourse migrate {what} did not answer with a number")))
        }))
    };
    let (supported, found) = match (number("--supported-db-version")?, number("--current-db-version")?) {
        (Ok(supported), Ok(found)) => (supported, found),
        (Err(trouble), _) | (_, Err(trouble)) => return Ok(Err(trouble)),
    };
    if found <= supported {
        return Ok(Ok(()));
    }
    Ok(concourse(with, &["migrate", "--migrate-db-to-version", &supported.to_string()])?.map(drop))
}

/// Brings the schema to `schema`, or to what the current version supports.
pub fn migrate(schema: Option<u64>) -> Outcome {
    let program = format!("{}/bin/concourse", paths::CURRENT);
    let outcome = match schema {
        Some(schema) => run(&program, &["migrate", "--migrate-db-to-version", &schema.to_string()])?,
        None => run(&program, &["migrate", "--migrate-to-latest-version"])?,
    };
    Ok(outcome.map(drop))
}

fn concourse(version: &Version, args: &[&str]) -> Result<std::result::Result<String, Trouble>> {
    run(&format!("{}/{version}/bin/concourse", paths::VERSIONS), args)
}

/// Runs Concourse with the web node's own settings, which systemd reads: a password never stands in an argument.
fn run(program: &str, args: &[&str]) -> Result<std::result::Result<String, Trouble>> {
    let out = cmd("systemd-run")
        .args(["--quiet", "--wait", "--pipe", "--collect", "--uid=concourse"])
        .args([
            "--property=EnvironmentFile=/etc/concourse/web.env",
            "--property=EnvironmentFile=-/etc/concourse/web.local.env",
        ])
        .arg(program)
        .args(args)
        .deadline(Duration::from_secs(600))
        .output()?;
    if out.status.success() {
        return Ok(Ok(out.stdout));
    }
    let said = format!("{}{}", out.stdout, out.stderr);
    Ok(Err(Trouble(format!(
        "The database could not be migrated: {}",
        tail(&said).lines().last().unwrap_or("no reason given")
    ))))
}
