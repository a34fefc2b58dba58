//! Downloads that succeed, on whatever way.

use crate::kit::*;
use concourse_ci_machine::install::installed;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// An order with the digest given, so that the archive is all that is asked for.
fn sure(version: &str, server: &Server) -> concourse_ci_machine::install::Order {
    let mut order = from_url(version, server.url("/c.tgz"));
    order.sha256 = Some(sha256(&release(version)));
    order
}

#[test]
fn a_release_is_downloaded_checked_and_unpacked() {
    let m = Machine::new();
    let server = Server::release("8.2.5");
    let (done, told) = m.install_told(&from_url("8.2.5", server.url("/c.tgz?token=hunter2")));
    assert!(done.is_err(), "the query is part of the address");

    let (done, more) = m.install_told(&from_url("8.2.5", server.url("/c.tgz")));
    assert_eq!(done, Ok(v("8.2.5")));
    assert_eq!(told, [""; 0]);
    assert_eq!(more, ["Downloading Concourse 8.2.5… 0%", "Unpacking Concourse 8.2.5…"]);
    let all = installed(&m.root).unwrap();
    assert_eq!(all[0].origin.url, Some(server.url("/c.tgz")));
    assert_eq!(all[0].sha256, sha256(&release("8.2.5")));
    assert_eq!(m.list("downloads"), [""; 0]);
    assert!(server.asked("/c.tgz")[0].header("user-agent").unwrap().starts_with("concourse-ci-machine/"));
}

#[test]
fn the_better_digest_is_asked_for_first() {
    let m = Machine::new();
    let bytes = release("8.2.5");
    let server = Server::of(vec![
        ("/c.tgz", bytes.clone()),
        ("/c.tgz.sha256", sha256(&bytes).to_uppercase().into_bytes()),
        ("/c.tgz.sha1", b"0000000000000000000000000000000000000000 c.tgz".to_vec()),
    ]);
    assert_eq!(m.install(&from_url("8.2.5", server.url("/c.tgz"))), Ok(v("8.2.5")));
    assert!(server.asked("/c.tgz.sha1").is_empty());

    // With the operator's own, none is asked for.
    let m = Machine::new();
    assert_eq!(m.install(&sure("8.2.5", &server)), Ok(v("8.2.5")));
    assert_eq!(server.asked("/c.tgz.sha256").len(), 1);
}

#[test]
fn redirects_are_followed_and_passwords_sent_but_not_shown() {
    let m = Machine::new();
    let store = Server::release("8.2.5");
    let to = store.url("");
    let front = Server::new(move |request, stream| {
        assert_eq!(request.header("authorization"), Some("Basic bWU6aHVudGVyMg=="));
        reply(stream, "302 Found", &[("Location", &format!("{to}{}", request.target))], b"");
    });
    let url = front.url("/c.tgz").replace("http://", "http://me:hunter2@");

    assert_eq!(m.install(&from_url("8.2.5", url)), Ok(v("8.2.5")));

    assert_eq!(store.asked("/c.tgz")[0].header("authorization"), None, "passwords are for the first host");
    let record = fs::read_to_string(m.opt("versions/8.2.5/.installed.json")).unwrap();
    assert!(!record.contains("hunter2") && record.contains(&front.url("/c.tgz")), "{record}");
}

#[test]
fn a_broken_connection_is_resumed() {
    let m = Machine::new();
    let bytes = release("8.2.5");
    let server = Server::new(move |request, stream| {
        let most = if request.from().is_some_and(|from| from >= 200_000) { usize::MAX } else { 100_000 };
        send(request, stream, &bytes, "\"one\"", most);
    });
    assert_eq!(m.install(&sure("8.2.5", &server)), Ok(v("8.2.5")));
    let from: Vec<_> = server.seen().iter().map(|r| r.from()).collect();
    assert_eq!(from, [None, Some(100_000), Some(200_000)]);
    assert_eq!(server.seen()[1].header("if-range"), Some("\"one\""));
}

#[test]
fn a_stalled_download_goes_on_in_the_next_call() {
    let m = Machine::new();
    let bytes = release("8.2.5");
    let length = bytes.len();
    let stuck = AtomicUsize::new(3);
    let server = Server::new(move |request, stream| {
        if stuck.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
            send(request, stream, &bytes, "\"one\"", 50_000);
            hang(stream);
        } else {
            send(request, stream, &bytes, "\"one\"", usize::MAX);
        }
    });
    let order = sure("8.2.5", &server);
    let text = m.refused(&order);
    assert!(text.contains("sent nothing for 0.4 s"), "{text}");
    assert_eq!(fs::metadata(m.opt("downloads/c.tgz.part")).unwrap().len(), 150_000);

    let (done, told) = m.install_told(&order);
    assert_eq!(done, Ok(v("8.2.5")));
    assert_eq!(told[0], format!("Downloading Concourse 8.2.5… {}%", 150_000 * 100 / length));
    let from: Vec<_> = server.seen().iter().map(|r| r.from()).collect();
    assert_eq!(from, [None, Some(50_000), Some(100_000), Some(150_000)]);
}

