//! Options in the manner of the real program: each has a flag and an environment variable
//! (`--tsa-host`, `CONCOURSE_TSA_HOST`); unknown variables are ignored, unknown flags are errors.

use crate::time::parse_duration;
use anyhow::{Result, anyhow, bail};
use std::collections::HashMap;
use std::time::Duration;

/// What kind of value an option takes.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// One value; the last one given wins.
    One,
    /// Repeatable as a flag; as a variable a comma list.
    Many,
    /// On or off.
    Switch,
}

/// One option of a subcommand.
pub struct Opt {
    /// The long flag without its dashes; the variable's name follows from it.
    pub name: &'static str,
    /// The short flag, if there is one.
    pub short: Option<char>,
    /// What it takes.
    pub kind: Kind,
    /// Its value when nothing is said.
    pub default: Option<&'static str>,
}

/// An option with one value.
pub const fn one(name: &'static str) -> Opt {
    Opt { name, short: None, kind: Kind::One, default: None }
}

/// An option with one value and a default.
pub const fn dft(name: &'static str, default: &'static str) -> Opt {
    Opt { name, short: None, kind: Kind::One, default: Some(default) }
}

/// A repeatable option.
pub const fn many(name: &'static str) -> Opt {
    Opt { name, short: None, kind: Kind::Many, default: None }
}

/// A switch.
pub const fn switch(name: &'static str) -> Opt {
    Opt { name, short: None, kind: Kind::Switch, default: None }
}

/// What was said, and by whom it may be asked.
pub struct Values {
    said: HashMap<&'static str, Vec<String>>,
    /// Arguments that are no options (after `--`, or the words of a command).
    pub rest: Vec<String>,
}

/// Reads flags, then variables (`CONCOURSE_…`), then defaults.
pub fn parse(table: &[&[Opt]], args: &[String], env: &dyn Fn(&str) -> Option<String>) -> Result<Values> {
    let all: Vec<&Opt> = table.iter().flat_map(|t| t.iter()).collect();
    let mut said: HashMap<&'static str, Vec<String>> = HashMap::new();
    let mut rest = Vec::new();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            rest.extend(words.cloned());
            break;
        }
        let (opt, inline) = if let Some(long) = word.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
            let opt = all.iter().find(|o| o.name == name);
            (opt.ok_or_else(|| anyhow!("unknown flag `{name}'"))?, value.map(str::to_owned))
        } else if let Some(short) = word.strip_prefix('-').filter(|s| !s.is_empty()) {
            let mut chars = short.chars();
            let letter = chars.next();
            let opt = all.iter().find(|o| o.short.is_some() && o.short == letter);
            let value = chars.as_str();
            let value = value.strip_prefix('=').unwrap_or(value);
            (
                opt.ok_or_else(|| anyhow!("unknown flag `{short}'"))?,
                (!value.is_empty()).then(|| value.to_owned()),
            )
        } else {
            rest.push(word.clone());
            continue;
        };
        let value = match (opt.kind, inline) {
            (Kind::Switch, v) => v.unwrap_or_else(|| "true".into()),
            (_, Some(v)) => v,
            (_, None) => {
                words.next().cloned().ok_or_else(|| anyhow!("expected argument for flag `--{}'", opt.name))?
            }
        };
        let list = said.entry(opt.name).or_default();
        if opt.kind != Kind::Many {
            list.clear();
        }
        list.push(value);
    }
    for opt in all {
        if said.contains_key(opt.name) {
            continue;
        }
        let value =
            env(&variable(opt.name)).filter(|v| !v.is_empty()).or_else(|| opt.default.map(str::to_owned));
        if let Some(value) = value {
            let list = match opt.kind {
                Kind::Many => value.split(',').map(str::to_owned).collect(),
                _ => vec![value],
            };
            said.insert(opt.name, list);
        }
    }
    Ok(Values { said, rest })
}

/// The variable that belongs to an option.
pub fn variable(name: &str) -> String {
    format!("CONCOURSE_{}", name.replace('-', "_").to_uppercase())
}

