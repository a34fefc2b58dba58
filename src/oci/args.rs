//! The command line, read as runc reads it (PURE). It is only read: what is passed on is what came.
//!
//! runc up to 1.4 parses with urfave/cli v1 over Go's `flag`, later ones with v3. They agree on what works in both:
//! one dash or two, `--name value` and `--name=value`, the last one wins, `--` ends the flags, a value may look like
//! anything. v3 also takes global flags behind the subcommand. What neither takes is runc's to refuse.
//!
//! In two things this reader is v1 where v3 is not: v3 takes white space off both ends of an argument that is no flag's
//! separate value (` --bundle=/b` is a flag), and a lone `-` ends its reading, with all that follows left out. containerd
//! writes neither.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What is asked of the runtime, as far as the wrapper has to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The subcommand.
    pub verb: Verb,
    /// `--log`: where runc tells of failures.
    pub log: Option<OsString>,
    /// `--log-format json`.
    pub json: bool,
    /// `--root`: where runc keeps the states of containers.
    pub root: Option<OsString>,
}

/// The subcommands that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verb {
    /// Makes a container.
    Create {
        /// Its bundle; `None`: the working directory.
        bundle: Option<OsString>,
    },
    /// Starts a process in a container.
    Exec {
        /// The file that describes the process; `None`: the arguments do.
        process: Option<OsString>,
        /// The container.
        id: Option<OsString>,
    },
    /// Any other, help, and what runc will refuse.
    #[default]
    Other,
}

const GLOBAL_VALUES: [&str; 5] = ["log", "log-format", "root", "criu", "rootless"];
const GLOBAL_SWITCHES: [&str; 2] = ["debug", "systemd-cgroup"];
const CREATE_VALUES: [&str; 6] =
    ["bundle", "b", "console-socket", "pidfd-socket", "pid-file", "preserve-fds"];
const EXEC_VALUES: [&str; 17] = [
    "console-socket",
    "pidfd-socket",
    "cwd",
    "env",
    "e",
    "user",
    "u",
    "additional-gids",
    "g",
    "process",
    "p",
    "pid-file",
    "process-label",
    "apparmor",
    "cap",
    "c",
    "preserve-fds",
];
const HELP: [&str; 4] = ["help", "h", "version", "v"];
/// Every subcommand that a runc has had: after a flag that is new to us, they tell its value from the subcommand.
const VERBS: [&str; 18] = [
    "checkpoint",
    "create",
    "delete",
    "events",
    "exec",
    "features",
    "init",
    "kill",
    "list",
    "pause",
    "ps",
    "restore",
    "resume",
    "run",
    "spec",
    "start",
    "state",
    "update",
];

impl Call {
    /// Reads the arguments behind the program's name. Never fails: what can't be read is [`Verb::Other`].
    pub fn parse(args: &[OsString]) -> Self {
        let mut call = Call::default();
        let Some((verb, rest)) = call.globals(args) else { return call };
        match verb {
            b"create" => call.create(rest),
            b"exec" => call.exec(rest),
            _ => {}
        }
        call
    }

