//! The environment of a hook, exactly as the agent of a machine sets it.

use crate::context::Context;
use crate::model::{HookKind, Model, Operation, tag_of};

const PROXIES: [(&str, &str); 4] =
    [("HTTP", "http-proxy"), ("HTTPS", "https-proxy"), ("FTP", "ftp-proxy"), ("NO", "no-proxy")];
const NO_PROXY: &str = "127.0.0.1,localhost,::1";
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Model {
    /// The whole environment of a context.
    pub fn environment(&self, context: &Context) -> Vec<(String, String)> {
        let mut env: Vec<(String, String)> = Vec::new();
        let unit = &context.unit;
        let tag = tag_of(unit);
        let data_dir = self.data_dir(unit);
        let charm_dir = format!("{data_dir}/agents/{tag}/charm");
        let known = self.units.get(unit);
        let mut set = |key: &str, value: &str| env.push((key.into(), value.into()));
        set("APT_LISTCHANGES_FRONTEND", "none");
        set("DEBIAN_FRONTEND", "noninteractive");
        set("LANG", "C.UTF-8");
        set("TERM", "tmux-256color");
        set("PATH", &format!("{data_dir}/tools/{tag}:{SYSTEM_PATH}"));
        set("CHARM_DIR", &charm_dir);
        set("JUJU_CHARM_DIR", &charm_dir);
        set("CLOUD_API_VERSION", "");
        set("JUJU_AGENT_SOCKET_ADDRESS", &format!("{data_dir}/agents/{tag}/agent.socket"));
        set("JUJU_AGENT_SOCKET_NETWORK", "unix");
        set("JUJU_API_ADDRESSES", &self.api_address);
        set("JUJU_AVAILABILITY_ZONE", "");
        set("JUJU_CONTEXT_ID", &context.id);
        set("JUJU_MACHINE_ID", known.map_or("", |unit| &unit.machine));
        set("JUJU_MODEL_NAME", &self.name);
        set("JUJU_MODEL_UUID", &self.uuid);
        set("JUJU_PRINCIPAL_UNIT", known.map_or("", |unit| &unit.principal));
        set("JUJU_UNIT_NAME", unit);
        set("JUJU_VERSION", &self.version);
        for (name, setting) in PROXIES {
            let fallback = if name == "NO" { NO_PROXY } else { "" };
            let value = self.config.get(&format!("juju-{setting}")).map_or(fallback, String::as_str);
            set(&format!("JUJU_CHARM_{name}_PROXY"), value);
        }
        if self.is_40() {
            for name in ["CA_CERT", "GRPC", "HTTP"] {
                set(&format!("JUJU_CHARM_TRACE_CONFIG_{name}"), "");
            }
        } else {
            set("JUJU_SLA", "unsupported");
        }
        // The older proxy settings reach hooks under their plain names.
        for (name, setting) in PROXIES {
            if let Some(value) = self.config.get(setting).filter(|value| !value.is_empty()) {
                set(&format!("{name}_PROXY"), value);
                set(&format!("{}_proxy", name.to_lowercase()), value);
            }
        }
        match &context.operation {
            Operation::Hook(hook) => {
                set("JUJU_HOOK_NAME", &hook.name);
                set("JUJU_DISPATCH_PATH", &format!("hooks/{}", hook.name));
                if let Some(relation) = hook.relation.and_then(|id| self.relations.get(&id)) {
                    let key = relation.key_for(crate::model::app_of(unit));
                    set("JUJU_RELATION", key.split(':').next().unwrap_or_default());
                    set("JUJU_RELATION_ID", &key);
                    set("JUJU_REMOTE_APP", &hook.remote_app);
                    set("JUJU_REMOTE_UNIT", &hook.remote_unit);
                    if hook.kind == HookKind::RelationDeparted {
                        set("JUJU_DEPARTING_UNIT", &hook.departing);
                    }
                }
                if !hook.secret.is_empty() {
                    let bare = self.is_40() && hook.kind == HookKind::SecretExpired;
                    let id = if bare { hook.secret.clone() } else { format!("secret:{}", hook.secret) };
                    set("JUJU_SECRET_ID", &id);
                    set("JUJU_SECRET_LABEL", &self.label_for(unit, &hook.secret));
                    if matches!(hook.kind, HookKind::SecretExpired | HookKind::SecretRemove) {
                        set("JUJU_SECRET_REVISION", &hook.revision.to_string());
                    }
                }
            }
            Operation::Action(task) | Operation::Exec(task) => {
                let name = self.operation_name(&context.operation);
                set("JUJU_HOOK_NAME", "");
                if !self.actions.get(task).is_some_and(|action| action.local) {
                    set("JUJU_ACTION_NAME", &name);
                    set("JUJU_ACTION_UUID", &task.to_string());
                    set("JUJU_ACTION_TAG", &format!("action-{task}"));
                }
                if matches!(context.operation, Operation::Action(_)) {
                    set("JUJU_DISPATCH_PATH", &format!("actions/{name}"));
                }
            }
        }
        env.sort();
        env
    }

    fn label_for(&self, unit: &str, id: &str) -> String {
        let Some(secret) = self.secrets.get(id) else { return String::new() };
        if secret.belongs_to(unit) {
            return secret.label.clone();
        }
        secret.consumers.get(unit).map_or(String::new(), |consumer| consumer.label.clone())
    }
}
