//! Further settings of Concourse: from the option `concourse-env` and from the Juju secret `concourse-secrets`.
//! Concourse ignores a variable that it doesn't know, so it is refused here. No value is ever in a problem: it may be
//! a password in the wrong place.

use super::Problem;
use super::known::{self, Kind, Setting, Side};
use crate::parse::{Invalid, Secret, harmless, shown};
use serde_yaml::{Mapping, Value};
use std::collections::BTreeMap;

const ENV: &str = "concourse-env";
const SECRETS: &str = "concourse-secrets";
/// Some less than what the kernel takes for one variable, its name included.
const LONGEST: usize = 100 * 1024;

/// Those of the settings that the given program reads.
pub fn settings_for<V>(side: Side, settings: &BTreeMap<String, V>) -> impl Iterator<Item = (&str, &V)> {
    settings.iter().filter(move |(name, _)| known::belongs(name, side)).map(|(n, v)| (n.as_str(), v))
}

/// Parses `concourse-env`: a YAML map of names and values, lists or maps.
pub(super) fn env_settings(text: &str) -> Result<BTreeMap<String, String>, Vec<Problem>> {
    let map = match serde_yaml::from_str(text) {
        Ok(Value::Null) => Mapping::new(),
        Ok(Value::Mapping(map)) => map,
        Ok(_) => {
            return Err(vec![problem("is not a YAML map; write a line like CONCOURSE_CLUSTER_NAME: ci")]);
        }
        Err(why) => return Err(vec![problem(yaml_error(&why))]),
    };
    collect(map.iter().map(|(name, value)| env_setting(name, value)))
}

/// Settings from the content of the secret that `concourse-secrets` names: `ldap-bind-pw` becomes
/// `CONCOURSE_LDAP_BIND_PW`. `env` is what [`super::Config`] has from `concourse-env`: no setting may be in both.
///
/// # Errors
/// All problems. They name keys and never show a value.
pub fn secret_settings(
    content: &BTreeMap<String, String>,
    env: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, Secret>, Vec<Problem>> {
    collect(content.iter().map(|(key, value)| {
        let problem = |sentence: String| Problem::new(SECRETS, format!("{} {sentence}", printed(key)));
        let name = name_of(key);
        let setting = check_name(&name, || known::like(key).map(key_of)).map_err(problem)?;
        if env.contains_key(&name) {
            return Err(problem("is set in concourse-env as well; remove one of the two".into()));
        }
        let value = check_value(setting, value).map_err(|why| problem(why.to_string()))?;
        Ok((name, Secret::new(value)))
    }))
}

fn env_setting(name: &Value, value: &Value) -> Result<(String, String), Problem> {
    let Value::String(name) = name else {
        return Err(problem("has a name that is no text; write names like CONCOURSE_CLUSTER_NAME"));
    };
    let problem = |sentence: String| problem(format!("{} {sentence}", printed(name)));
    let setting = check_name(name, || known::like(name).map(str::to_owned)).map_err(problem)?;
    if known::is_secret(name, setting) || value.as_str().is_some_and(holds_password) {
        let key = key_of(name);
        return Err(problem(format!("is a secret; put it as {key} into the secret of concourse-secrets")));
    }
    let value = text_of(setting, value).and_then(|text| check_value(setting, &text));
    Ok((name.clone(), value.map_err(|why| problem(why.to_string()))?))
}

/// Whether users may set it; `like` gives the nearest name that they may have meant.
fn check_name(name: &str, like: impl FnOnce() -> Option<String>) -> Result<Setting, String> {
    if let Some(source) = known::set_by_charm(name) {
        return Err(format!("is set by the charm: {source}"));
    }
    known::find(name).ok_or_else(|| match like() {
        Some(like) => format!("is no setting of Concourse; did you mean {like}?"),
        None => "is no setting of Concourse; see concourse web --help and concourse worker --help".into(),
    })
}

/// A YAML value as Concourse reads it from a variable.
fn text_of(setting: Setting, value: &Value) -> Result<String, Invalid> {
    match (setting.kind, value) {
        (Kind::List, Value::Sequence(items)) => {
            let items: Result<Vec<_>, _> = items.iter().map(|item| part(item, ",")).collect();
            Ok(items?.join(","))
        }
        (Kind::Map, Value::Mapping(map)) => {
            let pairs: Result<Vec<_>, Invalid> = map
                .iter()
                .map(|(key, value)| Ok(format!("{}:{}", part(key, ",:")?, part(value, ",")?)))
                .collect();
            Ok(pairs?.join(","))
        }
        (_, value) => scalar(value),
    }
}

fn part(value: &Value, barred: &str) -> Result<String, Invalid> {
    let text = scalar(value)?;
    if text.is_empty() || text.contains(|c| barred.contains(c)) {
        let barred = barred.chars().map(|c| format!("\"{c}\"")).collect::<Vec<_>>().join(" or ");
        return Err(Invalid::new(format!(
            "has a part that is empty or holds {barred}; Concourse splits there"
        )));
    }
    Ok(text)
}

fn scalar(value: &Value) -> Result<String, Invalid> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Ok(number.to_string()),
        // 1.10 is 1.1 by now.
        Value::Number(_) => Err(Invalid::new("is a number with a fraction; put it in quotes")),
        Value::Null => Err(Invalid::new("has no value; give one or remove the line")),
        _ => Err(Invalid::new("takes one value; a list or map has no meaning here")),
    }
}

