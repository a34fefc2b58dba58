//! HTTPS as in production, with certificates made for the purpose: trusted, unknown, and through a proxy.

use crate::interrupted::command;
use crate::kit::*;
use concourse_ci_machine::install::installed;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use tempfile::TempDir;

/// `openssl s_server` as a release's host.
struct Https {
    dir: TempDir,
    port: u16,
    process: Child,
}

impl Https {
    /// `None`, loudly, where there is no openssl.
    fn new(files: &[(&str, &[u8])]) -> Option<Https> {
        if Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_err() {
            eprintln!("SKIPPED: no openssl here; install it to test HTTPS");
            return None;
        }
        let dir = TempDir::new().unwrap();
        let openssl = |words: &str| {
            let done =
                Command::new("openssl").args(words.split(' ')).current_dir(dir.path()).output().unwrap();
            assert!(done.status.success(), "{words}: {}", String::from_utf8_lossy(&done.stderr));
        };
        openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem",
        );
        openssl(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout k.pem -out c.csr",
        );
        fs::write(dir.path().join("ext"), "subjectAltName=DNS:localhost\n").unwrap();
        openssl(
            "x509 -req -in c.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out c.pem",
        );
        for (name, bytes) in files {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let accept = format!("127.0.0.1:{port}");
        let process = Command::new("openssl")
            .args(["s_server", "-accept", &accept, "-cert", "c.pem", "-key", "k.pem", "-WWW", "-quiet"])
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("the server", || TcpStream::connect(&accept).is_ok());
        Some(Https { dir, port, process })
    }

    fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }
}

impl Drop for Https {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Passes CONNECT through, as a company's proxy does, and remembers to where.
fn tunnel() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut client = stream.unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && client.read(&mut byte).is_ok_and(|n| n == 1) {
                request.push(byte[0]);
            }
            let request = String::from_utf8(request).unwrap();
            let Some(to) = request.strip_prefix("CONNECT ").and_then(|r| r.split(' ').next()) else {
                continue;
            };
            log.lock().unwrap().push(to.to_owned());
            let mut server = TcpStream::connect(to.replace("localhost", "127.0.0.1")).unwrap();
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
            thread::spawn(move || std::io::copy(&mut server, &mut client));
        }
    });
    (address, seen)
}

fn said(mut child: Command, ca: Option<&Path>) -> String {
    if let Some(ca) = ca {
        child.env("SSL_CERT_FILE", ca);
    }
    String::from_utf8(child.output().unwrap().stdout).unwrap()
}

#[test]
fn https_with_and_without_trust() {
    let bytes = release("8.2.5");
    let Some(host) = Https::new(&[("c.tgz", &bytes)]) else { return };
    let m = Machine::new();
    let mut order = from_url("8.2.5", format!("https://localhost:{}/c.tgz", host.port));
    order.sha256 = Some(sha256(&bytes));

    let text = said(command(&m, &order), None);
    assert!(text.contains("refused: TLS with localhost failed") && text.contains("UnknownIssuer"), "{text}");
    assert!(text.contains("add its CA"), "{text}");
    assert_eq!(installed(&m.root).unwrap(), []);

    let (proxy, seen) = tunnel();
    order.proxy.https = Some(format!("http://{proxy}"));
    let text = said(command(&m, &order), Some(&host.ca()));
    assert!(text.contains("installed 8.2.5"), "{text}");
    assert!(seen.lock().unwrap().iter().all(|to| *to == format!("localhost:{}", host.port)));
    assert!(!seen.lock().unwrap().is_empty());
    assert_eq!(installed(&m.root).unwrap().len(), 1);
}

#[test]
fn https_does_not_step_down() {
    let bytes = release("8.2.5");
    let http = Server::release("8.2.5");
    // -HTTP sends a file as the whole answer, headers and all.
    let answer = format!("HTTP/1.0 302 Found\r\nLocation: {}\r\n\r\n", http.url("/c.tgz"));
    let Some(mut host) = Https::new(&[("c.tgz", answer.as_bytes())]) else { return };
    host.process.kill().unwrap();
    host.process.wait().unwrap();
    let accept = format!("127.0.0.1:{}", host.port);
    host.process = Command::new("openssl")
        .args(["s_server", "-accept", &accept, "-cert", "c.pem", "-key", "k.pem", "-HTTP", "-quiet"])
        .current_dir(host.dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the server", || TcpStream::connect(&accept).is_ok());
    let m = Machine::new();
    let mut order = from_url("8.2.5", format!("https://localhost:{}/c.tgz", host.port));
    order.sha256 = Some(sha256(&bytes));

    let text = said(command(&m, &order), Some(&host.ca()));
    assert!(text.contains("redirects from https to http"), "{text}");
    assert!(http.seen().is_empty());
}
