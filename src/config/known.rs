//! What is known of Concourse's settings: which exist, of which kind, which the charm sets, which are secret.

use crate::parse::nearest;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The two programs that a setting can belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// `concourse web`
    Web,
    /// `concourse worker`
    Worker,
}

/// What the value of a setting is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    /// `a,b`
    List,
    /// `a:x,b:y`
    Map,
    /// A path on the unit.
    File,
    Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setting {
    pub kind: Kind,
    web: bool,
    worker: bool,
}

/// Every setting by its name, as the table that `tools/known-settings` makes has it.
static KNOWN: LazyLock<BTreeMap<&str, Setting>> = LazyLock::new(|| {
    let mut known = BTreeMap::new();
    for line in include_str!("../settings/known-8.2.5.tsv").lines().filter(|l| !l.starts_with('#')) {
        let mut columns = line.split('\t');
        let (side, name, kind) = (columns.next(), columns.next(), columns.next());
        let kind = match kind {
            Some("bool") => Kind::Bool,
            Some("list") => Kind::List,
            Some("map") => Kind::Map,
            Some("file") => Kind::File,
            _ => Kind::Value,
        };
        let name = name.unwrap_or_default();
        let setting = known.entry(name).or_insert(Setting { kind, web: false, worker: false });
        setting.web |= side == Some("web");
        setting.worker |= side == Some("worker");
    }
    known
});

/// Settings that the charm sets itself, without `CONCOURSE_`; after each, where its value comes from. A `*` at the
/// end stands for any name that starts so.
const OWN: &[(&str, &str)] = &[
    ("ADD_LOCAL_USER", "use the option initial-admin-username"),
    ("BAGGAGECLAIM_DRIVER", "use the option volume-driver"),
    ("BIND_IP", "web nodes listen on all addresses, workers on their machine's own"),
    ("BIND_PORT", "use the option web-port"),
    ("CONTAINERD_BIN", "the charm starts containerd with its own runtime"),
    ("CONTAINERD_DNS_PROXY_ENABLE", "use the option containerd-dns-proxy-enable"),
    ("CONTAINERD_DNS_SERVER", "use the option containerd-dns-server"),
    ("CONTAINER_PLACEMENT_STRATEGY", "use the option container-placement-strategy"),
    ("EXTERNAL_URL", "use the option external-url"),
    ("LOG_LEVEL", "use the option log-level"),
    ("MAIN_TEAM_LOCAL_USER", "use the option initial-admin-username"),
    ("NAME", "a worker has the name of its unit"),
    ("PEER_ADDRESS", "it is the address of the unit"),
    ("POSTGRES_*", "relate a database over postgresql or database"),
    ("PROMETHEUS_*", "use the option enable-metrics"),
    ("RUNTIME", "it is containerd"),
    ("SESSION_SIGNING_KEY", "the charm makes the key; see the action rotate-keys"),
    ("TAG", "use the option tag"),
    ("TSA_AUTHORIZED_KEYS", "the keys are those of the related workers"),
    ("TSA_BIND_PORT", "it is 2222"),
    ("TSA_HOST", "relate the web node over worker-tsa"),
    ("TSA_HOST_KEY", "the charm makes the key; see the action rotate-keys"),
    ("TSA_PEER_ADDRESS", "it is the address of the unit"),
    ("TSA_PUBLIC_KEY", "relate the web node over worker-tsa"),
    ("TSA_WORKER_PRIVATE_KEY", "the charm makes the key; see the action rotate-keys"),
    ("VERSION", "use the option concourse-version"),
    ("WORK_DIR", "it is below /var/lib/concourse"),
];

/// How names of secret values end, and names that hold secrets for other reasons, without `CONCOURSE_`.
const SECRET_ENDS: &[&str] = &[
    "_ACCESS_KEY",
    "_API_KEY",
    "_PASSWORD",
    "_PW",
    "_SECRET",
    "_SECRET_KEY",
    "_TOKEN",
    "ENCRYPTION_KEY",
    "ENCRYPTION_KEY_BASE64",
    "ENCRYPTION_KEY_HEX",
];
const SECRETS: &[&str] = &["ADD_CLIENT", "TRACING_OTLP_HEADER", "VAULT_AUTH_PARAM"];

pub(super) fn find(name: &str) -> Option<Setting> {
    KNOWN.get(name).copied()
}

/// Whether the setting belongs to the side; an unknown one belongs to none.
pub(super) fn belongs(name: &str, side: Side) -> bool {
    find(name).is_some_and(|s| match side {
        Side::Web => s.web,
        Side::Worker => s.worker,
    })
}

/// Where the value comes from, if the charm sets it.
pub(super) fn set_by_charm(name: &str) -> Option<&'static str> {
    let bare = name.strip_prefix("CONCOURSE_")?;
    let fits = |pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => bare.starts_with(start),
        None => bare == pattern,
    };
    OWN.iter().find(|(pattern, _)| fits(pattern)).map(|(_, source)| *source)
}

/// Whether the value must not stand in an option, which every reader of the model sees. The path of a secret file may.
pub(super) fn is_secret(name: &str, setting: Setting) -> bool {
    let bare = name.strip_prefix("CONCOURSE_").unwrap_or(name);
    let named = SECRETS.contains(&bare) || SECRET_ENDS.iter().any(|end| bare.ends_with(end));
    named && setting.kind != Kind::File && setting.kind != Kind::Bool
}

