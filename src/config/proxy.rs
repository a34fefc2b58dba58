//! The proxies that web, worker and the download use.

use super::Problem;
use super::options::list;
use super::urls::{has_credentials, http_url};
use crate::parse::{Invalid, Secret, harmless};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The URL of a proxy. It may hold a password: `Debug` and `Display` show `***` for that.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyUrl {
    url: Secret,
    shown: String,
}

impl ProxyUrl {
    /// The URL as it was given, with its credentials.
    pub fn expose(&self) -> &str {
        self.url.expose()
    }
}

impl FromStr for ProxyUrl {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let mut url = http_url(text)?;
        let hidden = has_credentials(&url);
        if hidden {
            // Neither fails: the URL has a host.
            let _ = url.set_password(None);
            let _ = url.set_username("***");
        }
        Ok(Self { url: Secret::new(text), shown: url.as_str().trim_end_matches('/').to_owned() })
    }
}

impl fmt::Debug for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Display for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// How to reach other hosts; the default is directly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxy {
    /// Proxy for http.
    pub http: Option<ProxyUrl>,
    /// Proxy for https.
    pub https: Option<ProxyUrl>,
    /// Hosts, domains and networks that are reached directly.
    pub no: Vec<String>,
}

/// What the model says, as it came: `JUJU_CHARM_HTTP_PROXY`, `…_HTTPS_PROXY` and `…_NO_PROXY`; empty: none.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelProxy {
    /// `juju-http-proxy`
    pub http: String,
    /// `juju-https-proxy`
    pub https: String,
    /// `juju-no-proxy`
    pub no: String,
}

impl fmt::Debug for ModelProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ModelProxy") // a URL may hold a password
    }
}

impl Proxy {
    /// The proxies of the model.
    ///
    /// # Errors
    /// All problems, each under the name of the model's setting.
    pub fn of_model(ModelProxy { http, https, no }: &ModelProxy) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut url = |setting: &str, text: &str| {
            let text = Some(text.trim()).filter(|t| !t.is_empty())?;
            text.parse().map_err(|why: Invalid| problems.push(Problem::new(setting, why))).ok()
        };
        let (http, https) = (url("juju-http-proxy", http), url("juju-https-proxy", https));
        let no = no_proxy(no).map_err(|why| problems.push(Problem::new("juju-no-proxy", why)));
        match no {
            Ok(no) if problems.is_empty() => Ok(Self { http, https, no }),
            _ => Err(problems),
        }
    }

    /// This one where the options leave something open.
    pub(super) fn overridden(
        &self,
        http: Option<ProxyUrl>,
        https: Option<ProxyUrl>,
        no: Vec<String>,
    ) -> Self {
        Self {
            http: http.or_else(|| self.http.clone()),
            https: https.or_else(|| self.https.clone()),
            no: if no.is_empty() { self.no.clone() } else { no },
        }
    }

    /// The variables that programs read, in both spellings: some know only one of them.
    pub fn variables(&self) -> Vec<(&'static str, Secret)> {
        let url = |url: &Option<ProxyUrl>| url.as_ref().map(|u| u.url.clone());
        // A list of exceptions without a proxy would change nothing.
        let no = (self.http.is_some() || self.https.is_some()) && !self.no.is_empty();
        let mut variables = Vec::new();
        for (lower, upper, value) in [
            ("http_proxy", "HTTP_PROXY", url(&self.http)),
            ("https_proxy", "HTTPS_PROXY", url(&self.https)),
            ("no_proxy", "NO_PROXY", no.then(|| Secret::new(self.no.join(",")))),
        ] {
            if let Some(value) = value {
                variables.extend([(lower, value.clone()), (upper, value)]);
            }
        }
        variables
    }
}

/// Juju's own lists come with spaces and stray commas; those are no one's fault here.
pub(super) fn no_proxy(text: &str) -> Result<Vec<String>, Invalid> {
    let parts: Vec<_> = text.split(',').map(str::trim).filter(|p| !p.is_empty()).collect();
    list(&parts.join(","), |part| {
        if part.chars().any(|c| c.is_whitespace() || !harmless(c)) {
            return Err(Invalid::new("has white space within a host; separate hosts by commas"));
        }
        Ok(part.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_kept_and_not_shown() {
        let url: ProxyUrl = "http://me:hunter2%40@proxy:3128/".parse().unwrap();
        assert_eq!(url.expose(), "http://me:hunter2%40@proxy:3128/");
        assert_eq!(format!("{url} {url:?}"), "http://***@proxy:3128 http://***@proxy:3128");
        let url: ProxyUrl = "http://proxy:3128".parse().unwrap();
        assert_eq!(format!("{url} {}", url.expose()), "http://proxy:3128 http://proxy:3128");
    }

    #[test]
    fn of_the_model() {
        let of_model = |http: &str, https: &str, no: &str| {
            Proxy::of_model(&ModelProxy { http: http.into(), https: https.into(), no: no.into() })
        };
        let none = of_model("", " ", "").unwrap();
        assert_eq!(none, Proxy::default());
        assert_eq!(none.variables(), []);

        let proxy = of_model("http://p:1", "", "127.0.0.1, localhost,,::1").unwrap();
        assert_eq!(proxy.no, ["127.0.0.1", "localhost", "::1"]);
        let variables: Vec<_> =
            proxy.variables().into_iter().map(|(n, v)| format!("{n}={}", v.expose())).collect();
        let no = "127.0.0.1,localhost,::1";
        assert_eq!(
            variables,
            [
                "http_proxy=http://p:1",
                "HTTP_PROXY=http://p:1",
                &format!("no_proxy={no}"),
                &format!("NO_PROXY={no}"),
            ]
        );
        assert_eq!(of_model("", "", no).unwrap().variables(), []);

        let problems = of_model("u:hunter2@p", "socks5://u:hunter2@p", "a b").unwrap_err();
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            [
                "juju-http-proxy: is not a URL; start it with http:// or https://",
                "juju-https-proxy: is not a URL; start it with http:// or https://",
                "juju-no-proxy: has white space within a host; separate hosts by commas",
            ]
        );
    }
}