#[test]
fn a_server_without_ranges_begins_again() {
    for etag in
        ["", "ETag: \"one\"\r\n", "ETag: W/\"weak\"\r\n", "Last-Modified: Wed, 01 Jan 2025 00:00:00 GMT\r\n"]
    {
        let m = Machine::new();
        let bytes = release("8.2.5");
        let first = AtomicBool::new(true);
        let server = Server::new(move |_, stream| {
            let cut = if first.swap(false, Ordering::SeqCst) { 1000 } else { bytes.len() };
            let length = bytes.len();
            let text =
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{etag}Content-Length: {length}\r\n\r\n");
            std::io::Write::write_all(stream, &[text.as_bytes(), &bytes[..cut]].concat()).unwrap();
        });
        assert_eq!(m.install(&sure("8.2.5", &server)), Ok(v("8.2.5")), "{etag}");
        let validated = !etag.is_empty() && !etag.contains("W/");
        assert_eq!(
            server.seen()[1].from(),
            validated.then_some(1000),
            "no range without a validator: {etag}"
        );
    }
}

#[test]
fn a_file_that_changed_meanwhile_is_not_patched_together() {
    let bytes = release("8.2.5");
    // An honest server, one that ignores If-Range but names the new tag, and one that begins at another byte.
    for liar in 0..3 {
        let m = Machine::new();
        let (old, new) = (noise(bytes.len() + 5, 9), bytes.clone());
        let first = AtomicBool::new(true);
        let server = Server::new(move |request, stream| match (request.from(), liar) {
            _ if first.swap(false, Ordering::SeqCst) => send(request, stream, &old, "\"old\"", 70_000),
            (Some(from), 1) => {
                let range = format!("bytes {from}-{}/{}", new.len() - 1, new.len());
                let headers = [("ETag", "\"new\""), ("Content-Range", range.as_str())];
                reply(stream, "206 Partial Content", &headers, &new[from..]);
            }
            (Some(_), 2) => {
                let range = format!("bytes 0-{}/{}", new.len() - 1, new.len());
                let headers = [("ETag", "\"old\""), ("Content-Range", range.as_str())];
                reply(stream, "206 Partial Content", &headers, &new);
            }
            _ => send(request, stream, &new, "\"new\"", usize::MAX),
        });
        assert_eq!(m.install(&sure("8.2.5", &server)), Ok(v("8.2.5")), "{liar}");
        assert_eq!(server.seen()[1].from(), Some(70_000));
    }
}

#[test]
fn a_damaged_part_heals_itself() {
    let bytes = release("8.2.5");
    let mut damaged = bytes.clone();
    damaged[1000] ^= 1;
    for part in [&damaged[..5000], &damaged[..]] {
        let m = Machine::new();
        let server = Server::release("8.2.5");
        let order = sure("8.2.5", &server);
        leave_part(&m, &server, &bytes, part);
        assert_eq!(m.install(&order), Ok(v("8.2.5")));
        assert_eq!(server.asked("/c.tgz").last().unwrap().from(), None);
    }
}

