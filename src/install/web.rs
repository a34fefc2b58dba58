//! HTTP with time limits, proxies and patience. Each failure becomes one sentence with its cause and what to do.

use super::{Limits, Proxy, Step, Stop, one_line, refuse};
use reqwest::header::{ACCEPT_ENCODING, HeaderName};
use reqwest::{Client, NoProxy, Response, StatusCode, Url, redirect};
use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const OTHER_WAYS: &str = "set concourse-download-url to a mirror or attach the resource concourse";

/// A request that failed.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) stop: Stop,
    /// Whether it may go better a little later.
    again: bool,
    status: Option<StatusCode>,
}

impl Trouble {
    pub(super) fn again(text: impl Into<String>) -> Trouble {
        Trouble { stop: refuse(text), again: true, status: None }
    }

    fn never(text: impl Into<String>) -> Trouble {
        Trouble { stop: refuse(text), again: false, status: None }
    }
}

impl From<Stop> for Trouble {
    fn from(stop: Stop) -> Self {
        Trouble { stop, again: false, status: None }
    }
}

impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Self {
        Stop::Failed(error).into()
    }
}

/// The door to the network.
pub(super) struct Web {
    client: Client,
    connect: Duration,
    stall: Duration,
    /// The proxies for http and https, fit to be shown.
    via: [Option<String>; 2],
}

