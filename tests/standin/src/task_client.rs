//! `concourse standin-task`: runs a command on a worker by way of a web, and is its terminal.

use crate::http::{Answer, percent_encode, request};
use crate::opts::{Kind, Opt, Values, dft, many, one, switch};
use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Map, Value, json};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The options of `standin-task`; what follows `--` is the command.
pub const OPTIONS: &[Opt] = &[
    one("web"),
    one("user"),
    one("password-file"),
    one("password"),
    one("worker"),
    Opt { name: "tag", short: None, kind: Kind::Many, default: None },
    many("image-rootfs"),
    many("image-env"),
    many("param"),
    dft("step", "task"),
    switch("privileged"),
    dft("timeout", "10m"),
    dft("wait-for-worker", "1m"),
    switch("detach"),
    one("attach"),
];

const PAUSE: Duration = Duration::from_millis(300);

struct Client {
    web: String,
    user: String,
    password: String,
    token: String,
}

/// Runs a task, prints its output, and exits as it did (or with 125 if it could not be run).
pub fn run(values: &Values) -> Result<()> {
    let password = match values.get("password-file") {
        Some(file) => std::fs::read_to_string(file)
            .with_context(|| file.to_owned())?
            .trim_end_matches(['\r', '\n'])
            .to_owned(),
        None => values
            .required("password")
            .map_err(|_| anyhow!("the required flag `--password-file' was not specified"))?
            .to_owned(),
    };
    let mut client = Client {
        web: values.required("web")?.into(),
        user: values.required("user")?.into(),
        password,
        token: String::new(),
    };
    let deadline = Instant::now() + values.duration("timeout")?;
    let id = match values.number::<i64>("attach")? {
        Some(id) => id,
        None => client.create(&body(values)?, Instant::now() + values.duration("wait-for-worker")?)?,
    };
    if values.on("detach")? {
        println!("{id}");
        return Ok(());
    }
    let code = client.follow(id, deadline)?;
    std::process::exit(code);
}

fn body(values: &Values) -> Result<Value> {
    values.choice("step", &["task", "get", "put", "check"])?;
    if values.rest.is_empty() {
        bail!("no command: put it after --");
    }
    let mut params = Map::new();
    for param in values.list("param") {
        let (name, value) = param.split_once('=').ok_or_else(|| anyhow!("not NAME=VALUE: {param}"))?;
        params.insert(name.into(), value.into());
    }
    Ok(json!({
        "worker": values.get("worker"), "tags": values.list("tag"), "cmd": values.rest, "params": params, "step": values.text("step"),
        "image_rootfs": values.list("image-rootfs"), "image_env": values.list("image-env"), "privileged": values.on("privileged")?,
    }))
}

impl Client {
    /// A request with a token; logs in when there is none or the web doesn't know it any more.
    fn call(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Answer> {
        for _ in 0..2 {
            if self.token.is_empty() {
                self.log_in()?;
            }
            let answer = request(
                &self.web,
                method,
                path,
                &[("Authorization", &format!("Bearer {}", self.token))],
                body,
            )?;
            if answer.status != 401 {
                return Ok(answer);
            }
            self.token.clear();
        }
        bail!("not authorized")
    }

    fn log_in(&mut self) -> Result<()> {
        let form = format!(
            "grant_type=password&username={}&password={}&scope=openid",
            percent_encode(&self.user),
            percent_encode(&self.password)
        );
        let headers =
            [("Authorization", "Basic Zmx5OlpteDU="), ("Content-Type", "application/x-www-form-urlencoded")];
        let answer = request(&self.web, "POST", "/sky/issuer/token", &headers, form.as_bytes())?;
        let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if answer.status != 200 {
            bail!(
                "login failed ({}): {}",
                answer.status,
                said["error_description"].as_str().unwrap_or_default()
            );
        }
        self.token = said["access_token"].as_str().context("no access_token")?.into();
        Ok(())
    }

    fn create(&mut self, body: &Value, deadline: Instant) -> Result<i64> {
        let mut told = false;
        loop {
            let answer = match self.call("POST", "/api/v1/standin/tasks", body.to_string().as_bytes()) {
                // A web that is just being restarted.
                Err(e) if e.chain().any(|c| c.is::<std::io::Error>()) && Instant::now() < deadline => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                other => other?,
            };
            let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            match answer.status {
                201 => {
                    eprintln!(
                        "stand-in: task {} on worker {}",
                        said["id"],
                        said["worker"].as_str().unwrap_or_default()
                    );
                    return said["id"].as_i64().context("no id");
                }
                503 if Instant::now() < deadline => {
                    if !std::mem::replace(&mut told, true) {
                        eprintln!("{}, waiting for worker...", said["error"].as_str().unwrap_or_default());
                    }
                    std::thread::sleep(PAUSE);
                }
                status => bail!("web refused ({status}): {}", said["error"].as_str().unwrap_or_default()),
            }
        }
    }

    /// Prints output as it comes until the task is over; a web that goes away for a while is waited for.
    fn follow(&mut self, id: i64, deadline: Instant) -> Result<i32> {
        let (mut offset, mut last_carriage) = (0, false);
        loop {
            if Instant::now() > deadline {
                bail!("task {id} took too long");
            }
            let Ok((task, data)) = self.look(id, offset) else {
                std::thread::sleep(PAUSE);
                continue;
            };
            offset += data.len();
            print(&data, &mut last_carriage)?;
            let all = offset as i64 >= task["size"].as_i64().unwrap_or(0);
            match task["state"].as_str().unwrap_or_default() {
                "succeeded" | "failed" if all => return Ok(task["exit_code"].as_i64().unwrap_or(1) as i32),
                "errored" if all => {
                    eprintln!(
                        "stand-in: task {id} errored: {}",
                        task["message"].as_str().unwrap_or("no reason given")
                    );
                    return Ok(125);
                }
                _ if data.is_empty() => std::thread::sleep(PAUSE),
                _ => {}
            }
        }
    }

    fn look(&mut self, id: i64, offset: usize) -> Result<(Value, Vec<u8>)> {
        let task = self.call("GET", &format!("/api/v1/standin/tasks/{id}"), b"")?;
        let data = self.call("GET", &format!("/api/v1/standin/tasks/{id}/output?offset={offset}"), b"")?;
        match (task.status, data.status) {
            (200, 200) => Ok((serde_json::from_slice(&task.body)?, data.body)),
            (404, _) => bail!("no task {id}"),
            (status, _) => bail!("web says {status}"),
        }
    }
}

/// A task's output is a terminal's; where ours is none, line ends become plain.
fn print(data: &[u8], last_carriage: &mut bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if out.is_terminal() {
        out.write_all(data)?;
    } else {
        let mut plain = Vec::with_capacity(data.len());
        for &byte in data {
            if std::mem::replace(last_carriage, byte == b'\r') && byte != b'\n' {
                plain.push(b'\r');
            }
            if byte != b'\r' {
                plain.push(byte);
            }
        }
        out.write_all(&plain)?;
    }
    out.flush()?;
    Ok(())
}
