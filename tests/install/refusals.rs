//! Downloads that fail: one sentence each, with the cause and what to do.

use crate::kit::*;
use concourse_ci_machine::install::{Proxy, Source};
use std::fs;
use std::net::TcpListener;
use std::thread::sleep;
use std::time::{Duration, Instant};

const DIGEST: &str = "abababababababababababababababababababababababababababababababab";

/// The refusal of a download that fails before any byte is kept.
fn refusal(url: &str, proxy: Proxy) -> String {
    let m = Machine::new();
    let mut order = from_url("8.2.5", url);
    order.sha256 = Some(DIGEST.to_owned());
    order.proxy = proxy;
    let text = m.refused(&order);
    assert_eq!(m.parts(), [""; 0]);
    text
}

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

/// A port where nobody listens.
fn closed_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn each_status_has_its_advice() {
    for (status, words, asked) in [
        (
            "404 Not Found",
            ["does not exist (HTTP 404)", "check concourse-version and concourse-download-url"],
            1,
        ),
        ("403 Forbidden", ["may not be read (HTTP 403)", "attach the resource concourse"], 1),
        ("401 Who are you", ["may not be read (HTTP 401)", "attach the resource concourse"], 1),
        ("500 Oops", ["answered HTTP 500", "concourse-download-url"], 3),
        ("418 Teapot", ["answered HTTP 418", "concourse-download-url"], 1),
        ("204 No Content", ["HTTP 204 and other bytes", "concourse-download-url"], 3),
        ("206 Partial Content", ["HTTP 206 and other bytes", "concourse-download-url"], 3),
        ("416 Range", ["HTTP 416 and other bytes", "concourse-download-url"], 3),
    ] {
        let server = Server::new(move |_, stream| reply(stream, status, &[], b""));
        let url = server.url("/c.tgz?token=hunter2").replace("http://", "http://me:hunter2@");
        let text = refusal(&url, Proxy::default());
        assert_has(&text, &words);
        assert_has(&text, &[&server.url("/c.tgz")]);
        assert_eq!(server.seen().len(), asked, "{status}");
    }
}

#[test]
fn the_network_has_its_own_ways_to_fail() {
    let text = refusal("http://no-such-host.invalid/c.tgz", Proxy::default());
    assert_has(&text, &["no-such-host.invalid can't be resolved", "DNS", "resource concourse"]);

    let text = refusal(&format!("http://{}/c.tgz", closed_port()), Proxy::default());
    assert_has(&text, &["connection refused", "mirror"]);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let plain = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(1) {
            reply(&mut stream.unwrap(), "400 Bad Request", &[], b"this is no TLS");
        }
    });
    let text = refusal(&format!("https://{plain}/c.tgz"), Proxy::default());
    assert_has(&text, &["TLS with 127.0.0.1 failed", "add its CA"]);

    let mute = Server::new(|_, _| {});
    let text = refusal(&mute.url("/c.tgz"), Proxy::default());
    assert_has(&text, &["broke", "mirror"]);
    assert_eq!(mute.seen().len(), 3);

    let circle = Server::new(|r, stream| reply(stream, "302 Found", &[("Location", &r.target)], b""));
    let text = refusal(&circle.url("/c.tgz"), Proxy::default());
    assert_has(&text, &["redirects more than 10 times", "concourse-download-url"]);

    for bad in ["ftp://example.com/c.tgz", "concourse.tgz", "", "http://"] {
        assert_has(&refusal(bad, Proxy::default()), &["concourse-download-url is no http or https address"]);
    }
}

