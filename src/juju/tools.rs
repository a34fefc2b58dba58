//! Hook tools, always with `--format=json`: the only file that starts them (juju-protocol §2).
//! A value never stands in an argument: data go in by standard input or a private file.

use crate::host::cmd::{cmd, tail};
use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

/// A databag, or any other flat map of texts.
pub type Bag = BTreeMap<String, String>;

/// A secret's content, or that this unit may not read it (yet): granting fires no hook (juju-protocol §2.7).
pub type SecretContent = std::result::Result<Bag, Denied>;

/// Juju said "permission denied" or "not found".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied;

/// Runs a tool and gives its standard output.
fn call(tool: &str, args: &[&str], stdin: Option<Vec<u8>>) -> Result<String> {
    let mut command = cmd(tool).args(args);
    if let Some(input) = stdin {
        command = command.stdin(input);
    }
    let out = command.output()?;
    if !out.status.success() {
        bail!("{tool} failed ({}): {}", out.code(), tail(&out.stderr));
    }
    Ok(out.stdout)
}

fn json<T: DeserializeOwned>(tool: &str, args: &[&str]) -> Result<Option<T>> {
    let mut all = vec!["--format=json"];
    all.extend(args);
    let text = call(tool, &all, None)?;
    serde_json::from_str(&text).with_context(|| format!("{tool} answered with something else than JSON"))
}

/// The options that are set or have a default.
///
/// # Errors
/// As every call here: the tool failed, which Juju is best told by a failed hook.
pub fn config_get() -> Result<Map<String, Value>> {
    Ok(json("config-get", &[])?.unwrap_or_default())
}

/// Whether this unit leads its application, for the next 30 s at least.
///
/// # Errors
/// The tool failed.
pub fn is_leader() -> Result<bool> {
    Ok(json("is-leader", &[])?.unwrap_or(false))
}

/// What this unit keeps in Juju: written with the hook, or lost with it.
///
/// # Errors
/// The tool failed.
pub fn state_get() -> Result<Bag> {
    Ok(json("state-get", &["-"])?.unwrap_or_default())
}

/// Keeps `value` under `key`.
///
/// # Errors
/// The tool failed, for example over Juju's size limit of 64 KiB.
pub fn state_set(key: &str, value: &str) -> Result<()> {
    let input = serde_json::to_vec(&BTreeMap::from([(key, value)]))?;
    call("state-set", &["--file", "-"], Some(input)).map(drop)
}

/// The ids of an endpoint's relations.
///
/// # Errors
/// The tool failed.
pub fn relation_ids(endpoint: &str) -> Result<Vec<String>> {
    Ok(json("relation-ids", &[endpoint])?.unwrap_or_default())
}

/// The remote units of a relation; `None` if there is no such relation any more.
///
/// # Errors
/// The tool failed.
pub fn relation_list(id: &str) -> Result<Option<Vec<String>>> {
    let out = cmd("relation-list").args(["--format=json", "-r", id]).output()?;
    match out.code() {
        0 => Ok(Some(serde_json::from_str::<Option<Vec<String>>>(&out.stdout)?.unwrap_or_default())),
        2 if out.stderr.contains("relation not found") => Ok(None),
        code => bail!("relation-list failed ({code}): {}", tail(&out.stderr)),
    }
}

/// The remote application's name.
///
/// # Errors
/// The tool failed.
pub fn relation_app(id: &str) -> Result<Option<String>> {
    json("relation-list", &["-r", id, "--app"])
}

/// A remote unit's bag; empty if it never was there.
///
/// # Errors
/// The tool failed.
pub fn relation_get_unit(id: &str, unit: &str) -> Result<Bag> {
    bag(&["--format=json", "-r", id, "-", unit])
}

/// An application's bag.
///
/// # Errors
/// The tool failed.
pub fn relation_get_app(id: &str, app: &str) -> Result<Bag> {
    bag(&["--format=json", "-r", id, "--app", "-", app])
}

fn bag(args: &[&str]) -> Result<Bag> {
    let out = cmd("relation-get").args(args).output()?;
    match out.code() {
        0 => Ok(serde_json::from_str::<Option<Bag>>(&out.stdout)?.unwrap_or_default()),
        // A unit that never entered the relation's scope, or one that this unit may not see.
        1 if out.stderr.contains("settings not found") || out.stderr.contains("permission denied") => {
            Ok(Bag::new())
        }
        code => bail!("relation-get failed ({code}): {}", tail(&out.stderr)),
    }
}

/// Writes this unit's bag, or its application's; an empty value deletes the key.
///
/// # Errors
/// The tool failed, for example because this unit leads no more.
pub fn relation_set(id: &str, app: bool, values: &Bag) -> Result<()> {
    let mut args = vec!["-r", id, "--file", "-"];
    if app {
        args.push("--app");
    }
    call("relation-set", &args, Some(serde_json::to_vec(values)?)).map(drop)
}

