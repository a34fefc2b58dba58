//! Makes one task's container and takes it away again.

use super::bundle::{Container, max_id};
use super::config::Config;
use super::containerd::ctr;
use super::shim::{self, Exec, State};
use super::volumes::Volumes;
use super::{image, tasklog};
use crate::protocol::Task;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

/// Where one task's things lie.
pub struct Place<'a> {
    /// The task's own folder under the work dir.
    pub dir: PathBuf,
    /// The worker's configuration.
    pub config: &'a Config,
    /// The worker's volumes.
    pub volumes: &'a Volumes,
}

impl Place<'_> {
    /// The file with the process's output.
    pub fn log(&self) -> PathBuf {
        self.dir.join("output.log")
    }

    /// The container and process that were made.
    pub fn made(&self) -> Result<(String, String)> {
        let made: Value = serde_json::from_slice(&fs::read(self.dir.join("made"))?)?;
        let text = |key: &str| made[key].as_str().map(str::to_owned).context("made");
        Ok((text("handle")?, text("exec")?))
    }

    /// What the process does. The first look at its end is kept, since the shim is then told to let it go.
    pub fn state(&self) -> Result<State> {
        let kept = self.dir.join("exit-code");
        if let Some(code) = fs::read_to_string(&kept).ok().and_then(|t| t.parse().ok()) {
            return Ok(State::Stopped(code));
        }
        let (handle, exec) = self.made()?;
        let state = shim::state(&handle, &exec)?;
        if let State::Stopped(code) = state {
            write(&kept, &code.to_string())?;
            let _ = shim::delete(&handle, &exec);
        }
        Ok(state)
    }

    /// Makes volumes and container, and starts the process.
    pub fn start(&self, task: &Task) -> Result<()> {
        let privileged = task.privileged && self.config.privileged_mode == "full";
        let task = &Task { privileged, ..task.clone() };
        let (handle, hex) = (uuid()?, uuid()?[..8].to_owned());
        let image = image::import(self.volumes, task)?;
        let names = [uuid()?, uuid()?, uuid()?];
        // Written first, so that whatever happens, it can all be found and removed.
        fs::write(self.dir.join("plan.json"), json!({"handle": handle, "volumes": names}).to_string())?;
        let root = self.volumes.copy_of(&names[0], &image)?;
        let scratch = self.owned(self.volumes.create(&names[1])?, privileged)?;
        let build = match task.step.as_str() {
            "check" => None,
            _ => Some(self.owned(self.volumes.create(&names[2])?, privileged)?),
        };
        let network = self.network(&handle)?;
        let container = Container {
            task,
            handle: &handle,
            rootfs: &root.join("rootfs"),
            init: &self.config.init,
            scratch: &scratch,
            build: build.as_deref(),
            network: &network,
            hex: &hex,
            privileged,
            devices: &self.config.allowed_devices,
        };
        let spec = self.dir.join("config.json");
        fs::write(&spec, container.spec().to_string())?;
        ctr(&["containers", "create", "--config", spec.to_str().context("path")?, &handle])
            .context("new container")?;
        ctr(&["tasks", "start", "--detach", "--null-io", &handle]).context("new task")?;
        let exec = container.exec_id();
        let terminal = container.terminal();
        let output = tasklog::uri(&self.log(), terminal);
        shim::exec(&Exec {
            container: &handle,
            id: exec,
            terminal,
            output: &output,
            process: &container.process(),
        })?;
        fs::write(self.dir.join("made"), json!({"handle": handle, "exec": exec}).to_string())?;
        Ok(())
    }

    /// Removes container and volumes, if there are any.
    pub fn clear(&self) {
        let Ok(plan) = fs::read(self.dir.join("plan.json")) else { return };
        let plan: Value = serde_json::from_slice(&plan).unwrap_or_default();
        if let Some(handle) = plan["handle"].as_str() {
            let _ = ctr(&["tasks", "ps", handle]);
            let _ = ctr(&["tasks", "delete", "--force", handle]);
            let _ = ctr(&["containers", "rm", handle]);
            let _ = fs::remove_dir_all(self.config.work_dir.join("networkmounts").join(handle));
        }
        for volume in plan["volumes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            self.volumes.destroy(volume);
        }
        for file in ["plan.json", "made", "exit-code", "output.log", "output.complete"] {
            let _ = fs::remove_file(self.dir.join(file));
        }
    }

    /// A volume that the container's root may write to.
    fn owned(&self, path: PathBuf, privileged: bool) -> Result<PathBuf> {
        if !privileged {
            chown(&path, Some(max_id()), Some(max_id()))?;
        }
        Ok(path)
    }

    /// The files that tell a container who and where it is. It has no network of its own beyond the loopback.
    fn network(&self, handle: &str) -> Result<PathBuf> {
        let dir = self.config.work_dir.join("networkmounts").join(handle);
        fs::create_dir_all(&dir)?;
        let servers = match self.config.dns_servers.as_slice() {
            [] => fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
            list => list.iter().map(|s| format!("nameserver {s}\n")).collect(),
        };
        write(&dir.join("hosts"), &format!("127.0.0.1 localhost\n127.0.0.1 {handle}\n"))?;
        write(&dir.join("hostname"), &format!("{handle}\n"))?;
        write(&dir.join("resolv.conf"), &servers)?;
        Ok(dir)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// A name as the real one gives to containers and volumes.
fn uuid() -> Result<String> {
    let mut b = [0u8; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut b)?;
    (b[6], b[8]) = (b[6] & 0x0f | 0x40, b[8] & 0x3f | 0x80);
    let hex: String = b.iter().map(|b| format!("{b:02x}")).collect();
    if hex.len() != 32 {
        bail!("uuid");
    }
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}