impl Web {
    pub(super) fn new(proxy: &Proxy, limits: &Limits) -> Step<Web> {
        let no = proxy.no.as_deref().unwrap_or_default();
        // reqwest's `*` means names only, everyone else's means addresses too.
        let direct = no.split(',').any(|entry| entry.trim() == "*");
        let http = proxy_url("http-proxy", proxy.http.as_deref().filter(|_| !direct))?;
        let https = proxy_url("https-proxy", proxy.https.as_deref().filter(|_| !direct))?;
        let via = [&http, &https].map(|p| p.as_ref().map(public));

        // No proxy of the environment: a hook's differs from what the options say.
        let mut builder = Client::builder().no_proxy();
        let exempt = NoProxy::from_string(no);
        let bad = |_| refuse("http-proxy or https-proxy can't be used: give each as http://host:port");
        if let Some(url) = http {
            builder = builder.proxy(reqwest::Proxy::http(url).map_err(bad)?.no_proxy(exempt.clone()));
        }
        if let Some(url) = https {
            builder = builder.proxy(reqwest::Proxy::https(url).map_err(bad)?.no_proxy(exempt));
        }
        let client = builder
            .user_agent(concat!("concourse-ci-machine/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(limits.connect)
            .redirect(redirects())
            .build()
            .map_err(|e| {
                refuse(format!(
                    "TLS can't be set up ({}): install the package ca-certificates",
                    words(&e.without_url())
                ))
            })?;
        Ok(Web { client, connect: limits.connect, stall: limits.stall, via })
    }

    /// Gives an answer that is a success or says that a range is beyond the end.
    pub(super) async fn get(&self, url: &Url, headers: &[(HeaderName, &str)]) -> Result<Response, Trouble> {
        let mut request = self.client.get(url.clone()).header(ACCEPT_ENCODING, "identity");
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let answer = timeout(self.connect + self.stall, request.send()).await;
        let response = answer.map_err(|_| self.silent(url))?.map_err(|e| self.explain(e, url))?;
        match response.status() {
            status if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE => Ok(response),
            status => Err(self.unwelcome(status, url)),
        }
    }

    /// The next bytes of a body; `None`: it is over.
    pub(super) async fn chunk(
        &self,
        response: &mut Response,
        url: &Url,
    ) -> Result<Option<impl AsRef<[u8]> + use<>>, Trouble> {
        match timeout(self.stall, response.chunk()).await {
            Err(_) => Err(self.silent(url)),
            Ok(Err(e)) => Err(self.explain(e, url)),
            Ok(Ok(bytes)) => Ok(bytes),
        }
    }

    /// The start of a small file; `None`: there is none.
    pub(super) async fn small_text(&self, url: &Url) -> Result<Option<String>, Trouble> {
        let mut response = match self.get(url, &[]).await {
            Ok(response) => response,
            // Object stores answer 403 for what isn't there.
            Err(Trouble { status: Some(status), .. }) if matches!(status.as_u16(), 403 | 404 | 410) => {
                return Ok(None);
            }
            Err(other) => return Err(other),
        };
        let mut text = Vec::new();
        while text.len() < 4096
            && let Some(bytes) = self.chunk(&mut response, url).await?
        {
            text.extend_from_slice(bytes.as_ref());
        }
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }

    /// Tries as often as the limits say, with growing pauses; what no patience helps is told at once.
    pub(super) async fn patiently<T>(
        &self,
        limits: &Limits,
        mut request: impl AsyncFnMut() -> Result<T, Trouble>,
    ) -> Step<T> {
        let mut pause = limits.pause;
        let mut left = limits.attempts.max(1);
        loop {
            left -= 1;
            match request().await {
                Ok(value) => return Ok(value),
                Err(trouble) if trouble.again && left > 0 => {
                    sleep(pause).await;
                    pause *= 3;
                }
                Err(trouble) => return Err(trouble.stop),
            }
        }
    }

    fn silent(&self, url: &Url) -> Trouble {
        let seconds = self.stall.as_secs_f32();
        Trouble::again(format!("{} sent nothing for {seconds} s{}: {OTHER_WAYS}", public(url), self.by(url)))
    }

    fn unwelcome(&self, status: StatusCode, url: &Url) -> Trouble {
        let at = public(url);
        let code = status.as_u16();
        let text = match code {
            404 | 410 => format!(
                "{at} does not exist (HTTP {code}): check concourse-version and concourse-download-url, \
                 or attach the resource concourse"
            ),
            401 | 403 => format!("{at} may not be read (HTTP {code}): {OTHER_WAYS}"),
            407 => format!(
                "the proxy{} wants a password (HTTP 407): give it as http://user:password@host:port in http-proxy \
                 and https-proxy",
                self.via(url).map(|p| format!(" {p}")).unwrap_or_default()
            ),
            _ => format!("{at} answered HTTP {code}{}: wait, or {OTHER_WAYS}", self.by(url)),
        };
        let again = status.is_server_error() || matches!(code, 408 | 429);
        Trouble { stop: refuse(text), again, status: Some(status) }
    }

    fn explain(&self, error: reqwest::Error, url: &Url) -> Trouble {
        let error = error.without_url(); // it may hold a password, and a redirect's token
        let (at, by) = (public(url), self.by(url));
        let host = url.host_str().unwrap_or_default();
        let words = words(&error);
        if error.is_redirect() {
            return Trouble::never(format!(
                "{at} can't be followed ({words}): correct concourse-download-url"
            ));
        }
        if error.is_timeout() {
            let seconds = self.connect.as_secs_f32();
            return Trouble::again(format!(
                "no connection for {at} within {seconds} s{by}: check the proxy options and firewall, or {OTHER_WAYS}"
            ));
        }
        if words.contains("tunnel error") && !words.contains("failed to create underlying connection") {
            return Trouble::never(format!(
                "the proxy does not let {at} through ({words}){by}: correct https-proxy or no-proxy"
            ));
        }
        if words.contains("dns error") {
            let named = self.via(url).map_or_else(|| host.to_owned(), |p| format!("{host} or the proxy {p}"));
            return Trouble::again(format!(
                "the name {named} can't be resolved: check DNS, the proxy options, or {OTHER_WAYS}"
            ));
        }
        match cause(&error) {
            Some(ErrorKind::ConnectionRefused) => {
                Trouble::again(format!("{at} can't be reached: connection refused{by}: {OTHER_WAYS}"))
            }
            // rustls speaks through I/O errors: of this kind if it disliked what it got.
            Some(kind) if words.contains("tls") || (kind == ErrorKind::InvalidData && error.is_connect()) => {
                let text = format!(
                    "TLS with {host} failed ({words}){by}: add its CA to the machine's certificates, or {OTHER_WAYS}"
                );
                if kind == ErrorKind::InvalidData { Trouble::never(text) } else { Trouble::again(text) }
            }
            _ => {
                Trouble::again(format!("the connection for {at} broke ({words}){by}: wait, or {OTHER_WAYS}"))
            }
        }
    }

    fn via(&self, url: &Url) -> Option<&str> {
        self.via[usize::from(url.scheme() == "https")].as_deref()
    }

    fn by(&self, url: &Url) -> String {
        self.via(url).map(|p| format!(" (http proxy {p})")).unwrap_or_default()
    }
}

/// An address without what must not be shown.
pub(super) fn public(url: &Url) -> String {
    let mut url = url.clone();
    // Both only fail for addresses that can't carry credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

fn proxy_url(option: &str, value: Option<&str>) -> Step<Option<Url>> {
    let Some(value) = value.map(str::trim).filter(|v| !v.is_empty()) else { return Ok(None) };
    let full = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
    match Url::parse(&full) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(Some(url)),
        _ => Err(refuse(format!("{option} is no proxy that can be used: give it as http://host:port"))),
    }
}

/// GitHub redirects to its store. A step down from https would undo the trust in the published digest.
fn redirects() -> redirect::Policy {
    redirect::Policy::custom(|attempt| {
        let down =
            attempt.url().scheme() == "http" && attempt.previous().iter().any(|u| u.scheme() == "https");
        if down {
            attempt.error("it redirects from https to http")
        } else if attempt.previous().len() > 10 {
            attempt.error("it redirects more than 10 times")
        } else {
            attempt.follow()
        }
    })
}

/// The error's chain without its head, which says no more than "error sending request".
fn words(error: &reqwest::Error) -> String {
    let mut all: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(source) = next {
        let text = source.to_string();
        if all.last().is_none_or(|last| !last.contains(&text)) {
            all.push(text);
        }
        next = source.source();
    }
    one_line(&if all.is_empty() { error.to_string() } else { all.join(": ") }, 300)
}

/// The kind of the innermost I/O error; one that wraps another doesn't name it as its source.
fn cause(error: &reqwest::Error) -> Option<ErrorKind> {
    let mut kind = None;
    let mut next = error.source();
    while let Some(source) = next {
        let mut io = source.downcast_ref::<std::io::Error>();
        while let Some(outer) = io {
            kind = Some(outer.kind());
            io = outer.get_ref().and_then(|inner| inner.downcast_ref());
        }
        next = source.source();
    }
    kind
}