#[test]
fn a_silent_server_is_given_up() {
    let m = Machine::new();
    let silent = Server::new(|_, stream| hang(stream));
    let mut order = from_url("8.2.5", silent.url("/c.tgz"));
    order.limits.connect = Duration::from_millis(100);
    order.limits.stall = Duration::from_millis(100);
    let begun = Instant::now();
    assert_has(&m.refused(&order), &["sent nothing for 0.1 s"]);
    assert_eq!(silent.seen().len(), 3);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn proxies_fail_in_three_ways() {
    let https = |proxy: &str| Proxy { https: Some(proxy.to_owned()), ..Proxy::default() };
    let strict = Server::new(|_, stream| reply(stream, "403 Forbidden", &[], b""));
    let text = refusal("https://example.com/c.tgz", https(&format!("http://me:hunter2@{}", strict.addr())));
    assert_has(
        &text,
        &["the proxy does not let https://example.com/c.tgz through", "https-proxy or no-proxy"],
    );
    assert_has(&text, &[&strict.addr().to_string()]);
    assert_eq!(strict.seen()[0].method, "CONNECT");

    let text = refusal("https://example.com/c.tgz", https(&format!("http://me:hunter2@{}", closed_port())));
    assert_has(&text, &["connection refused", "http proxy http://127.0.0.1:"]);

    let locked = Server::new(|_, stream| reply(stream, "407 Who are you", &[], b""));
    let http = Proxy { http: Some(locked.url("")), ..Proxy::default() };
    assert_has(&refusal("http://example.com/c.tgz", http), &["wants a password (HTTP 407)", "http-proxy"]);
    let text = refusal("https://example.com/c.tgz", https(&locked.url("")));
    assert_has(&text, &["proxy authorization required"]);

    let text = refusal("https://example.com/c.tgz", https("http://me:hunter2@no-such-proxy.invalid:3128"));
    assert_has(&text, &["no-such-proxy.invalid:3128", "can't be resolved", "proxy options"]);

    for bad in ["socks5://me:hunter2@10.0.0.1:1080", "http://", "::", "http://me:hunter2@:80"] {
        assert_has(&refusal("https://example.com/c.tgz", https(bad)), &["https-proxy is no proxy"]);
    }
}

#[test]
fn no_digest_no_archive() {
    for body in [None, Some("<html>Welcome</html>"), Some(""), Some("abc  c.tgz")] {
        let m = Machine::new();
        let mut files = vec![("/c.tgz", release("8.2.5"))];
        if let Some(body) = body {
            files.push(("/c.tgz.sha256", body.as_bytes().to_vec()));
            files.push(("/c.tgz.sha1", body.as_bytes().to_vec()));
        }
        let server = Server::of(files);
        let text = m.refused(&from_url("8.2.5", server.url("/c.tgz")));
        assert_has(&text, &["no digest is published", "set concourse-sha256"]);
        assert_eq!(m.list("versions"), [""; 0]);
        assert_eq!(m.parts(), [""; 0]);
    }
}

#[test]
fn an_archive_that_is_not_there_is_what_is_told() {
    let m = Machine::new();
    let server = Server::of(vec![]);
    let text = m.refused(&from_url("8.2.99", server.url("/c.tgz")));
    assert_has(&text, &["/c.tgz does not exist (HTTP 404)"]);
}

#[test]
fn a_digest_that_can_not_be_had_is_no_missing_digest() {
    let m = Machine::new();
    let bytes = release("8.2.5");
    let server = Server::new(move |request, stream| match request.target.as_str() {
        "/c.tgz.sha256" => reply(stream, "503 Later", &[], b""),
        "/c.tgz.sha1" => reply(stream, "200 OK", &[], sha1(&bytes).as_bytes()),
        _ => send(request, stream, &bytes, "\"one\"", usize::MAX),
    });
    let text = m.refused(&from_url("8.2.5", server.url("/c.tgz")));
    assert_has(&text, &["c.tgz.sha256 answered HTTP 503"]);
    assert_eq!(server.asked("/c.tgz.sha256").len(), 3);
    assert!(server.asked("/c.tgz").is_empty());
}

#[test]
fn a_wrong_digest_is_told_and_not_fetched_for_ever() {
    let m = Machine::new();
    let bytes = release("8.2.5");
    let expected = bytes.clone();
    let server = Server::new(move |request, stream| match request.target.as_str() {
        "/c.tgz.sha1" => reply(stream, "200 OK", &[], format!("{} c.tgz", "0".repeat(40)).as_bytes()),
        "/c.tgz" => send(request, stream, &bytes, "\"one\"", usize::MAX),
        _ => reply(stream, "404 Not Found", &[], b""),
    });
    let mut order = from_url("8.2.5", server.url("/c.tgz"));
    let mut texts = Vec::new();
    for _ in 0..4 {
        let (done, told) = m.install_told(&order);
        texts.push(done.unwrap_err());
        assert!(!told.iter().any(|t| t.starts_with("Unpacking")), "the digest comes before unpacking");
        assert_eq!(m.parts(), [""; 0]);
        assert_eq!(m.list("versions"), [""; 0]);
    }
    assert_has(&texts[0], &[&sha1(&expected), &"0".repeat(40), "concourse-sha256"]);
    texts.dedup();
    assert_eq!(texts.len(), 1);
    // Twice it may have been damaged on the way, then the server is known to have it so.
    assert_eq!(m.list("downloads"), ["refused.json"]);
    let told = m.install_told(&order).1;
    assert_eq!(told, [""; 0], "nothing was downloaded");

    order.sha256 = Some(sha256(&expected));
    assert_eq!(m.install(&order), Ok(v("8.2.5")), "the operator knows better");
}

#[test]
fn another_version_is_not_fetched_for_ever() {
    let m = Machine::new();
    let server = Server::release("8.2.4");
    let mut order = from_url("8.2.5", server.url("/c.tgz"));
    assert_has(&m.refused(&order), &["holds Concourse 8.2.4, but 8.2.5", "concourse-download-url"]);
    let (done, told) = m.install_told(&order);
    assert_has(&done.unwrap_err(), &["holds Concourse 8.2.4, but 8.2.5"]);
    assert_eq!(told, [""; 0], "neither downloaded nor unpacked");
    assert_eq!(m.parts(), [""; 0]);

    order.version = Some(v("8.2.4"));
    assert_eq!(m.install(&order), Ok(v("8.2.4")));
    order.version = Some(v("8.2.5"));
    assert_has(&m.refused(&order), &["holds Concourse 8.2.4"]);
    let (_, told) = m.install_told(&order);
    assert_eq!(told, [""; 0], "the same archive under the name of another version");

    // As soon as the server has the right one, it is taken.
    let better = Server::release("8.2.5");
    order.source = Source::Url(better.url("/c.tgz"));
    assert_eq!(m.install(&order), Ok(v("8.2.5")));
}

#[test]
fn a_mirror_that_always_has_the_same_version_is_not_asked_for_it_again() {
    let m = Machine::new();
    let server = Server::release("8.2.4");
    m.install(&from_url("8.2.4", server.url("/c.tgz"))).unwrap();
    let order = from_url("8.2.5", server.url("/c.tgz"));
    assert_has(&m.refused(&order), &["holds Concourse 8.2.4, but 8.2.5"]);
    assert_eq!(m.parts(), [""; 0]);
    assert_eq!(m.install_told(&order).1, [""; 0]);
}

#[test]
fn a_download_ends_in_time() {
    let m = Machine::new();
    let bytes = release("8.2.5");
    let server = Server::new(move |request, stream| {
        send(request, stream, &bytes, "\"one\"", 1000);
        for byte in &bytes[1000..] {
            if std::io::Write::write_all(stream, &[*byte]).is_err() {
                return;
            }
            sleep(Duration::from_millis(20)); // never silent, never done
        }
    });
    let mut order = from_url("8.2.5", server.url("/c.tgz"));
    order.sha256 = Some(DIGEST.to_owned());
    order.limits.total = Duration::from_millis(300);
    let begun = Instant::now();
    assert_has(
        &m.refused(&order),
        &["did not come within", "the next hook goes on", "concourse-download-url"],
    );
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(fs::metadata(m.opt("downloads/c.tgz.part")).unwrap().len() >= 1000);
}
