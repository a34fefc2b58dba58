//! The options as a whole: declared is read, defaults are fine, all problems at once, nothing panics.

use super::*;
use serde_json::json;

fn options(set: Value) -> Map<String, Value> {
    set.as_object().expect("an object").clone()
}

fn parsed(set: Value) -> Config {
    parse(&options(set), &ModelProxy::default()).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn problems(set: Value) -> Vec<String> {
    match parse(&options(set), &ModelProxy::default()) {
        Ok(config) => panic!("taken: {config:?}"),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn the_defaults() {
    let config = parsed(json!({}));
    insta::assert_debug_snapshot!(config, @r#"
    Config {
        mode: Auto,
        version: None,
        download_url: None,
        sha256: None,
        web_port: 8080,
        external_url: None,
        admin: UserName(
            "admin",
        ),
        log_level: Info,
        metrics: true,
        placement: [
            VolumeLocality,
        ],
        dns_proxy: false,
        dns_servers: [],
        enable_gpu: false,
        compute_runtime: Auto,
        gpu_units: None,
        gpu_access: Shared,
        gpu_default_count: All,
        gpu_replicas: 1,
        gpu_lease_wait: TimeLimit(
            180,
        ),
        gpu_persistence: true,
        install_drivers: false,
        driver_branch: None,
        folder_mounts: Tasks,
        volume_driver: Auto,
        tags: [],
        worker_untagged: false,
        env: {},
        secrets: None,
        proxy: Proxy {
            http: None,
            https: None,
            no: [],
        },
    }
    "#);
}

#[test]
fn every_declared_option_is_read_and_no_other() {
    // Reading one that is not declared fails in every test here, by an assertion in `Options`.
    for option in options::declared() {
        let problems = problems(json!({ option: ["wrong"] }));
        assert_eq!(problems.len(), 1, "{option}: {problems:?}");
        assert!(problems[0].starts_with(&format!("{option}: ")), "{problems:?}");
        assert_eq!(parsed(json!({ option: null })), parsed(json!({})), "{option} left out or null");
    }
}

#[test]
fn every_option_set() {
    let config = parsed(json!({
        "deployment-mode": "web",
        "concourse-version": " 8.3.0-rc.1 ",
        "concourse-download-url": "https://mirror/{version}/concourse-{arch}.tgz",
        "concourse-sha256": "AB".repeat(32),
        "web-port": 443,
        "external-url": "https://ci.example.com/",
        "initial-admin-username": "root",
        "log-level": "debug",
        "enable-metrics": false,
        "container-placement-strategy": "limit-active-tasks, fewest-build-containers,limit-active-tasks",
        "containerd-dns-proxy-enable": true,
        "containerd-dns-server": "1.1.1.1, fd00::53,1.1.1.1",
        "enable-gpu": true,
        "compute-runtime": "cuda",
        "gpu-device-ids": "0, GPU-1a2b,0:1",
        "gpu-access": "request",
        "gpu-default-count": "1",
        "gpu-replicas": 2,
        "gpu-lease-wait": "90s",
        "gpu-persistence-mode": false,
        "install-drivers": true,
        "nvidia-driver-branch": "550-server",
        "folder-mounts": "all",
        "volume-driver": "btrfs",
        "tag": "gpu, site:a,gpu",
        "worker-untagged": true,
        "concourse-env": "CONCOURSE_CLUSTER_NAME: ci",
        "concourse-secrets": "secret:d0erdgfmp25c762i8np0",
        "http-proxy": "http://me:hunter2@proxy:3128",
        "https-proxy": "https://proxy:3129",
        "no-proxy": "localhost,10.0.0.0/8",
    }));
    let expected = Config {
        mode: DeploymentMode::Web,
        version: "8.3.0-rc.1".parse().ok(),
        download_url: "https://mirror/{version}/concourse-{arch}.tgz".parse().ok(),
        sha256: "ab".repeat(32).parse().ok(),
        web_port: 443,
        external_url: "https://ci.example.com".parse().ok(),
        admin: "root".parse().unwrap(),
        log_level: LogLevel::Debug,
        metrics: false,
        placement: vec![Placement::LimitActiveTasks, Placement::FewestBuildContainers],
        dns_proxy: true,
        dns_servers: vec!["1.1.1.1".parse().unwrap(), "fd00::53".parse().unwrap()],
        enable_gpu: true,
        compute_runtime: ComputeRuntime::Cuda,
        gpu_units: Some(["0", "GPU-1a2b", "0:1"].map(str::to_owned).to_vec()),
        gpu_access: Access::Request,
        gpu_default_count: DefaultCount::Some(1),
        gpu_replicas: 2,
        gpu_lease_wait: "90s".parse().unwrap(),
        gpu_persistence: false,
        install_drivers: true,
        driver_branch: Some("550-server".parse().unwrap()),
        folder_mounts: FolderMounts::All,
        volume_driver: VolumeDriver::Btrfs,
        tags: vec!["gpu".parse().unwrap(), "site:a".parse().unwrap()],
        worker_untagged: true,
        env: BTreeMap::from([("CONCOURSE_CLUSTER_NAME".into(), "ci".into())]),
        secrets: "secret:d0erdgfmp25c762i8np0".parse().ok(),
        proxy: Proxy {
            http: "http://me:hunter2@proxy:3128".parse().ok(),
            https: "https://proxy:3129".parse().ok(),
            no: vec!["localhost".into(), "10.0.0.0/8".into()],
        },
    };
    assert_eq!(config, expected);
}

#[test]
fn problems_say_what_to_do() {
    let words = "is not one of auto, all, web, worker";
    let url = "is not a URL; start it with http:// or https://";
    for (option, value, problem) in [
        ("deployment-mode", json!("wrker"), format!(r#""wrker" {words}; use worker"#)),
        ("deployment-mode", json!("Web"), format!(r#""Web" {words}; use web"#)),
        ("deployment-mode", json!("controller"), format!(r#""controller" {words}"#)),
        ("deployment-mode", json!(""), format!(r#""" {words}"#)),
        ("deployment-mode", json!(1), "has the wrong type; give a string".into()),
        ("concourse-version", json!("v8.2.5"), r#""v8.2.5" starts with a letter; write 8.2.5"#.into()),
        ("concourse-download-url", json!("mirror/{version}"), url.into()),
        (
            "concourse-download-url",
            json!("http://m/{verison}"),
            r#"knows no placeholder "verison"; use {version} and {arch}"#.into(),
        ),
        (
            "concourse-download-url",
            json!("http://m/concourse.tgz"),
            "has no {version} in it; put it where the version stands, or set concourse-version".into(),
        ),
        (
            "concourse-sha256",
            json!("abc"),
            r#""abc" is not a SHA-256 digest; write 64 hexadecimal digits"#.into(),
        ),
        ("web-port", json!(70000), "70000 is not a port; use 1 to 65535".into()),
        ("web-port", json!(0), "0 is not a port; use 1 to 65535".into()),
        ("web-port", json!(-1), "-1 is not a port; use 1 to 65535".into()),
        ("web-port", json!(8080.5), "is not a whole number in range; give one".into()),
        ("web-port", json!("8080"), "is not a whole number in range; give one".into()),
        ("web-port", json!(u64::MAX), "is not a whole number in range; give one".into()),
        ("web-port", json!(2222), "2222 is where workers register; use another port, such as 8080".into()),
        ("web-port", json!(8079), "8079 is a port of Concourse's own; use another port, such as 8080".into()),
        ("web-port", json!(2221), "2221 is a port of Concourse's own; use another port, such as 8080".into()),
        (
            "web-port",
            json!(9391),
            "9391 is where metrics are shown; use another port, or set enable-metrics=false".into(),
        ),
        ("external-url", json!("ci.example.com"), url.into()),
        (
            "initial-admin-username",
            json!("a:b"),
            r#""a:b" is not a user name; leave out white space and ":" or ",""#.into(),
        ),
        ("initial-admin-username", json!(" "), "a user name must not be empty".into()),
        ("log-level", json!("warn"), r#""warn" is not one of debug, info, error, fatal; use error"#.into()),
        ("log-level", json!("trace"), r#""trace" is not one of debug, info, error, fatal; use debug"#.into()),
        ("enable-metrics", json!("true"), "has the wrong type; use true or false".into()),
        (
            "container-placement-strategy",
            json!("random,volume-locality"),
            "random goes with no other strategy; use it alone or leave it out".into(),
        ),
        (
            "container-placement-strategy",
            json!(""),
            "must not be empty; volume-locality is the usual strategy".into(),
        ),
        ("containerd-dns-server", json!("dns.example"), r#""dns.example" is not an IP address"#.into()),
        (
            "containerd-dns-server",
            json!("127.0.0.53"),
            "127.0.0.53 is out of reach for containers; use an address that other machines reach".into(),
        ),
        ("folder-mounts", json!("task"), r#""task" is not one of none, tasks, all; use tasks"#.into()),
        (
            "volume-driver",
            json!("overlayfs"),
            r#""overlayfs" is not one of auto, overlay, btrfs, naive; use overlay"#.into(),
        ),
        ("tag", json!("a,,b"), "the list has an empty part; remove the comma that is too much".into()),
        ("tag", json!("a,b c"), r#""b c" is not a tag; leave out white space and ",""#.into()),
        (
            "concourse-secrets",
            json!("my-secret"),
            r#""my-secret" is not a Juju secret; write secret:ID as juju secrets shows it"#.into(),
        ),
        ("http-proxy", json!("me:hunter2@proxy:3128"), url.into()),
        ("https-proxy", json!("socks5://me:hunter2@proxy"), url.into()),
        ("https-proxy", json!("http://me:hunter2@:3128"), "is not a URL: empty host".into()),
        ("no-proxy", json!("a b"), "has white space within a host; separate hosts by commas".into()),
    ] {
        assert_eq!(problems(json!({ option: value })), [format!("{option}: {problem}")], "{value}");
    }
}

#[test]
fn all_problems_at_once() {
    let problems = problems(json!({
        "web-port": 70000,
        "deployment-mode": "x",
        "concourse-env": "CONCOURSE_NO_SUCH_THING: 1\nCONCOURSE_TAG: x",
        "concourse-download-url": "http://m/concourse.tgz",
        "log-level": "warn",
    }));
    let options: Vec<_> = problems.iter().filter_map(|p| p.split(':').next()).collect();
    assert_eq!(
        options,
        [
            "deployment-mode",
            "web-port",
            "log-level",
            "concourse-env",
            "concourse-env",
            "concourse-download-url",
        ]
    );
}

#[test]
fn options_that_depend_on_others() {
    // The metrics' port is free without metrics, and a fixed address fits a fixed version.
    assert_eq!(parsed(json!({"web-port": 9391, "enable-metrics": false})).web_port, 9391);
    let fixed =
        parsed(json!({"concourse-version": "8.2.5", "concourse-download-url": "http://m/concourse.tgz"}));
    assert!(fixed.download_url.is_some_and(|url| !url.has_version()));
    // One problem for one mistake: the address may be right for the version that was meant.
    let broken = json!({"concourse-version": "x", "concourse-download-url": "http://m/concourse.tgz"});
    assert_eq!(problems(broken).len(), 1);
}

#[test]
fn the_proxy_of_the_model_fills_the_gaps() {
    let model =
        |http: &str| ModelProxy { http: http.into(), https: "http://model:2".into(), no: "localhost".into() };
    let wrong = parse(&options(json!({})), &model("model:1")).unwrap_err();
    let wrong: Vec<_> = wrong.iter().map(ToString::to_string).collect();
    assert_eq!(wrong, ["juju-http-proxy: is not a URL; start it with http:// or https://"]);
    let model = model("http://model:1");
    let config = parse(&options(json!({"https-proxy": "http://own:3"})), &model).unwrap();
    let shown = |url: Option<ProxyUrl>| url.map(|u| u.to_string());
    assert_eq!(shown(config.proxy.http).as_deref(), Some("http://model:1"));
    assert_eq!(shown(config.proxy.https).as_deref(), Some("http://own:3"));
    assert_eq!(config.proxy.no, ["localhost"]);
    let config = parse(&options(json!({"no-proxy": "10.0.0.1"})), &model).unwrap();
    assert_eq!(config.proxy.no, ["10.0.0.1"]);
}

#[test]
fn a_password_is_in_no_text() {
    let marker = "hunter2";
    let config = parsed(json!({"http-proxy": format!("http://u:{marker}@p:1")}));
    assert!(!format!("{config:?}").contains(marker));
    let everywhere: Map<_, _> = options::declared()
        .filter(|o| o.contains("proxy") || o.contains("url") || o.contains("env"))
        .map(|o| (o.to_owned(), json!(format!("http://u:{marker}@p:x/ {marker}"))))
        .collect();
    let problems = parse(&everywhere, &ModelProxy::default()).unwrap_err();
    assert!(problems.len() >= 6, "{problems:?}");
    assert!(!format!("{problems:?}").contains(marker), "{problems:?}");
}
