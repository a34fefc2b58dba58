//! A small HTTP/1.1 server and client: one request per connection is all that is needed here.

use anyhow::{Context, Result, anyhow, bail};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

const MAX_HEAD: usize = 64 * 1024;
const MAX_BODY: usize = 16 * 1024 * 1024;

/// A request as the handlers see it.
pub struct Request {
    /// GET, POST, …
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// The query, undecoded.
    pub query: String,
    /// Header names in lower case.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
}

impl Request {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
    }
}

/// An answer.
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The content type.
    pub kind: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// An answer with text.
    pub fn text(status: u16, text: impl Into<String>) -> Response {
        Response { status, kind: "text/plain; charset=utf-8", body: text.into().into_bytes() }
    }

    /// An answer with JSON.
    pub fn json(status: u16, value: &serde_json::Value) -> Response {
        Response { status, kind: "application/json", body: format!("{value}\n").into_bytes() }
    }
}

/// What answers requests.
pub type Handler = Arc<dyn Fn(&Request) -> Response + Send + Sync>;

/// What wraps an accepted connection (TLS), if anything does.
pub type Wrap = Option<Arc<rustls::ServerConfig>>;

/// Listens, and serves in threads of its own from then on.
pub fn serve(address: &str, wrap: Wrap, handler: Handler) -> Result<()> {
    let listener = TcpListener::bind(address).map_err(|e| anyhow!("listen tcp {address}: bind: {e}"))?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (handler, wrap) = (handler.clone(), wrap.clone());
            std::thread::spawn(move || {
                let _ = stream.set_read_timeout(Some(Duration::from_secs(30)));
                let _ = stream.set_write_timeout(Some(Duration::from_secs(30)));
                let _ = match wrap {
                    None => answer(stream, &handler),
                    Some(config) => rustls::ServerConnection::new(config)
                        .map_err(anyhow::Error::from)
                        .and_then(|c| answer(rustls::StreamOwned::new(c, stream), &handler)),
                };
            });
        }
    });
    Ok(())
}

fn answer(mut stream: impl Read + Write, handler: &Handler) -> Result<()> {
    let request = read_request(&mut stream)?;
    let response = handler(&request);
    let head = format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nX-Concourse-Stand-In: true\r\nConnection: close\r\n\r\n",
        response.status,
        reason(response.status),
        response.kind,
        response.body.len()
    );
    stream.write_all(head.as_bytes())?;
    if request.method != "HEAD" {
        stream.write_all(&response.body)?;
    }
    stream.flush()?;
    Ok(())
}

fn read_request(stream: &mut impl Read) -> Result<Request> {
    let (head, mut body) = read_head(stream)?;
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut headers);
    parsed.parse(&head)?;
    let target = parsed.path.unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers = lower(parsed.headers);
    let request = Request {
        method: parsed.method.unwrap_or("GET").into(),
        path: percent_decode(path, false),
        query: query.into(),
        headers,
        body: Vec::new(),
    };
    let length = request.header("content-length").map_or(Ok(0), str::parse::<usize>)?;
    read_body(stream, &mut body, length)?;
    Ok(Request { body, ..request })
}

/// Reads up to the empty line; gives the head and what came after it.
fn read_head(stream: &mut impl Read) -> Result<(Vec<u8>, Vec<u8>)> {
    let mut data = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(end) = data.windows(4).position(|w| w == b"\r\n\r\n") {
            let body = data.split_off(end + 4);
            return Ok((data, body));
        }
        let n = stream.read(&mut chunk)?;
        if n == 0 || data.len() > MAX_HEAD {
            bail!("connection closed or head too long");
        }
        data.extend_from_slice(&chunk[..n]);
    }
}

fn read_body(stream: &mut impl Read, body: &mut Vec<u8>, length: usize) -> Result<()> {
    if length > MAX_BODY {
        bail!("body too long");
    }
    let have = body.len().min(length);
    body.resize(length, 0);
    stream.read_exact(&mut body[have..])?;
    Ok(())
}

fn lower(headers: &[httparse::Header]) -> Vec<(String, String)> {
    headers
        .iter()
        .map(|h| (h.name.to_lowercase(), String::from_utf8_lossy(h.value).trim().to_owned()))
        .collect()
}

/// A client's view of an answer.
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The whole body.
    pub body: Vec<u8>,
}

/// Sends one request to a plain-HTTP server (`http://host:port`).
pub fn request(
    base: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Answer> {
    let host = base
        .trim_end_matches('/')
        .strip_prefix("http://")
        .ok_or_else(|| anyhow!("the stand-in's client knows http:// only, not {base}"))?;
    let address = if host.rsplit(']').next().unwrap_or(host).contains(':') {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    let mut stream = TcpStream::connect(&address).with_context(|| format!("connect to {address}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    stream.write_all(body)?;
    let (head, mut body) = read_head(&mut stream)?;
    let mut slots = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Response::new(&mut slots);
    parsed.parse(&head)?;
    let headers = lower(parsed.headers);
    match headers.iter().find(|(k, _)| k == "content-length") {
        Some((_, n)) => read_body(&mut stream, &mut body, n.parse()?)?,
        None => drop(stream.read_to_end(&mut body)?),
    }
    Ok(Answer { status: parsed.code.unwrap_or(0), body })
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Status",
    }
}

/// `a%20b` → `a b`; in forms `+` is a space too.
pub fn percent_decode(text: &str, form: bool) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        let code = bytes
            .get(i + 1..i + 3)
            .and_then(|h| std::str::from_utf8(h).ok())
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match (bytes[i], code) {
            (b'%', Some(code)) => {
                out.push(code);
                i += 2;
            }
            (b'+', _) if form => out.push(b' '),
            (other, _) => out.push(other),
        }
        i += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A field of a form or query.
pub fn form_field(form: &str, name: &str) -> Option<String> {
    form.split('&')
        .filter_map(|p| p.split_once('='))
        .find(|(k, _)| *k == name)
        .map(|(_, v)| percent_decode(v, true))
}

/// Text made safe for a form or a path.
pub fn percent_encode(text: &str) -> String {
    text.bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() || b"-_.~".contains(&b) {
                (b as char).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        assert_eq!(form_field("a=1&password=p%40%2B+x", "password").as_deref(), Some("p@+ x"));
        assert_eq!(form_field("a=1", "b"), None);
        assert_eq!(percent_decode(&percent_encode("ä/ %+"), true), "ä/ %+");
        assert_eq!(percent_decode("100%", false), "100%");
    }

    #[test]
    fn a_request_in_pieces() {
        let text = b"PUT /api/v1/workers/a%20b/land?x=1 HTTP/1.1\r\nHost: h\r\ncontent-LENGTH: 2\r\n\r\n{}";
        let request = read_request(&mut &text[..]).unwrap();
        assert_eq!(
            (request.method.as_str(), request.path.as_str(), request.query.as_str()),
            ("PUT", "/api/v1/workers/a b/land", "x=1")
        );
        assert_eq!(request.body, b"{}");
    }
}