/// A value as it may stand in the environment, by the kind of its setting.
fn check_value(setting: Setting, value: &str) -> Result<String, Invalid> {
    // What comes from a file or a YAML block ends in a line break that isn't meant.
    let value = value.strip_suffix('\n').map_or(value, |v| v.strip_suffix('\r').unwrap_or(v));
    let refused = |sentence| Err(Invalid::new(sentence));
    if setting.kind == Kind::File && !value.starts_with('/') {
        return refused("takes the path of a file on the unit; give one that starts with /");
    }
    if value.len() > LONGEST {
        return refused("is longer than 100 KiB; an environment variable can't hold that");
    }
    if !value.chars().all(harmless) {
        return refused("holds a line break or control character; Concourse takes none");
    }
    match setting.kind {
        Kind::Bool if !["true", "false"].contains(&value) => refused("is a switch; use true or false"),
        Kind::List | Kind::Map if value.is_empty() => refused("is empty; give a value or remove it"),
        _ => Ok(value.to_owned()),
    }
}

/// `https://user:password@host` under a name that doesn't tell.
fn holds_password(value: &str) -> bool {
    value.contains('@') && url::Url::parse(value).is_ok_and(|url| url.password().is_some())
}

/// Where the YAML is broken. Not serde_yaml's own words: those may quote the text.
fn yaml_error(why: &serde_yaml::Error) -> String {
    if why.to_string().starts_with("duplicate entry") {
        return "sets something twice; keep one of the lines".into();
    }
    match why.location() {
        Some(at) => {
            format!("is not YAML at line {}, column {}; write NAME: VALUE lines", at.line(), at.column())
        }
        None => "is not YAML; write NAME: VALUE lines".into(),
    }
}