    fn globals<'a>(&mut self, mut args: &'a [OsString]) -> Option<(&'a [u8], &'a [OsString])> {
        let mut new_flag = false;
        loop {
            let (arg, rest) = args.split_first()?;
            args = rest;
            match token(arg.as_bytes()) {
                Token::End => return args.split_first().map(|(verb, rest)| (verb.as_bytes(), rest)),
                Token::Word(word) if new_flag && !VERBS.iter().any(|v| v.as_bytes() == word) => {
                    new_flag = false
                }
                Token::Word(word) => return Some((word, args)),
                Token::Flag(name, _) if is(name, &HELP) => return None,
                Token::Flag(name, value) if is(name, &GLOBAL_VALUES) => {
                    let value = value.map(<[u8]>::to_vec).or_else(|| next(&mut args))?;
                    self.global(name, value);
                }
                Token::Flag(name, _) if is(name, &GLOBAL_SWITCHES) => {}
                Token::Flag(_, value) => new_flag = value.is_none(),
            }
        }
    }

    fn global(&mut self, name: &[u8], value: Vec<u8>) {
        match name {
            b"log" => self.log = Some(OsString::from_vec(value)).filter(|v| !v.is_empty()),
            b"log-format" => self.json = value == b"json",
            b"root" => self.root = Some(OsString::from_vec(value)),
            _ => {}
        }
    }

    /// Flags may stand anywhere up to `--`.
    fn create(&mut self, mut args: &[OsString]) {
        let mut bundle = None;
        while let Some((arg, rest)) = args.split_first() {
            args = rest;
            match token(arg.as_bytes()) {
                Token::End => break,
                Token::Flag(name, _) if is(name, &HELP[..2]) => return,
                Token::Flag(name, value) if is(name, &CREATE_VALUES) || is(name, &GLOBAL_VALUES) => {
                    let Some(value) = value.map(<[u8]>::to_vec).or_else(|| next(&mut args)) else { return };
                    match name {
                        b"bundle" | b"b" => bundle = Some(OsString::from_vec(value)),
                        _ => self.global(name, value),
                    }
                }
                Token::Flag(..) | Token::Word(_) => {}
            }
        }
        self.verb = Verb::Create { bundle: bundle.filter(|b| !b.is_empty()) };
    }

    /// Flags end at the container's name: what follows is the process's.
    fn exec(&mut self, mut args: &[OsString]) {
        let (mut process, mut id) = (None, None);
        while let Some((arg, rest)) = args.split_first() {
            args = rest;
            match token(arg.as_bytes()) {
                Token::End => {
                    id = args.first().cloned();
                    break;
                }
                Token::Word(_) => {
                    id = Some(arg.clone());
                    break;
                }
                Token::Flag(name, _) if is(name, &HELP[..2]) => return,
                // `--cgroup` came with runc 1.1.
                Token::Flag(name, value)
                    if is(name, &EXEC_VALUES) || is(name, &GLOBAL_VALUES) || name == b"cgroup" =>
                {
                    let Some(value) = value.map(<[u8]>::to_vec).or_else(|| next(&mut args)) else { return };
                    match name {
                        b"process" | b"p" => process = Some(OsString::from_vec(value)),
                        _ => self.global(name, value),
                    }
                }
                Token::Flag(..) => {}
            }
        }
        self.verb = Verb::Exec { process: process.filter(|p| !p.is_empty()), id };
    }
}

enum Token<'a> {
    /// `--`
    End,
    /// A flag's name, and its value if that stands behind `=`.
    Flag(&'a [u8], Option<&'a [u8]>),
    /// Anything else, `-` included.
    Word(&'a [u8]),
}

fn token(arg: &[u8]) -> Token<'_> {
    let name = match arg {
        b"--" => return Token::End,
        [b'-', b'-', name @ ..] | [b'-', name @ ..] if !name.is_empty() => name,
        _ => return Token::Word(arg),
    };
    match name.iter().position(|b| *b == b'=') {
        Some(at) => Token::Flag(&name[..at], Some(&name[at + 1..])),
        None => Token::Flag(name, None),
    }
}

fn is(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|n| n.as_bytes() == name)
}

