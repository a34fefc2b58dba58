//! A mirror of release archives that can be made to misbehave.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

/// How the mirror behaves from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Manners {
    /// Well.
    Good,
    /// Sends so many bytes of an archive, and then nothing more, for ever.
    Hang(usize),
    /// Sends an archive with one byte changed.
    Corrupt,
    /// Answers 404.
    Missing,
}

/// An HTTP server on all addresses of this computer.
pub struct Mirror {
    /// Its port.
    pub port: u16,
    manners: Arc<Mutex<Manners>>,
}

impl Mirror {
    /// Serves the files of a directory, until the test's process ends.
    pub fn start(dir: &Path) -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let manners = Arc::new(Mutex::new(Manners::Good));
        let (dir, shared) = (dir.to_owned(), manners.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (dir, manners) = (dir.clone(), shared.lock().unwrap().clone());
                thread::spawn(move || drop(serve(stream, &dir, &manners)));
            }
        });
        Mirror { port, manners }
    }

    /// Changes its manners.
    pub fn set(&self, manners: Manners) {
        *self.manners.lock().unwrap() = manners;
    }
}

fn serve(mut stream: TcpStream, dir: &Path, manners: &Manners) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let mut from = 0;
    for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
        let line = line.to_ascii_lowercase();
        if let Some(range) = line.strip_prefix("range: bytes=") {
            from = range.trim_end_matches('-').parse().unwrap_or(0);
        }
    }
    let name = request.split(' ').nth(1).unwrap_or("/").rsplit('/').next().unwrap_or_default().to_owned();
    let path: PathBuf = dir.join(&name);
    if *manners == Manners::Missing || name.is_empty() || !path.is_file() {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let mut bytes = std::fs::read(&path)?;
    let archive = name.ends_with(".tgz");
    if archive && *manners == Manners::Corrupt {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    }
    let total = bytes.len();
    let body = &bytes[from.min(total)..];
    let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
    let range = format!("Content-Range: bytes {from}-{}/{total}\r\n", total - 1);
    // Other bytes have another tag.
    let tag = if *manners == Manners::Corrupt { "bad" } else { "good" };
    let head = format!(
        "HTTP/1.1 {status}\r\nETag: \"{total}-{tag}\"\r\nAccept-Ranges: bytes\r\n{}Content-Length: {}\r\nConnection: close\r\n\r\n",
        if from > 0 { range.as_str() } else { "" },
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if let (true, Manners::Hang(after)) = (archive, manners) {
        stream.write_all(&body[..(*after).min(body.len())])?;
        stream.flush()?;
        // Until the other side has had enough.
        drop(stream.read(&mut [0]));
        return Ok(());
    }
    stream.write_all(body)
}