fn collect<V>(
    settings: impl Iterator<Item = Result<(String, V), Problem>>,
) -> Result<BTreeMap<String, V>, Vec<Problem>> {
    let (mut good, mut problems) = (BTreeMap::new(), Vec::new());
    for setting in settings {
        match setting {
            Ok((name, value)) => _ = good.insert(name, value),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(good) } else { Err(problems) }
}

fn problem(sentence: impl std::fmt::Display) -> Problem {
    Problem::new(ENV, sentence)
}

/// A name in a message: bare if it is a harmless word.
fn printed(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if (1..=60).contains(&name.len()) && name.bytes().all(plain) { name.into() } else { shown(name) }
}

fn name_of(key: &str) -> String {
    format!("CONCOURSE_{}", key.to_ascii_uppercase().replace('-', "_"))
}

fn key_of(name: &str) -> String {
    name.strip_prefix("CONCOURSE_").unwrap_or(name).to_ascii_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(text: &str) -> Vec<String> {
        env_settings(text).unwrap_err().iter().map(ToString::to_string).collect()
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect()
    }

    #[test]
    fn values_of_each_kind() {
        let text = "
            CONCOURSE_CLUSTER_NAME: |
              my ci
            CONCOURSE_GC_INTERVAL: 30s
            CONCOURSE_MAX_CHECKS_PER_SECOND: -1
            CONCOURSE_X_FRAME_OPTIONS: ''
            CONCOURSE_ENABLE_ACROSS_STEP: true
            CONCOURSE_LDAP_START_TLS: 'false'
            CONCOURSE_MAIN_TEAM_LDAP_GROUP: [ops, dev, 7]
            CONCOURSE_MAIN_TEAM_LDAP_USER: a,b
            CONCOURSE_METRICS_ATTRIBUTE: {site: 'a:b', rack: 3}
            CONCOURSE_TRACING_ATTRIBUTE: a:b
            CONCOURSE_LDAP_CA_CERT: /etc/ssl/ldap.pem
            CONCOURSE_VAULT_CLIENT_KEY: /etc/ssl/vault.key
            CONCOURSE_SECRET_CACHE_ENABLED: true";
        let settings = env_settings(text).unwrap();
        assert_eq!(
            settings,
            map(&[
                ("CONCOURSE_CLUSTER_NAME", "my ci"),
                ("CONCOURSE_ENABLE_ACROSS_STEP", "true"),
                ("CONCOURSE_GC_INTERVAL", "30s"),
                ("CONCOURSE_LDAP_CA_CERT", "/etc/ssl/ldap.pem"),
                ("CONCOURSE_LDAP_START_TLS", "false"),
                ("CONCOURSE_MAIN_TEAM_LDAP_GROUP", "ops,dev,7"),
                ("CONCOURSE_MAIN_TEAM_LDAP_USER", "a,b"),
                ("CONCOURSE_MAX_CHECKS_PER_SECOND", "-1"),
                ("CONCOURSE_METRICS_ATTRIBUTE", "site:a:b,rack:3"),
                ("CONCOURSE_SECRET_CACHE_ENABLED", "true"),
                ("CONCOURSE_TRACING_ATTRIBUTE", "a:b"),
                ("CONCOURSE_VAULT_CLIENT_KEY", "/etc/ssl/vault.key"),
                ("CONCOURSE_X_FRAME_OPTIONS", ""),
            ])
        );
        let worker: Vec<_> = settings_for(Side::Worker, &settings).collect();
        assert_eq!(worker, [("CONCOURSE_TRACING_ATTRIBUTE", &"a:b".to_string())]);
        assert_eq!(settings_for(Side::Web, &settings).count(), settings.len());
    }

    #[test]
    fn all_problems_at_once_and_no_value_in_any() {
        let text = "
            CONCOURSE_LDAP_HOSTT: marker
            CONCOURSE_FROBNICATE_THE_WIDGETS: marker
            cluster-name: marker
            3: marker
            CONCOURSE_POSTGRES_PASSWORD: marker
            CONCOURSE_BIND_PORT: 4321
            CONCOURSE_NAME: marker
            CONCOURSE_VERSION: marker
            CONCOURSE_LDAP_BIND_PW: marker
            CONCOURSE_ADD_CLIENT: marker
            CONCOURSE_INFLUXDB_URL: http://me:marker@influx:8086
            CONCOURSE_CLUSTER_NAME: [marker]
            CONCOURSE_GC_INTERVAL: {a: marker}
            CONCOURSE_GC_ONE_OFF_GRACE_PERIOD: 1.10
            CONCOURSE_GC_HIJACK_GRACE_PERIOD:
            CONCOURSE_LDAP_START_TLS: yes
            CONCOURSE_MAIN_TEAM_LDAP_GROUP: ['a,marker']
            CONCOURSE_MAIN_TEAM_LDAP_USER: []
            CONCOURSE_METRICS_ATTRIBUTE: {'a:b': marker}
            CONCOURSE_LDAP_CA_CERT: -----BEGIN marker
            CONCOURSE_LDAP_HOST: \"marker\\0\"
            CONCOURSE_LDAP_BIND_DN: \"a\\nmarker\"
            CONCOURSE_SYSLOG_ADDRESS: !marker x";
        let problems = refused(text);
        insta::assert_snapshot!(problems.join("\n"), @r#"
        concourse-env: CONCOURSE_LDAP_HOSTT is no setting of Concourse; did you mean CONCOURSE_LDAP_HOST?
        concourse-env: CONCOURSE_FROBNICATE_THE_WIDGETS is no setting of Concourse; see concourse web --help and concourse worker --help
        concourse-env: cluster-name is no setting of Concourse; did you mean CONCOURSE_CLUSTER_NAME?
        concourse-env: has a name that is no text; write names like CONCOURSE_CLUSTER_NAME
        concourse-env: CONCOURSE_POSTGRES_PASSWORD is set by the charm: relate a database over postgresql or database
        concourse-env: CONCOURSE_BIND_PORT is set by the charm: use the option web-port
        concourse-env: CONCOURSE_NAME is set by the charm: a worker has the name of its unit
        concourse-env: CONCOURSE_VERSION is set by the charm: use the option concourse-version
        concourse-env: CONCOURSE_LDAP_BIND_PW is a secret; put it as ldap-bind-pw into the secret of concourse-secrets
        concourse-env: CONCOURSE_ADD_CLIENT is a secret; put it as add-client into the secret of concourse-secrets
        concourse-env: CONCOURSE_INFLUXDB_URL is a secret; put it as influxdb-url into the secret of concourse-secrets
        concourse-env: CONCOURSE_CLUSTER_NAME takes one value; a list or map has no meaning here
        concourse-env: CONCOURSE_GC_INTERVAL takes one value; a list or map has no meaning here
        concourse-env: CONCOURSE_GC_ONE_OFF_GRACE_PERIOD is a number with a fraction; put it in quotes
        concourse-env: CONCOURSE_GC_HIJACK_GRACE_PERIOD has no value; give one or remove the line
        concourse-env: CONCOURSE_LDAP_START_TLS is a switch; use true or false
        concourse-env: CONCOURSE_MAIN_TEAM_LDAP_GROUP has a part that is empty or holds ","; Concourse splits there
        concourse-env: CONCOURSE_MAIN_TEAM_LDAP_USER is empty; give a value or remove it
        concourse-env: CONCOURSE_METRICS_ATTRIBUTE has a part that is empty or holds "," or ":"; Concourse splits there
        concourse-env: CONCOURSE_LDAP_CA_CERT takes the path of a file on the unit; give one that starts with /
        concourse-env: CONCOURSE_LDAP_HOST holds a line break or control character; Concourse takes none
        concourse-env: CONCOURSE_LDAP_BIND_DN holds a line break or control character; Concourse takes none
        concourse-env: CONCOURSE_SYSLOG_ADDRESS takes one value; a list or map has no meaning here
        "#);
        assert!(problems.iter().all(|p| !p.contains("marker")), "a value shows");
    }

    #[test]
    fn what_is_no_map_is_refused_without_showing_it() {
        assert_eq!(env_settings(""), Ok(BTreeMap::new()));
        assert_eq!(env_settings("# none\n"), Ok(BTreeMap::new()));
        let map = "concourse-env: is not a YAML map; write a line like CONCOURSE_CLUSTER_NAME: ci";
        for text in ["CONCOURSE_CLUSTER_NAME=ci", "[a]", "7"] {
            assert_eq!(refused(text), [map]);
        }
        for text in ["a: b: marker", "\tmarker: x", "a: *marker", "marker: {", "a: \"\\q marker\""] {
            let problems = refused(text);
            assert!(problems[0].starts_with("concourse-env: is not YAML at line "), "{problems:?}");
            assert!(problems.len() == 1 && !problems[0].contains("marker"), "{problems:?}");
        }
        let twice = "CONCOURSE_CLUSTER_NAME: marker\nCONCOURSE_CLUSTER_NAME: marker";
        assert_eq!(refused(twice), ["concourse-env: sets something twice; keep one of the lines"]);
    }

    #[test]
    fn settings_from_a_secret() {
        let content = map(&[
            ("ldap-bind-pw", "p w\n"),
            ("github-client-id", "abc"),
            ("vault-auth-param", "role_id:a,secret_id:b"),
        ]);
        let settings = secret_settings(&content, &BTreeMap::new()).unwrap();
        let shown: Vec<_> = settings.iter().map(|(n, v)| format!("{n}={}", v.expose())).collect();
        assert_eq!(
            shown,
            [
                "CONCOURSE_GITHUB_CLIENT_ID=abc",
                "CONCOURSE_LDAP_BIND_PW=p w",
                "CONCOURSE_VAULT_AUTH_PARAM=role_id:a,secret_id:b",
            ]
        );
        assert!(!format!("{settings:?}").contains("p w"));
        assert_eq!(settings_for(Side::Web, &settings).count(), 3);
    }

    #[test]
    fn problems_of_a_secret_name_its_keys_only() {
        let content = map(&[
            ("ldap-bind-pww", "marker"),
            ("concourse-ldap-bind-pw", "marker"),
            ("postgres-password", "marker"),
            ("github-host", "marker"),
            ("vault-client-key", "-----BEGIN marker"),
            ("oidc-client-secret", "a\nmarker"),
            ("ldap-start-tls", "marker"),
            ("a\nb", "marker"),
            ("ldap-bind-dn", &"marker".repeat(LONGEST)),
            ("github-client-secret", "marker\u{ffff}"),
        ]);
        let env = map(&[("CONCOURSE_GITHUB_HOST", "marker")]);
        let problems: Vec<_> =
            secret_settings(&content, &env).unwrap_err().iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(problems.join("\n"), @r#"
        concourse-secrets: "a\nb" is no setting of Concourse; see concourse web --help and concourse worker --help
        concourse-secrets: concourse-ldap-bind-pw is no setting of Concourse; did you mean ldap-bind-pw?
        concourse-secrets: github-client-secret holds a line break or control character; Concourse takes none
        concourse-secrets: github-host is set in concourse-env as well; remove one of the two
        concourse-secrets: ldap-bind-dn is longer than 100 KiB; an environment variable can't hold that
        concourse-secrets: ldap-bind-pww is no setting of Concourse; did you mean ldap-bind-pw?
        concourse-secrets: ldap-start-tls is a switch; use true or false
        concourse-secrets: oidc-client-secret holds a line break or control character; Concourse takes none
        concourse-secrets: postgres-password is set by the charm: relate a database over postgresql or database
        concourse-secrets: vault-client-key takes the path of a file on the unit; give one that starts with /
        "#);
        assert!(problems.iter().all(|p| !p.contains("marker")), "a value shows");
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused(
            text in prop_oneof![
                any::<String>(),
                r"(CONCOURSE_(CLUSTER_NAME|TAG|LDAP_HOST|METRICS_ATTRIBUTE|LDAP_START_TLS): ?[^\n]{0,12}\n){0,3}",
                r"[\[\]{}:,&*!|>'%@`# \n\tA-Za-z0-9.-]{0,40}",
            ]
        ) {
            match env_settings(&text) {
                Ok(settings) => for (name, value) in settings {
                    prop_assert!(known::find(&name).is_some() && known::set_by_charm(&name).is_none());
                    prop_assert!(!value.chars().any(char::is_control));
                },
                Err(problems) => prop_assert!(!problems.is_empty()),
            }
        }

        #[test]
        fn any_secret_is_taken_or_refused(
            content in proptest::collection::btree_map(
                prop_oneof![any::<String>(), "(ldap-bind-pw|encryption-key|tag|ldap-ca-cert)"], any::<String>(), 0..4),
        ) {
            if let Err(problems) = secret_settings(&content, &BTreeMap::new()) {
                prop_assert!(!problems.is_empty());
            }
        }
    }
}