fn next(args: &mut &[OsString]) -> Option<Vec<u8>> {
    let (value, rest) = args.split_first()?;
    *args = rest;
    Some(value.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &str) -> Call {
        Call::parse(&line.split_whitespace().map(|w| OsString::from(w.replace("''", ""))).collect::<Vec<_>>())
    }

    #[test]
    fn create_in_every_form() {
        for (line, bundle) in [
            ("create --bundle /b id", Some("/b")),
            ("create --bundle=/b id", Some("/b")),
            ("create -bundle /b id", Some("/b")),
            ("create -bundle=/b id", Some("/b")),
            ("create -b /b id", Some("/b")),
            ("create -b=/b id", Some("/b")),
            ("create --b /b id", Some("/b")),
            ("create id --bundle /b", Some("/b")),
            ("create --bundle /b -- id", Some("/b")),
            ("create -- id", None),
            ("create id", None),
            ("create --bundle= id", None),
            ("create --bundle '' id", None),
            ("create --bundle create create", Some("create")),
            ("create --bundle a=b=c id", Some("a=b=c")),
            ("create --bundle --no-pivot id", Some("--no-pivot")),
            ("create --bundle -- id", Some("--")),
            ("create --bundle /a --bundle /b id", Some("/b")),
            ("create --pid-file --bundle --bundle /b id", Some("/b")),
            ("create --pid-file=--bundle id", None),
            ("create --no-new-keyring --bundle /b --preserve-fds 3 id", Some("/b")),
            ("create --preserve-fds=3 --no-pivot=true -b /b id", Some("/b")),
            ("create --some-new-flag --bundle /b id", Some("/b")),
            (
                "--root /r --log /l --log-format json create --bundle /b --pid-file /p --no-new-keyring id",
                Some("/b"),
            ),
            ("-root /r -log=/l create -b /b id", Some("/b")),
            ("--debug --systemd-cgroup=false --rootless true --criu exec create -b /b id", Some("/b")),
            ("--root create create -b /b id", Some("/b")),
            ("--log exec create -b /b id", Some("/b")),
            ("-- create -b /b id", Some("/b")),
            ("create --log /l --bundle /b id", Some("/b")),
            ("--new value create -b /b id", Some("/b")),
            ("--new create -b /b id", Some("/b")),
            ("--new=value create -b /b id", Some("/b")),
        ] {
            assert_eq!(call(line).verb, Verb::Create { bundle: bundle.map(OsString::from) }, "{line}");
        }
    }

    #[test]
    fn exec_in_every_form() {
        for (line, process, id) in [
            ("exec --process /p --detach --pid-file /f id", Some("/p"), Some("id")),
            ("exec -p /p id", Some("/p"), Some("id")),
            ("exec -p=/p -d id", Some("/p"), Some("id")),
            ("exec --tty -e A=b -u 1:2 -g 4 id sh -c --process=/x", None, Some("id")),
            ("exec --cgroup x --process /p -- id", Some("/p"), Some("id")),
            ("exec id --process /p", None, Some("id")),
            ("exec create ls", None, Some("create")),
        ] {
            let wanted = Verb::Exec { process: process.map(OsString::from), id: id.map(OsString::from) };
            assert_eq!(call(line).verb, wanted, "{line}");
        }
    }

    #[test]
    fn everything_else_is_for_runc() {
        for line in [
            "",
            "--version",
            "-v",
            "--help create",
            "create --help",
            "create -b",
            "create --bundle",
            "exec --process",
            "exec -h",
            "start id",
            "start create",
            "--root create start id",
            "delete --force exec",
            "ps --format json create",
            "- create -b /b id",
            "foo create -b /b id",
            "run -b /b id",
            "--log",
            "--",
        ] {
            assert_eq!(call(line).verb, Verb::Other, "{line}");
        }
    }

    #[test]
    fn globals_are_seen_where_they_stand() {
        let one = call("--root /r --log /l --log-format json create --bundle /b id");
        assert_eq!((one.log, one.json, one.root), (Some("/l".into()), true, Some("/r".into())));
        let later = call("create --log /l --log-format=json id");
        assert_eq!((later.log, later.json, later.root), (Some("/l".into()), true, None));
        assert!(!call("--log-format json --log-format text create id").json);
        assert!(!call("exec id --log-format json").json);
    }

    #[test]
    fn other_bytes_are_bytes() {
        let bundle = OsString::from_vec(b"/b/\xff\xfe".to_vec());
        let args = ["create".into(), "--bundle".into(), bundle.clone(), "id".into()];
        assert_eq!(Call::parse(&args).verb, Verb::Create { bundle: Some(bundle.clone()) });
        let joined = OsString::from_vec(b"-b=/b/\xff\xfe".to_vec());
        assert_eq!(
            Call::parse(&["create".into(), joined, "id".into()]).verb,
            Verb::Create { bundle: Some(bundle) }
        );
    }
}
