//! One program for all parts: `juju-controller`, `jujud`, `juju`, `juju-exec` and every hook tool. The name
//! by which it is called decides, or the first argument.

use anyhow::{Context as _, Result, bail};
use emulated_juju::tools::{TOOLS, TOOLS_36};
use emulated_juju::{agent, client, daemon};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let own = args.remove(0);
    let mut name =
        Path::new(&own).file_name().map_or(own.clone(), |name| name.to_string_lossy().into_owned());
    if name.starts_with("emulated-juju") || name == "jujuc" {
        if args.is_empty() {
            eprintln!("Usage: emulated-juju juju-controller|jujud|juju|juju-exec|TOOL …");
            return ExitCode::from(2);
        }
        name = args.remove(0);
    }
    match run(&name, args) {
        Ok(rc) => ExitCode::from((rc & 0xff) as u8),
        Err(error) => {
            eprintln!("ERROR {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str, args: Vec<String>) -> Result<i32> {
    match name {
        "juju" => client::main(args),
        "juju-exec" | "juju-run" => agent::juju_exec::main(args),
        "juju-controller" => controller(&Flags::parse(args)?),
        "jujud" => jujud(&Flags::parse(args)?),
        tool if TOOLS.contains(&tool) || TOOLS_36.contains(&tool) => Ok(agent::jujuc::main(tool, args)),
        other => bail!("unknown program {other:?}"),
    }
}

/// `--name value` pairs.
struct Flags(Vec<(String, String)>);

impl Flags {
    fn parse(args: Vec<String>) -> Result<Flags> {
        let mut pairs = Vec::new();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let Some(name) = arg.strip_prefix("--") else { bail!("unexpected argument {arg:?}") };
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name.to_string(), value.to_string()),
                None => (name.to_string(), args.next().with_context(|| format!("{arg} needs a value"))?),
            };
            pairs.push((name, value));
        }
        Ok(Flags(pairs))
    }

    fn get(&self, name: &str) -> Option<String> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.clone())
    }
}

fn controller(flags: &Flags) -> Result<i32> {
    let retry = flags.get("retry-base").or_else(|| std::env::var("JUJU_EMULATED_RETRY").ok());
    let retry = retry
        .map_or(Ok(5.0), |seconds| seconds.parse::<f64>())
        .context("--retry-base is a number of seconds")?;
    let version = flags.get("juju-version").unwrap_or_else(|| "4.0.15.1".into());
    daemon::main(&daemon::Settings {
        socket: flags.get("socket").unwrap_or_else(|| client::DEFAULT_SOCKET.into()).into(),
        listen: flags.get("listen").unwrap_or_else(|| "127.0.0.1:17070".into()),
        state_dir: flags.get("state-dir").context("--state-dir is needed")?.into(),
        version,
        retry_base: Duration::from_secs_f64(retry),
        model_name: flags.get("model").unwrap_or_else(|| "test".into()),
    })?;
    Ok(0)
}

fn jujud(flags: &Flags) -> Result<i32> {
    agent::jujud::main(&agent::jujud::Settings {
        controller: flags.get("controller").context("--controller HOST:PORT is needed")?,
        machine: flags.get("machine").context("--machine N is needed")?,
        root: flags.get("root").unwrap_or_else(|| "/".into()).into(),
    })?;
    Ok(0)
}
