//! The verbs of the client, as the controller carries them out.

mod config;
mod deploy;
mod dump;
mod emulate;
mod options;
mod relate;
mod results;
mod run;
mod secrets;
mod show;
mod status;
mod status_json;
mod units;

use crate::shared::Shared;
use crate::wire::{Command, Printed};
use options::Options;

/// Why a command fails.
#[derive(Debug)]
pub(crate) struct CliError {
    rc: i32,
    text: String,
    /// Printed on standard output before the error (some 4.0 commands print `{}`).
    out: &'static str,
}

/// A failure, exit code 1.
pub(crate) fn failure(text: impl Into<String>) -> CliError {
    CliError { rc: 1, text: text.into(), out: "" }
}

/// Wrong use, exit code 2.
pub(crate) fn usage(text: impl Into<String>) -> CliError {
    CliError { rc: 2, text: text.into(), out: "" }
}

impl From<anyhow::Error> for CliError {
    fn from(error: anyhow::Error) -> CliError {
        failure(format!("{error:#}"))
    }
}

type Done = Result<i32, CliError>;

/// Where a command prints.
pub(crate) struct Out<'a> {
    print: &'a mut dyn FnMut(Printed),
}

impl Out<'_> {
    /// A line on standard output.
    pub fn line(&mut self, text: impl AsRef<str>) {
        (self.print)(Printed::Out(format!("{}\n", text.as_ref())));
    }

    /// Text on standard output.
    pub fn text(&mut self, text: impl Into<String>) {
        (self.print)(Printed::Out(text.into()));
    }

    /// A line on standard error.
    pub fn note(&mut self, text: impl AsRef<str>) {
        (self.print)(Printed::Err(format!("{}\n", text.as_ref())));
    }
}

/// Carries out one command line; returns the exit code.
pub fn run(shared: &Shared, command: &Command, print: &mut dyn FnMut(Printed)) -> i32 {
    let mut out = Out { print };
    let Some((verb, args)) = command.argv.split_first() else {
        out.note("Usage: juju [help] <command>");
        return 2;
    };
    let done = Options::parse(verb, args).and_then(|options| {
        let call = Call { shared, command, options };
        call.run(verb, &mut out)
    });
    shared.kick();
    match done {
        Ok(rc) => rc,
        Err(error) => {
            out.text(error.out);
            out.note(format!("ERROR {}", error.text));
            error.rc
        }
    }
}

/// A command line being carried out.
pub(crate) struct Call<'a> {
    /// The controller.
    pub shared: &'a Shared,
    /// As it came.
    pub command: &'a Command,
    /// Taken apart.
    pub options: Options,
}

impl Call<'_> {
    fn run(&self, verb: &str, out: &mut Out) -> Done {
        match verb {
            "deploy" => self.deploy(out),
            "refresh" => self.refresh(out),
            "attach-resource" => self.attach_resource(),
            "resources" => self.resources(out),
            "add-machine" => self.add_machine(out),
            "add-unit" => self.add_unit(),
            "remove-unit" => self.remove_unit(out),
            "remove-application" => self.remove_application(out),
            "expose" => self.expose(true),
            "unexpose" => self.expose(false),
            "trust" => self.trust(),
            "integrate" | "relate" | "add-relation" => self.integrate(),
            "remove-relation" => self.remove_relation(),
            "config" => self.config(out),
            "model-config" => self.model_config(out),
            "status" => self.status(out),
            "show-unit" => self.show_unit(out),
            "debug-log" => self.debug_log(out),
            "machines" => self.machines(out),
            "actions" => self.actions(out),
            "run" => self.run_action(out),
            "show-task" => self.show_task(out),
            "cancel-task" => self.cancel_task(),
            "exec" => self.exec(out),
            "resolve" | "resolved" => self.resolve(),
            "add-secret" => self.add_secret(out),
            "update-secret" => self.update_secret(),
            "remove-secret" => self.remove_secret(),
            "grant-secret" => self.grant_secret(true),
            "revoke-secret" => self.grant_secret(false),
            "secrets" => self.secrets(out),
            "show-secret" => self.show_secret(out),
            "emulate" => self.emulate(out),
            "version" => {
                out.line(&self.shared.lock().version);
                Ok(0)
            }
            other => Err(usage(format!("juju: {other:?} is not a juju command. See \"juju --help\"."))),
        }
    }

    /// A path as the client means it.
    pub fn path(&self, name: &str) -> std::path::PathBuf {
        std::path::Path::new(&self.command.cwd).join(name)
    }

    /// The word at `place`, or an error that says what is missing.
    pub fn word(&self, place: usize, missing: &str) -> Result<&str, CliError> {
        self.options.words.get(place).map(String::as_str).ok_or_else(|| usage(missing))
    }
}
