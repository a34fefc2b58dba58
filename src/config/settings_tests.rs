//! `concourse-env` and `concourse-secrets`: what is taken, and what is refused in which words.

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
