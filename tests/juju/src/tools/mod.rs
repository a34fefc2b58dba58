//! The hook tools, as the controller answers them.

mod action;
mod args;
mod config;
mod misc;
mod network;
mod ports;
mod relation;
mod secret;
mod secret_add;
mod state;
mod status;

pub use args::Args;
pub use ports::listed as ports_listed;
pub use secret::secret_id;
pub use secret_add::is_secret_key;

use crate::context::Context;
use crate::data::Data;
use crate::model::{Call, Model};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A call of a hook tool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ToolRequest {
    /// JUJU_CONTEXT_ID.
    pub context: String,
    /// The tool's name.
    pub tool: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Texts of the files that the arguments name; `-` is standard input.
    pub files: BTreeMap<String, String>,
}

/// What a hook tool answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ToolReply {
    /// Exit code.
    pub rc: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Write standard output to this file instead (`--output`).
    pub output: Option<String>,
    /// Fetch this blob to this path before answering (resource-get).
    pub download: Option<(String, String)>,
}

/// Why a tool fails: 2 for its use, 1 for everything else.
#[derive(Debug)]
pub struct ToolError {
    rc: i32,
    text: String,
}

/// Wrong use of a tool.
pub(crate) fn usage(text: impl Into<String>) -> ToolError {
    ToolError { rc: 2, text: text.into() }
}

/// A failure of a tool.
pub(crate) fn failure(text: impl Into<String>) -> ToolError {
    ToolError { rc: 1, text: text.into() }
}

/// What a tool has to say.
pub(crate) enum Output {
    /// Nothing.
    Silent,
    /// Data, in the format that was asked for.
    Show(Data),
    /// Data that JSON shows otherwise than the rest.
    Differ { json: Data, other: Data },
    /// A resource: its path, and where to fetch it.
    File { path: String, blob: String },
}

type Answer = Result<Output, ToolError>;

/// Tools that a unit of either flavour has.
pub const TOOLS: [&str; 36] = [
    "action-fail",
    "action-get",
    "action-log",
    "action-set",
    "application-version-set",
    "close-port",
    "config-get",
    "credential-get",
    "goal-state",
    "is-leader",
    "juju-log",
    "juju-reboot",
    "network-get",
    "open-port",
    "opened-ports",
    "relation-get",
    "relation-ids",
    "relation-list",
    "relation-model-get",
    "relation-set",
    "resource-get",
    "secret-add",
    "secret-get",
    "secret-grant",
    "secret-ids",
    "secret-info-get",
    "secret-remove",
    "secret-revoke",
    "secret-set",
    "state-delete",
    "state-get",
    "state-set",
    "status-get",
    "status-set",
    "storage-list",
    "unit-get",
];

/// Tools that only 3.6 has.
pub const TOOLS_36: [&str; 2] = ["leader-get", "leader-set"];

impl Model {
    /// Answers one call of a hook tool.
    pub fn call_tool(&mut self, request: &ToolRequest) -> ToolReply {
        let Some(mut context) = self.contexts.remove(&request.context) else {
            return reply_error(1, format!("bad request: unknown context id {:?}", request.context));
        };
        let reply = self.answer(&mut context, request);
        let call = Call { tool: request.tool.clone(), args: request.args.clone(), rc: reply.rc };
        context.calls.push(call);
        self.contexts.insert(context.id.clone(), context);
        reply
    }

    fn answer(&mut self, context: &mut Context, request: &ToolRequest) -> ToolReply {
        if let Some(text) = self.injected_fault(&context.unit, &request.tool) {
            return reply_error(1, text);
        }
        let known = TOOLS.contains(&request.tool.as_str())
            || (!self.is_40() && TOOLS_36.contains(&request.tool.as_str()));
        if !known {
            return reply_error(1, format!("bad request: bad command: unknown command {:?}", request.tool));
        }
        let args = match Args::parse(&request.tool, &request.args, &request.files) {
            Ok(args) => args,
            Err(error) => return reply_error(error.rc, error.text),
        };
        match self.run_tool(context, &request.tool, &args) {
            Err(error) => reply_error(error.rc, error.text),
            Ok(output) => match render(&args, output) {
                Ok(reply) => reply,
                Err(error) => reply_error(error.rc, error.text),
            },
        }
    }

