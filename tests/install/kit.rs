//! A machine in a directory, archives, and a server that does as it is told.

use concourse_ci_machine::host::fs::Root;
use concourse_ci_machine::install::{Limits, Order, Proxy, Refusal, Source, install};
use concourse_ci_machine::parse::Version;
use flate2::{Compression, write::GzEncoder};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A directory that stands for a machine.
pub struct Machine {
    pub root: Root,
    pub dir: PathBuf,
    _temp: Option<TempDir>,
}

impl Machine {
    pub fn new() -> Self {
        let temp = TempDir::new().unwrap();
        Machine { root: Root::new(temp.path()), dir: temp.path().to_owned(), _temp: Some(temp) }
    }

    pub fn at(dir: &Path) -> Self {
        Machine { root: Root::new(dir), dir: dir.to_owned(), _temp: None }
    }

    pub fn opt(&self, path: &str) -> PathBuf {
        self.dir.join("opt/concourse").join(path)
    }

    /// A resource as Juju leaves it.
    pub fn resource(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub fn install(&self, order: &Order) -> Result<Version, String> {
        self.install_told(order).0
    }

    /// Also gives what was told on the way.
    pub fn install_told(&self, order: &Order) -> (Result<Version, String>, Vec<String>) {
        let mut told = Vec::new();
        let done = install(&self.root, order, &mut |text| told.push(text.to_owned())).unwrap();
        for text in told.iter().chain(done.as_ref().err().map(|Refusal(text)| text)) {
            assert!(!text.contains("hunter2"), "shows a password: {text}");
            assert!(!text.contains('\n'), "is more than a line: {text}");
        }
        (done.map_err(|Refusal(text)| text), told)
    }

    pub fn refused(&self, order: &Order) -> String {
        self.install(order).expect_err("a refusal")
    }

    /// What lies below a directory, sorted; empty if it isn't there.
    pub fn list(&self, path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.opt(path)) else { return Vec::new() };
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub fn parts(&self) -> Vec<String> {
        self.list("downloads").into_iter().filter(|n| n.ends_with(".part")).collect()
    }
}

pub fn v(version: &str) -> Version {
    version.parse().unwrap()
}

/// Limits that let a test wait for a time-out.
pub fn quick() -> Limits {
    Limits {
        connect: Duration::from_secs(3),
        stall: Duration::from_millis(400),
        total: Duration::from_secs(20),
        attempts: 3,
        pause: Duration::from_millis(5),
        probe: Duration::from_secs(10),
        lock: Duration::from_millis(100),
    }
}

pub fn order(version: &str, source: Source) -> Order {
    Order { version: Some(v(version)), source, sha256: None, proxy: Proxy::default(), limits: quick() }
}

pub fn from_file(version: &str, path: &Path) -> Order {
    order(version, Source::Resource(path.to_owned()))
}

pub fn from_url(version: &str, url: impl Into<String>) -> Order {
    order(version, Source::Url(url.into()))
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub fn sha1(bytes: &[u8]) -> String {
    hex(&Sha1::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, b| {
        write!(text, "{b:02x}").unwrap();
        text
    })
}

/// Bytes that don't compress.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(|_| next()).collect()
}

/// An archive in the making, also of what a well-meaning tar never writes.
pub struct Tgz(tar::Builder<Vec<u8>>);

impl Tgz {
    pub fn new() -> Self {
        Tgz(tar::Builder::new(Vec::new()))
    }

    pub fn entry(mut self, kind: tar::EntryType, name: &str, mode: u32, link: &str, body: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(body.len() as u64);
        // Past the checks of set_path and set_link_name.
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name.as_bytes());
        old.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.0.append(&header, body).unwrap();
        self
    }

    pub fn file(self, name: &str, mode: u32, body: &[u8]) -> Self {
        self.entry(tar::EntryType::Regular, name, mode, "", body)
    }

    pub fn dir(self, name: &str) -> Self {
        self.entry(tar::EntryType::Directory, name, 0o755, "", b"")
    }

    pub fn symlink(self, name: &str, to: &str) -> Self {
        self.entry(tar::EntryType::Symlink, name, 0o777, to, b"")
    }

    pub fn hard_link(self, name: &str, to: &str) -> Self {
        self.entry(tar::EntryType::Link, name, 0o777, to, b"")
    }