/// A part and its JSON as a killed call leaves them.
fn leave_part(m: &Machine, server: &Server, whole: &[u8], part: &[u8]) {
    let key = sha256(server.url("/c.tgz").as_bytes());
    let json = format!(r#"{{"url":"{key}","validator":"\"one\"","length":{}}}"#, whole.len());
    fs::create_dir_all(m.opt("downloads")).unwrap();
    fs::write(m.opt("downloads/c.tgz.json"), json).unwrap();
    fs::write(m.opt("downloads/c.tgz.part"), part).unwrap();
}

#[test]
fn a_whole_part_needs_no_network() {
    let m = Machine::new();
    let server = Server::release("8.2.5");
    let bytes = release("8.2.5");
    leave_part(&m, &server, &bytes, &bytes);
    assert_eq!(m.install(&sure("8.2.5", &server)), Ok(v("8.2.5")));
    assert_eq!(server.seen().len(), 0);
}

#[test]
fn parts_of_other_orders_are_dropped() {
    let bytes = release("8.2.5");
    let longer = [&bytes[..], b"more"].concat();
    for (json, part) in [
        (None, &bytes[..100]), // nobody knows of what
        (Some(r#"{"url":"another","validator":"\"one\"","length":900000}"#), &bytes[..100]),
        (Some("{"), &bytes[..100]),
        (Some(""), &longer[..]), // longer than the whole
    ] {
        let m = Machine::new();
        let server = Server::release("8.2.5");
        leave_part(&m, &server, &bytes, part);
        match json {
            None => fs::remove_file(m.opt("downloads/c.tgz.json")).unwrap(),
            Some("") => {}
            Some(json) => fs::write(m.opt("downloads/c.tgz.json"), json).unwrap(),
        }
        fs::write(m.opt("downloads/old-8.2.4.tgz.part"), "x").unwrap();
        assert_eq!(m.install(&sure("8.2.5", &server)), Ok(v("8.2.5")));
        assert_eq!(server.seen()[0].from(), None);
        assert_eq!(m.parts(), [""; 0]);
    }
}

#[test]
fn an_archive_of_untold_length_is_taken_too() {
    let m = Machine::new();
    let bytes = release("8.2.5");
    let server = Server::new(move |_, stream| {
        head(stream, "200 OK", &[]);
        std::io::Write::write_all(stream, &bytes).unwrap();
    });
    let (done, told) = m.install_told(&sure("8.2.5", &server));
    assert_eq!(done, Ok(v("8.2.5")));
    assert_eq!(told[0], "Downloading Concourse 8.2.5… 0 MB");
}

#[test]
fn a_server_in_trouble_is_asked_again() {
    for status in ["500 Oops", "503 Later", "429 Slow down"] {
        let m = Machine::new();
        let bytes = release("8.2.5");
        let count = AtomicUsize::new(0);
        let server = Server::new(move |request, stream| match count.fetch_add(1, Ordering::SeqCst) {
            0 => reply(stream, status, &[], b""),
            1 => {} // closes without a word
            _ => send(request, stream, &bytes, "\"one\"", usize::MAX),
        });
        assert_eq!(m.install(&sure("8.2.5", &server)), Ok(v("8.2.5")));
        assert_eq!(server.seen().len(), 3);
    }
}

#[test]
fn progress_is_told_in_measure() {
    let m = Machine::new();
    let bytes = release("8.2.5");
    let server = Server::new(move |_, stream| {
        let length = bytes.len().to_string();
        head(stream, "200 OK", &[("Content-Length", &length)]);
        for piece in bytes.chunks(bytes.len() / 100) {
            std::io::Write::write_all(stream, piece).unwrap();
            sleep(Duration::from_millis(24)); // the pace is what is tested
        }
    });
    let mut told = Vec::new();
    let order = sure("8.2.5", &server);
    concourse_ci_machine::install::install(&m.root, &order, &mut |text| {
        told.push((Instant::now(), text.to_owned()));
    })
    .unwrap()
    .unwrap();

    let downloads: Vec<_> = told.iter().filter(|(_, t)| t.starts_with("Downloading")).collect();
    assert!((3..=4).contains(&downloads.len()), "{downloads:?}");
    for pair in downloads.windows(2) {
        assert!(pair[1].0 - pair[0].0 >= Duration::from_secs(1), "{downloads:?}");
        assert_ne!(pair[1].1, pair[0].1);
    }
}

#[test]
fn a_proxy_is_used_unless_it_says_no() {
    let origin = Server::release("8.2.5");
    let proxied = |no: &str| {
        let m = Machine::new();
        let bytes = release("8.2.5");
        let proxy = Server::new(move |request, stream| {
            assert_eq!(request.header("proxy-authorization"), Some("Basic bWU6aHVudGVyMg=="));
            send(request, stream, &bytes, "\"one\"", usize::MAX);
        });
        let mut order = sure("8.2.5", &origin);
        order.proxy.http = Some(format!("me:hunter2@{}", proxy.addr())); // scheme left out, as people do
        order.proxy.no = Some(no.to_owned());
        assert_eq!(m.install(&order), Ok(v("8.2.5")));
        proxy.seen().iter().map(|r| r.target.clone()).collect::<Vec<_>>()
    };
    assert_eq!(proxied(""), [origin.url("/c.tgz")]);
    assert_eq!(proxied("10.0.0.0/8,example.com"), [origin.url("/c.tgz")]);
    for no in ["127.0.0.1", "example.com, 127.0.0.0/8", "*", "localhost,*"] {
        assert_eq!(proxied(no), [""; 0], "{no}");
    }
}