    fn run_tool(&mut self, context: &mut Context, tool: &str, args: &Args) -> Answer {
        match tool {
            "config-get" => self.config_get(context, args),
            "is-leader" => self.is_leader_tool(context, args),
            "goal-state" => self.goal_state(context, args),
            "unit-get" => self.unit_get(context, args),
            "credential-get" => self.credential_get(context),
            "application-version-set" => self.application_version_set(context, args),
            "juju-log" => self.juju_log(context, args),
            "juju-reboot" => self.juju_reboot(context, args),
            "resource-get" => self.resource_get(context, args),
            "status-set" => self.status_set(context, args),
            "status-get" => self.status_get(context, args),
            "relation-ids" => self.relation_ids(context, args),
            "relation-list" => self.relation_list(context, args),
            "relation-get" => self.relation_get(context, args),
            "relation-set" => self.relation_set(context, args),
            "relation-model-get" => self.relation_model_get(context, args),
            "network-get" => self.network_get(context, args),
            "open-port" => self.open_port(context, args),
            "close-port" => self.close_port(context, args),
            "opened-ports" => self.opened_ports(context, args),
            "state-get" => self.state_get(context, args),
            "state-set" => self.state_set(context, args),
            "state-delete" => self.state_delete(context, args),
            "secret-add" => self.secret_add(context, args),
            "secret-set" => self.secret_set(context, args),
            "secret-get" => self.secret_get(context, args),
            "secret-info-get" => self.secret_info_get(context, args),
            "secret-ids" => self.secret_ids(context),
            "secret-grant" => self.secret_grant(context, args),
            "secret-revoke" => self.secret_revoke(context, args),
            "secret-remove" => self.secret_remove(context, args),
            "action-get" => self.action_get(context, args),
            "action-set" => self.action_set(context, args),
            "action-fail" => self.action_fail(context, args),
            "action-log" => self.action_log(context, args),
            "leader-get" => self.leader_get(context, args),
            "leader-set" => self.leader_set(context, args),
            "storage-list" => Ok(Output::Show(Data::List(Vec::new()))),
            _ => Ok(Output::Silent),
        }
    }

    fn injected_fault(&mut self, unit: &str, tool: &str) -> Option<String> {
        let fault = self.faults.iter_mut().find(|f| f.unit == unit && f.tool == tool && f.times > 0)?;
        fault.times -= 1;
        Some(fault.text.clone())
    }
}

fn render(args: &Args, output: Output) -> Result<ToolReply, ToolError> {
    let format = args.format()?;
    let mut reply = ToolReply { output: args.value("output"), ..ToolReply::default() };
    match output {
        Output::Silent => {}
        Output::Show(data) => reply.stdout = shown(&data, format),
        Output::Differ { json, .. } if format == "json" => reply.stdout = shown(&json, format),
        Output::Differ { other, .. } => reply.stdout = shown(&other, format),
        Output::File { path, blob } => {
            reply.stdout = path.clone();
            reply.download = Some((blob, path));
        }
    }
    if args.has_deprecated_format() {
        reply.stderr = format!("--format flag deprecated for command {:?}", args.tool);
    }
    Ok(reply)
}

fn shown(data: &Data, format: &str) -> String {
    match (format, data) {
        ("json", data) => format!("{}\n", data.json()),
        ("yaml", Data::Null) => String::new(),
        ("yaml", data) => data.yaml(),
        (_, data) => data.smart(),
    }
}

/// An error as the tools print it.
pub fn reply_error(rc: i32, text: String) -> ToolReply {
    ToolReply { rc, stderr: format!("ERROR {text}\n"), ..ToolReply::default() }
}
