//! Fetches an archive: resumes, checks its digest, and leaves what it has to the next call if it must stop.

use super::digest::{self, Digests, Expected};
use super::memo::Memo;
use super::part::{self, Part};
use super::web::{Trouble, Web, public};
use super::{Archive, Order, Origin, Step, Stop, label, mb, refuse, space};
use crate::host::fs::Root;
use anyhow::Context;
use reqwest::header::{CONTENT_RANGE, ETAG, HeaderMap, HeaderName, IF_RANGE, LAST_MODIFIED, RANGE};
use reqwest::{Response, StatusCode, Url};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Gives the archive at `url` with the digest that it must have.
pub(super) fn fetch(root: &Root, url: &str, order: &Order, progress: &mut dyn FnMut(&str)) -> Step<Archive> {
    let url = Url::parse(url)
        .ok()
        .filter(|u| matches!(u.scheme(), "http" | "https") && u.has_host())
        .ok_or_else(|| refuse("concourse-download-url is no http or https address: correct it"))?;
    let web = Web::new(&order.proxy, &order.limits)?;
    let part = Part::open(root, &url)?;
    part::clear(root, Some(&part))?;
    let meter = Meter { say: progress, label: label(order), last: None };
    let at = public(&url);
    let mut job = Job { root, order, url, part, meter };

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to set up the network")?;
    let done = runtime.block_on(async { timeout(order.limits.total, job.run(&web)).await });
    // A name that is still being resolved has a thread of its own, which nobody waits for.
    runtime.shutdown_background();
    done.unwrap_or_else(|_| {
        let minutes = order.limits.total.as_secs().div_ceil(60);
        Err(refuse(format!(
            "{at} did not come within {minutes} min: the next hook goes on where this one ended; a mirror in \
             concourse-download-url may be faster"
        )))
    })
}

struct Job<'a> {
    root: &'a Root,
    order: &'a Order,
    url: Url,
    part: Part,
    meter: Meter<'a>,
}