/// The address under which others reach this unit on an endpoint; `None` while Juju does not know it. With a relation's id,
/// the one for its other side, which may be in another model and reach this one by a public address only.
///
/// # Errors
/// The tool could not be run.
pub fn ingress_address(endpoint: &str, relation: Option<&str>) -> Result<Option<std::net::IpAddr>> {
    let mut args = vec!["--format=json", endpoint, "--ingress-address"];
    args.extend(relation.into_iter().flat_map(|id| ["-r", id]));
    let out = cmd("network-get").args(args).output()?;
    if out.code() != 0 {
        return Ok(None);
    }
    let text: Option<String> = serde_json::from_str(&out.stdout)?;
    Ok(text.and_then(|t| t.parse().ok()))
}

/// Opens or closes ports, `8080/tcp`.
///
/// # Errors
/// The port belongs to another unit of this machine.
pub fn ports(open: bool, port: &str) -> Result<()> {
    call(if open { "open-port" } else { "close-port" }, &[port], None).map(drop)
}

/// A secret's content, of its newest revision.
///
/// # Errors
/// The tool failed for another reason than a missing grant.
pub fn secret_get(id: &str) -> Result<SecretContent> {
    let out = cmd("secret-get").args(["--format=json", id, "--refresh"]).output()?;
    match out.code() {
        0 => Ok(Ok(serde_json::from_str::<Option<Bag>>(&out.stdout)?.unwrap_or_default())),
        1 if out.stderr.contains("permission denied") || out.stderr.contains("not found") => Ok(Err(Denied)),
        code => bail!("secret-get failed ({code}): {}", tail(&out.stderr)),
    }
}

/// Adds a secret owned by the application and gives its id.
///
/// # Errors
/// This unit does not lead, or the tool failed.
pub fn secret_add(label: &str, description: &str, content: &Bag) -> Result<String> {
    let file = private_file(content)?;
    let path = file.path().to_string_lossy().into_owned();
    let args = ["--label", label, "--description", description, "--owner", "application", "--file", &path];
    Ok(call("secret-add", &args, None)?.trim().to_owned())
}

/// Replaces a secret's content.
///
/// # Errors
/// This unit does not lead, or the tool failed.
pub fn secret_set(id: &str, content: &Bag) -> Result<()> {
    let file = private_file(content)?;
    call("secret-set", &[id, "--file", &file.path().to_string_lossy()], None).map(drop)
}

/// 0600, in the hook's own temporary directory, gone when dropped.
fn private_file(content: &Bag) -> Result<tempfile::NamedTempFile> {
    let mut file = tempfile::NamedTempFile::new().context("failed to make a private file")?;
    // JSON is YAML, and has one way only to write a text with quotes and line ends.
    file.write_all(&serde_json::to_vec(content)?)?;
    Ok(file)
}

/// Where the agent keeps a resource's file; `None` if none was attached.
///
/// # Errors
/// The tool could not be run.
pub fn resource_get(name: &str) -> Result<Option<PathBuf>> {
    let out = cmd("resource-get").arg(name).deadline(std::time::Duration::from_secs(600)).output()?;
    let path = out.stdout.trim();
    Ok((out.code() == 0 && !path.is_empty()).then(|| PathBuf::from(path)))
}

/// Sets the unit's status at once.
///
/// # Errors
/// The tool failed.
pub fn status_set(word: &str, message: &str) -> Result<()> {
    call("status-set", &[word, "--", message], None).map(drop)
}

/// Tells the version of Concourse that runs.
///
/// # Errors
/// The tool failed.
pub fn application_version_set(version: &str) -> Result<()> {
    call("application-version-set", &["--", version], None).map(drop)
}

/// Writes to Juju's log. A log that can't be written to is no reason to fail.
pub fn log(level: &str, message: &str) {
    drop(call("juju-log", &["-l", level, "--", message], None));
}

/// The parameters of the running action, defaults filled in.
///
/// # Errors
/// The tool failed.
pub fn action_get() -> Result<Map<String, Value>> {
    Ok(json("action-get", &[])?.unwrap_or_default())
}

/// The results of the running action.
///
/// # Errors
/// The tool failed.
pub fn action_set(results: &Bag) -> Result<()> {
    let pairs: Vec<String> = results.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
    call("action-set", &pairs, None).map(drop)
}

/// Marks the running action as failed, with the reason.
///
/// # Errors
/// The tool failed.
pub fn action_fail(message: &str) -> Result<()> {
    call("action-fail", &["--", message], None).map(drop)
}

/// Shows progress to whoever watches the action.
pub fn action_log(message: &str) {
    drop(call("action-log", &["--", message], None));
}