/// The known name most like one that isn't; also of one in the style of a flag, `cluster-name`.
pub(super) fn like(name: &str) -> Option<&'static str> {
    // Compared without what all have in common, which would make all alike.
    let bare = |name: &str| {
        let name = name.to_ascii_uppercase().replace('-', "_");
        name.strip_prefix("CONCOURSE_").map_or(name.clone(), str::to_owned)
    };
    let candidates: BTreeMap<String, &str> = KNOWN.keys().map(|known| (bare(known), *known)).collect();
    nearest(&bare(name), candidates.keys().map(String::as_str)).map(|best| candidates[best])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_whole() {
        let table = include_str!("../settings/known-8.2.5.tsv");
        let mut lines = 0;
        for line in table.lines().filter(|l| !l.starts_with('#')) {
            lines += 1;
            let columns: Vec<_> = line.split('\t').collect();
            let [side, name, kind, _flag] = columns[..] else { panic!("{line:?}") };
            assert!(name.strip_prefix("CONCOURSE_").is_some_and(|n| !n.is_empty()), "{line:?}");
            assert!(["bool", "list", "map", "file", "value"].contains(&kind), "{line:?}");
            // One kind for both sides: the same option fills both.
            assert_eq!(format!("{:?}", KNOWN[name].kind).to_lowercase(), kind, "{line:?}");
            let side = if side == "web" { Side::Web } else { Side::Worker };
            assert!(belongs(name, side), "{line:?}");
        }
        let places = KNOWN.values().map(|s| usize::from(s.web) + usize::from(s.worker)).sum::<usize>();
        assert_eq!(places, lines);
        assert!(lines > 300);
        assert!(!belongs("CONCOURSE_NAME", Side::Web) && !belongs("CONCOURSE_CLUSTER_NAME", Side::Worker));
        assert!(!belongs("CONCOURSE_NO_SUCH", Side::Web));
    }

    #[test]
    fn every_own_and_secret_name_exists() {
        // --version is no setting, but the variable makes every command fail.
        for (pattern, _) in OWN.iter().filter(|(p, _)| *p != "VERSION") {
            let name = format!("CONCOURSE_{}", pattern.trim_end_matches('*'));
            let exists = KNOWN.keys().any(|k| *k == name || (pattern.ends_with('*') && k.starts_with(&name)));
            assert!(exists, "{pattern}");
        }
        for name in SECRETS {
            assert!(find(&format!("CONCOURSE_{name}")).is_some(), "{name}");
        }
        for end in SECRET_ENDS {
            assert!(KNOWN.keys().any(|k| k.ends_with(end)), "{end}");
        }
    }

    #[test]
    fn secret_names() {
        let secret: Vec<_> = KNOWN.iter().filter(|(n, s)| is_secret(n, **s)).map(|(n, _)| *n).collect();
        insta::assert_snapshot!(secret.join("\n"), @"
        CONCOURSE_ADD_CLIENT
        CONCOURSE_AWS_SECRETSMANAGER_ACCESS_KEY
        CONCOURSE_AWS_SECRETSMANAGER_SECRET_KEY
        CONCOURSE_AWS_SECRETSMANAGER_SESSION_TOKEN
        CONCOURSE_AWS_SSM_ACCESS_KEY
        CONCOURSE_AWS_SSM_SECRET_KEY
        CONCOURSE_AWS_SSM_SESSION_TOKEN
        CONCOURSE_BITBUCKET_CLOUD_CLIENT_SECRET
        CONCOURSE_CF_CLIENT_SECRET
        CONCOURSE_CLIENT_SECRET
        CONCOURSE_CONJUR_AUTHN_API_KEY
        CONCOURSE_CREDHUB_CLIENT_SECRET
        CONCOURSE_ENCRYPTION_KEY
        CONCOURSE_ENCRYPTION_KEY_BASE64
        CONCOURSE_ENCRYPTION_KEY_HEX
        CONCOURSE_GITEA_CLIENT_SECRET
        CONCOURSE_GITHUB_CLIENT_SECRET
        CONCOURSE_GITLAB_CLIENT_SECRET
        CONCOURSE_INFLUXDB_PASSWORD
        CONCOURSE_LDAP_BIND_PW
        CONCOURSE_MICROSOFT_CLIENT_SECRET
        CONCOURSE_NEWRELIC_API_KEY
        CONCOURSE_OAUTH_CLIENT_SECRET
        CONCOURSE_OIDC_CLIENT_SECRET
        CONCOURSE_OLD_ENCRYPTION_KEY
        CONCOURSE_OLD_ENCRYPTION_KEY_BASE64
        CONCOURSE_OLD_ENCRYPTION_KEY_HEX
        CONCOURSE_POSTGRES_PASSWORD
        CONCOURSE_TRACING_HONEYCOMB_API_KEY
        CONCOURSE_TRACING_OTLP_HEADER
        CONCOURSE_TSA_CLIENT_SECRET
        CONCOURSE_VAULT_AUTH_PARAM
        CONCOURSE_VAULT_CLIENT_TOKEN
        ");
    }

    #[test]
    fn likeness() {
        for (name, known) in [
            ("CONCOURSE_CLUSTERNAME", Some("CONCOURSE_CLUSTER_NAME")),
            ("cluster-name", Some("CONCOURSE_CLUSTER_NAME")),
            ("Concourse_Gc_Intervall", Some("CONCOURSE_GC_INTERVAL")),
            ("PATH", None),
            ("CONCOURSE_", None),
            ("LD_PRELOAD", None),
        ] {
            assert_eq!(like(name), known, "{name}");
        }
    }
}