impl Values {
    /// The value of an option, if any.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.said.get(name).and_then(|v| v.last()).map(String::as_str)
    }

    /// The value, or an empty text.
    pub fn text(&self, name: &str) -> String {
        self.get(name).unwrap_or_default().to_owned()
    }

    /// All values of a repeatable option, empty ones left out.
    pub fn list(&self, name: &str) -> Vec<String> {
        self.said.get(name).map(|v| v.iter().filter(|s| !s.is_empty()).cloned().collect()).unwrap_or_default()
    }

    /// A value that must be there.
    pub fn required(&self, name: &str) -> Result<&str> {
        self.get(name).ok_or_else(|| anyhow!("the required flag `--{name}' was not specified"))
    }

    /// A number of any integer type.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>> {
        self.get(name)
            .map(|v| {
                v.parse().map_err(|_| invalid(name, &format!("strconv: parsing \"{v}\": invalid syntax")))
            })
            .transpose()
    }

    /// A duration in Go's form.
    pub fn duration(&self, name: &str) -> Result<Duration> {
        let text = self.get(name).unwrap_or("0");
        parse_duration(text).ok_or_else(|| invalid(name, &format!("time: invalid duration \"{text}\"")))
    }

    /// Whether a switch is on.
    pub fn on(&self, name: &str) -> Result<bool> {
        match self.get(name) {
            None => Ok(false),
            Some("1" | "t" | "T" | "true" | "True" | "TRUE") => Ok(true),
            Some("0" | "f" | "F" | "false" | "False" | "FALSE") => Ok(false),
            Some(v) => Err(invalid(name, &format!("strconv.ParseBool: parsing \"{v}\": invalid syntax"))),
        }
    }

    /// Refuses a value that isn't one of the allowed words.
    pub fn choice(&self, name: &str, allowed: &[&str]) -> Result<()> {
        for value in self.list(name) {
            if !allowed.contains(&value.as_str()) {
                let (last, others) = allowed.split_last().map_or(("", Vec::new()), |(l, o)| (*l, o.to_vec()));
                bail!(
                    "Invalid value `{value}' for option `--{name}'. Allowed values are: {} or {last}",
                    others.join(", ")
                );
            }
        }
        Ok(())
    }
}

/// The error of a value that can't be read.
pub fn invalid(name: &str, why: &str) -> anyhow::Error {
    anyhow!("invalid argument for flag `--{name}': {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Opt] = &[one("name"), many("tag"), switch("ephemeral"), dft("bind-port", "7777")];

    fn read(args: &[&str], env: &[(&str, &str)]) -> Result<Values> {
        let args: Vec<String> = args.iter().map(|s| s.to_string()).collect();
        let env: HashMap<String, String> = env.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        parse(&[TABLE], &args, &|k| env.get(k).cloned())
    }

    #[test]
    fn a_flag_keeps_commas_and_a_variable_splits_at_them() {
        let v = read(&["--tag", "gpu-devices=0,1", "--tag=b"], &[]).unwrap();
        assert_eq!(v.list("tag"), ["gpu-devices=0,1", "b"]);
        let v = read(&[], &[("CONCOURSE_TAG", "gpu-devices=0,1,,b")]).unwrap();
        assert_eq!(v.list("tag"), ["gpu-devices=0", "1", "b"]);
    }

    #[test]
    fn flags_beat_variables_and_variables_beat_defaults() {
        let env = [("CONCOURSE_NAME", "env"), ("CONCOURSE_BIND_PORT", "1"), ("CONCOURSE_NO_SUCH_THING", "x")];
        let v = read(&["--name", "flag"], &env).unwrap();
        assert_eq!((v.get("name"), v.get("bind-port")), (Some("flag"), Some("1")));
        assert_eq!(read(&[], &[]).unwrap().get("bind-port"), Some("7777"));
    }

    #[test]
    fn what_is_refused() {
        assert!(read(&["--nope"], &[]).is_err());
        assert!(read(&["--name"], &[]).is_err());
        assert!(read(&[], &[]).unwrap().required("name").is_err());
        assert!(read(&[], &[("CONCOURSE_EPHEMERAL", "yes")]).unwrap().on("ephemeral").is_err());
        assert!(read(&["--ephemeral"], &[]).unwrap().on("ephemeral").unwrap());
    }
}