impl Job<'_> {
    async fn run(&mut self, web: &Web) -> Step<Archive> {
        let limits = &self.order.limits;
        let expected = match &self.order.sha256 {
            Some(sha256) => Expected::Operator(sha256.clone()),
            None => digest::published(web, &self.url, limits).await?,
        };
        let what = public(&self.url);
        let mut rounds = 2;
        loop {
            rounds -= 1;
            let digests = web.patiently(limits, async || self.attempt(web, &expected).await).await?;
            let memo = Memo::of_url(self.part.key(), self.part.validator(), self.part.length(), &digests);
            match expected.check(&digests, &what) {
                Ok(()) => {
                    let origin = Origin { url: Some(what), stamps: Vec::new() };
                    return Ok(Archive { path: self.part.path().to_owned(), digests, origin, memo });
                }
                // The part of an earlier hook may be damaged or stale: that is no fault of the server's.
                Err(_) if self.part.spliced() && rounds > 0 => self.part.discard()?,
                Err(no) => {
                    if !self.part.spliced() {
                        memo.write(self.root)?;
                    }
                    self.part.discard()?;
                    return Err(no);
                }
            }
        }
    }

    /// One request for all that is missing.
    async fn attempt(&mut self, web: &Web, expected: &Expected) -> Result<Digests, Trouble> {
        if !self.part.complete() {
            let mut response = self.ask(web, expected).await?;
            let filled = self.fill(web, &mut response).await;
            filled.map_err(|trouble| self.make_room(trouble))?;
        }
        Ok(self.part.finish()?)
    }

    async fn ask(&mut self, web: &Web, expected: &Expected) -> Result<Response, Trouble> {
        let from = format!("bytes={}-", self.part.len());
        let mut headers: Vec<(HeaderName, &str)> = Vec::new();
        if self.part.len() > 0
            && let Some(validator) = self.part.validator()
        {
            // If-Range: the server sends all of it if it is not the same file any more.
            headers = vec![(RANGE, &from), (IF_RANGE, validator)];
        }
        let ranged = !headers.is_empty();
        let response = web.get(&self.url, &headers).await?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT if ranged && self.continues(&response) => self.part.resume()?,
            StatusCode::OK => {
                let validator = validator(response.headers());
                let length = response.content_length();
                self.recall(validator.as_deref(), length, expected)?;
                self.part.start(validator, length)?;
            }
            status => {
                self.part.discard()?;
                return Err(Trouble::again(format!(
                    "{} answered a request with HTTP {} and other bytes than asked for: correct \
                     concourse-download-url",
                    public(&self.url),
                    status.as_u16()
                )));
            }
        }
        if let Some(length) = self.part.length() {
            // What is still to come, and about twice the archive when it is unpacked.
            space::check(self.root, length.saturating_sub(self.part.len()) + 2 * length)?;
        }
        Ok(response)
    }

    /// Whether the answer to a range goes on exactly where the part ends.
    fn continues(&self, response: &Response) -> bool {
        let headers = response.headers();
        let Some((first, total)) = content_range(headers) else { return false };
        let same_length = total.is_none() || self.part.length().is_none() || total == self.part.length();
        let same_file = validator(headers).is_none_or(|v| Some(v.as_str()) == self.part.validator());
        first == self.part.len() && same_length && same_file
    }

    /// Saves the download of bytes that were turned down before.
    fn recall(&self, validator: Option<&str>, length: Option<u64>, expected: &Expected) -> Step<()> {
        let Some((digests, verdict)) = Memo::recall(self.root, self.part.key(), validator, length) else {
            return Ok(());
        };
        expected.check(&digests, &public(&self.url))?;
        verdict.map_or(Ok(()), |verdict| verdict.judge(self.order))
    }

    async fn fill(&mut self, web: &Web, response: &mut Response) -> Result<(), Trouble> {
        self.meter.at(self.part.len(), self.part.length());
        while let Some(bytes) = web.chunk(response, &self.url).await? {
            self.part.write(bytes.as_ref())?;
            self.meter.at(self.part.len(), self.part.length());
        }
        match self.part.length() {
            Some(length) if self.part.len() < length => Err(Trouble::again(format!(
                "the connection for {} ended after {} of {} MB: wait, or set concourse-download-url to a mirror",
                public(&self.url),
                mb(self.part.len()),
                mb(length)
            ))),
            Some(length) if self.part.len() > length => {
                self.part.discard()?;
                Err(Trouble::again(format!(
                    "{} is longer than announced: wait, or set concourse-download-url to a mirror",
                    public(&self.url)
                )))
            }
            _ => Ok(()),
        }
    }

    /// A full disk hurts what runs on the machine more than a second download does.
    fn make_room(&mut self, trouble: Trouble) -> Trouble {
        match &trouble.stop {
            Stop::Failed(error) if space::is_full(error) => {}
            _ => return trouble,
        }
        let needed = 3 * self.part.length().unwrap_or(self.part.len());
        let freed = self.part.discard().and_then(|()| space::free(self.root));
        freed.map_or_else(Trouble::from, |free| space::too_little(needed, free).into())
    }
}

/// What a later If-Range can name: a weak tag can't be.
fn validator(headers: &HeaderMap) -> Option<String> {
    let text = |name: HeaderName| headers.get(name).and_then(|v| v.to_str().ok());
    text(ETAG).filter(|tag| !tag.starts_with("W/")).or_else(|| text(LAST_MODIFIED)).map(str::to_owned)
}

/// First byte, and the length of the whole if told, of `bytes 7-9/10`.
fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    let (range, total) = text.split_once('/')?;
    let (first, _) = range.split_once('-')?;
    Some((first.trim().parse().ok()?, total.trim().parse().ok()))
}

/// Tells how far a download is: at most once a second, and only when it moved.
struct Meter<'a> {
    say: &'a mut dyn FnMut(&str),
    label: String,
    /// When it was told, and how much: percent, or MB of an untold length.
    last: Option<(Instant, u64)>,
}

impl Meter<'_> {
    fn at(&mut self, len: u64, length: Option<u64>) {
        let (mark, unit, step) = match length {
            Some(length) => (len * 100 / length.max(1), "%", 5),
            None => (len / 1_000_000, " MB", 10),
        };
        // Fewer than told before: it began anew.
        let moved = |told: u64| mark >= told + step || mark < told;
        if self.last.is_none_or(|(then, told)| then.elapsed() >= Duration::from_secs(1) && moved(told)) {
            (self.say)(&format!("Downloading {}… {mark}{unit}", self.label));
            self.last = Some((Instant::now(), mark));
        }
    }
}
