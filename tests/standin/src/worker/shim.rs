//! Talks to a container's shim directly: a new process, and what became of it. The shim outlives worker and
//! containerd, so this works at any time. The wire format is ttrpc with a handful of protobuf fields.

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const BUNDLES: &str = "/run/containerd/io.containerd.runtime.v2.task/concourse";
const PROCESS_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/Process";
/// A new process may wait for a GPU; containerd's own limit is five minutes.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a process does.
#[derive(Debug, PartialEq)]
pub enum State {
    /// It is there and has not ended.
    Running,
    /// It ended with this code.
    Stopped(i32),
}

/// A process to start in a container.
pub struct Exec<'a> {
    /// The container.
    pub container: &'a str,
    /// The process's name.
    pub id: &'a str,
    /// Whether it gets a terminal.
    pub terminal: bool,
    /// Where its output goes.
    pub output: &'a str,
    /// The process as the runtime sees it.
    pub process: &'a Value,
}

/// Starts a process.
pub fn exec(exec: &Exec) -> Result<()> {
    let spec = [text(1, PROCESS_TYPE), bytes(2, exec.process.to_string().as_bytes())].concat();
    let stderr = if exec.terminal { "" } else { exec.output };
    let request = [
        text(1, exec.container),
        text(2, exec.id),
        number(3, exec.terminal.into()),
        text(5, exec.output),
        text(6, stderr),
        bytes(7, &spec),
    ];
    call(exec.container, "Exec", &request.concat()).context("task exec")?;
    call(exec.container, "Start", &[text(1, exec.container), text(2, exec.id)].concat())
        .context("proc start")?;
    Ok(())
}

/// What a process does now.
pub fn state(container: &str, id: &str) -> Result<State> {
    let answer = call(container, "State", &[text(1, container), text(2, id)].concat())?;
    const STOPPED: u64 = 3;
    Ok(match field(&answer, 4) {
        Some(Field::Number(STOPPED)) => State::Stopped(match field(&answer, 9) {
            Some(Field::Number(code)) => code as i32,
            _ => 0,
        }),
        _ => State::Running,
    })
}

/// Lets a process that has ended go; only then its pipes close.
pub fn delete(container: &str, id: &str) -> Result<()> {
    call(container, "Delete", &[text(1, container), text(2, id)].concat()).map(|_| ())
}

/// Where the shim listens and which generation of its API it speaks.
fn address(container: &str) -> Result<(String, &'static str)> {
    let bundle = format!("{BUNDLES}/{container}");
    if let Ok(text) = std::fs::read(format!("{bundle}/bootstrap.json")) {
        let boot: Value = serde_json::from_slice(&text)?;
        let service = if boot["version"].as_i64() >= Some(3) {
            "containerd.task.v3.Task"
        } else {
            "containerd.task.v2.Task"
        };
        return Ok((boot["address"].as_str().unwrap_or_default().to_owned(), service));
    }
    let address = std::fs::read_to_string(format!("{bundle}/address"))
        .with_context(|| format!("container {container}: no shim"))?;
    Ok((address.trim().to_owned(), "containerd.task.v2.Task"))
}

fn call(container: &str, method: &str, payload: &[u8]) -> Result<Vec<u8>> {
    let (address, service) = address(container)?;
    let path = address.strip_prefix("unix://").ok_or_else(|| anyhow!("unknown shim address {address}"))?;
    let mut stream = UnixStream::connect(path).with_context(|| format!("shim of container {container}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let namespace = [text(1, "containerd-namespace-ttrpc"), text(2, "concourse")].concat();
    let request = [text(1, service), text(2, method), bytes(3, payload), bytes(5, &namespace)].concat();
    let mut message = Vec::with_capacity(10 + request.len());
    message.extend((request.len() as u32).to_be_bytes());
    message.extend(1u32.to_be_bytes());
    message.extend([1, 0]);
    message.extend(request);
    stream.write_all(&message)?;
    let mut head = [0; 10];
    stream.read_exact(&mut head)?;
    let mut answer = vec![0; u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize];
    stream.read_exact(&mut answer)?;
    if let Some(Field::Bytes(status)) = field(&answer, 1)
        && let Some(Field::Number(1..)) = field(status, 1)
    {
        match field(status, 2) {
            Some(Field::Bytes(why)) => bail!("{}", String::from_utf8_lossy(why)),
            _ => bail!("{method} failed"),
        }
    }
    Ok(match field(&answer, 2) {
        Some(Field::Bytes(payload)) => payload.to_vec(),
        _ => Vec::new(),
    })
}

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(mut n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
    out
}

fn number(tag: u64, n: u64) -> Vec<u8> {
    [varint(tag << 3), varint(n)].concat()
}

fn bytes(tag: u64, data: &[u8]) -> Vec<u8> {
    [varint(tag << 3 | 2), varint(data.len() as u64), data.to_vec()].concat()
}

fn text(tag: u64, data: &str) -> Vec<u8> {
    bytes(tag, data.as_bytes())
}

fn take_varint(data: &mut &[u8]) -> Option<u64> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = data.split_first()?;
        *data = rest;
        n |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

/// The first field with that tag.
fn field(mut data: &[u8], tag: u64) -> Option<Field<'_>> {
    while !data.is_empty() {
        let key = take_varint(&mut data)?;
        let value = match key & 7 {
            0 => Field::Number(take_varint(&mut data)?),
            2 => {
                let length = take_varint(&mut data)? as usize;
                let (head, tail) = data.split_at_checked(length)?;
                data = tail;
                Field::Bytes(head)
            }
            wide @ (1 | 5) => {
                data = data.get(if wide == 1 { 8 } else { 4 }..)?;
                continue;
            }
            _ => return None,
        };
        if key >> 3 == tag {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_there_and_back() {
        let message = [text(1, "id"), number(4, 3), number(9, 300), bytes(200, &[7; 200])].concat();
        assert!(matches!(field(&message, 4), Some(Field::Number(3))));
        assert!(matches!(field(&message, 9), Some(Field::Number(300))));
        assert!(matches!(field(&message, 200), Some(Field::Bytes(b)) if b.len() == 200));
        assert!(field(&message, 5).is_none());
        assert!(field(&message[..message.len() - 1], 200).is_none());
    }
}