    /// A `bin/concourse` that says `version`.
    pub fn concourse(self, version: &str) -> Self {
        self.script(&format!("echo {version}"))
    }

    pub fn script(self, text: &str) -> Self {
        self.file("concourse/bin/concourse", 0o755, format!("#!/bin/sh\n{text}\n").as_bytes())
    }

    pub fn tar(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }

    pub fn pack(self) -> Vec<u8> {
        gzip(&self.tar())
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

/// A release of about 300 kB.
pub fn release(version: &str) -> Vec<u8> {
    Tgz::new()
        .dir("concourse/")
        .concourse(version)
        .file("concourse/resource-types/git/rootfs.tgz", 0o644, &noise(300_000, 7))
        .pack()
}

#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub target: String,
    pub headers: HashMap<String, String>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Where a range begins.
    pub fn from(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

/// Answers each request by `script`, one request per connection.
pub struct Server {
    addr: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    over: Arc<AtomicBool>,
}

impl Server {
    pub fn new(script: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let over = Arc::new(AtomicBool::new(false));
        let (script, log, end) = (Arc::new(script), seen.clone(), over.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                if end.load(Ordering::SeqCst) {
                    break;
                }
                let (script, log) = (script.clone(), log.clone());
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    if let Some(request) = read_request(&stream) {
                        log.lock().unwrap().push(request.clone());
                        script(&request, &mut stream);
                    }
                });
            }
        });
        Server { addr, seen, over }
    }

    /// A server of whole files that knows ranges.
    pub fn of(files: Vec<(&str, Vec<u8>)>) -> Self {
        let files: HashMap<String, Vec<u8>> = files.into_iter().map(|(n, b)| (n.to_owned(), b)).collect();
        Server::new(move |request, stream| match files.get(&request.target) {
            Some(body) => send(request, stream, body, "\"one\"", usize::MAX),
            None => reply(stream, "404 Not Found", &[], b"no such file"),
        })
    }

    /// A release as GitHub has it: with a .sha1 beside.
    pub fn release(version: &str) -> Self {
        let bytes = release(version);
        let sum = format!("{}  c.tgz\n", sha1(&bytes));
        Server::of(vec![("/c.tgz", bytes), ("/c.tgz.sha1", sum.into_bytes())])
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    /// The requests for one target.
    pub fn asked(&self, target: &str) -> Vec<Request> {
        self.seen().into_iter().filter(|r| r.target == target).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.addr));
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let headers = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(':').map(|(n, v)| (n.to_ascii_lowercase(), v.trim().to_owned())))
        .collect();
    Some(Request { method, target, headers })
}

pub fn head(stream: &mut TcpStream, status: &str, headers: &[(&str, &str)]) {
    let mut text = format!("HTTP/1.1 {status}\r\nConnection: close\r\n");
    for (name, value) in headers {
        write!(text, "{name}: {value}\r\n").unwrap();
    }
    drop(stream.write_all(format!("{text}\r\n").as_bytes()));
}

pub fn reply(stream: &mut TcpStream, status: &str, headers: &[(&str, &str)], body: &[u8]) {
    let length = body.len().to_string();
    let all: Vec<_> = headers.iter().copied().chain([("Content-Length", length.as_str())]).collect();
    head(stream, status, &all);
    drop(stream.write_all(body));
}

/// Sends a file as a good server does, but no more than `most` bytes of what it announces.
pub fn send(request: &Request, stream: &mut TcpStream, body: &[u8], etag: &str, most: usize) {
    let unchanged = request.header("if-range").is_none_or(|tag| tag == etag);
    let (status, from) = match request.from().filter(|_| unchanged) {
        Some(from) => ("206 Partial Content", from),
        None => ("200 OK", 0),
    };
    let rest = &body[from..];
    let length = rest.len().to_string();
    let range = format!("bytes {from}-{}/{}", body.len().saturating_sub(1), body.len());
    let mut headers = vec![("ETag", etag), ("Content-Length", &length)];
    if from > 0 {
        headers.push(("Content-Range", &range));
    }
    head(stream, status, &headers);
    drop(stream.write_all(&rest[..most.min(rest.len())]));
}

/// Says nothing more until the client goes away.
pub fn hang(stream: &mut TcpStream) {
    drop(stream.read_to_end(&mut Vec::new()));
}

/// Waits for what must come.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what} did not come");
        thread::sleep(Duration::from_millis(5));
    }
}
