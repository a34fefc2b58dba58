//! Addresses in options. Messages don't repeat them: one may hold a password that was meant for elsewhere.

use crate::parse::{Invalid, Version, harmless, shown};
use std::fmt;
use std::str::FromStr;
use url::Url;

/// An http(s) URL with a host, told in words that fit any option. Its text is not repeated in the error.
pub(super) fn http_url(text: &str) -> Result<Url, Invalid> {
    // The URL standard drops line breaks and takes back slashes; we don't.
    if text.chars().any(|c| c.is_whitespace() || !harmless(c) || c == '\\') {
        return Err(Invalid::new("has white space or a control character in the URL; remove it"));
    }
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    if !["http", "https"].iter().any(|s| scheme.eq_ignore_ascii_case(s)) {
        return Err(Invalid::new("is not a URL; start it with http:// or https://"));
    }
    let url = Url::parse(text).map_err(|why| Invalid::new(format!("is not a URL: {why}")))?;
    if url.port() == Some(0) {
        return Err(Invalid::new("has port 0 in the URL; use 1 to 65535"));
    }
    Ok(url)
}

pub(super) fn has_credentials(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// Where users and workers reach the web node: scheme, host and port, without a slash at the end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExternalUrl(String);

impl ExternalUrl {
    /// The URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ExternalUrl {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let url = http_url(text)?;
        if has_credentials(&url) {
            return Err(Invalid::new("must not hold a user or password; leave out what stands before the @"));
        }
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            let sentence = "must end after host and port: Concourse can't be served below a path";
            return Err(Invalid::new(sentence));
        }
        Ok(Self(url.as_str().trim_end_matches('/').to_owned()))
    }
}

impl fmt::Display for ExternalUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where to download a release: a URL in which `{version}` and `{arch}` stand for those wanted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UrlTemplate(String);

impl UrlTemplate {
    /// The URL for a version and an architecture in Concourse's words, such as `amd64`.
    pub fn fill(&self, version: &Version, arch: &str) -> String {
        self.0.replace("{version}", &version.to_string()).replace("{arch}", arch)
    }

    /// Whether another version has another URL.
    pub fn has_version(&self) -> bool {
        self.0.contains("{version}")
    }
}

impl FromStr for UrlTemplate {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        placeholders(text)?;
        let filled = Self(text.to_owned()).fill(&Version::new(8, 2, 5), "amd64");
        if has_credentials(&http_url(&filled)?) {
            let sentence = "must not hold a user or password: options are readable; use a mirror without";
            return Err(Invalid::new(sentence));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for UrlTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Braces only as those of `{version}` and `{arch}`.
fn placeholders(text: &str) -> Result<(), Invalid> {
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let name = rest[at..].strip_prefix('{').and_then(|r| r.split_once('}'));
        match name {
            Some(("version" | "arch", after)) => rest = after,
            Some((name, _)) if !name.contains('{') => {
                let name = shown(name);
                return Err(Invalid::new(format!(
                    "knows no placeholder {name}; use {{version}} and {{arch}}"
                )));
            }
            _ => {
                return Err(Invalid::new("has a brace without its partner; use {version} and {arch}"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_urls() {
        for (text, canonical) in [
            ("https://ci.example.com", "https://ci.example.com"),
            ("HTTP://CI.example.com:8080/", "http://ci.example.com:8080"),
            ("https://ci.example.com:443", "https://ci.example.com"),
            ("http://[fd00::5]:8080", "http://[fd00::5]:8080"),
            ("http://10.0.0.5", "http://10.0.0.5"),
        ] {
            let url: ExternalUrl = text.parse().unwrap();
            assert_eq!((url.as_str(), url.to_string().as_str()), (canonical, canonical));
        }
        let path = "must end after host and port: Concourse can't be served below a path";
        for (text, sentence) in [
            ("ci.example.com", "is not a URL; start it with http:// or https://"),
            ("ftp://ci.example.com", "is not a URL; start it with http:// or https://"),
            ("http:ci.example.com", "is not a URL; start it with http:// or https://"),
            ("https://", "is not a URL: empty host"),
            ("https://ci:99999", "is not a URL: invalid port number"),
            ("https://ci:0", "has port 0 in the URL; use 1 to 65535"),
            ("https://ci .example", "has white space or a control character in the URL; remove it"),
            ("https://ci\n.example", "has white space or a control character in the URL; remove it"),
            ("https://a:hunter2@ci", "must not hold a user or password; leave out what stands before the @"),
            ("https://ci/path", path),
            ("https://ci/?q", path),
            ("https://ci#f", path),
        ] {
            assert_eq!(text.parse::<ExternalUrl>().unwrap_err().to_string(), sentence, "{text}");
        }
    }

    #[test]
    fn templates() {
        for (text, filled) in [
            ("https://m/c-{version}-linux-{arch}.tgz", "https://m/c-8.2.5-linux-amd64.tgz"),
            ("http://m/{version}/{version}.tgz", "http://m/8.2.5/8.2.5.tgz"),
            ("https://m:8443/concourse.tgz?x=1", "https://m:8443/concourse.tgz?x=1"),
            ("https://m-{arch}.example/{version}", "https://m-amd64.example/8.2.5"),
        ] {
            let url: UrlTemplate = text.parse().unwrap();
            assert_eq!(url.fill(&Version::new(8, 2, 5), "amd64"), filled);
            assert_eq!((url.to_string().as_str(), url.has_version()), (text, text.contains("{version}")));
        }
        let brace = "has a brace without its partner; use {version} and {arch}";
        for (text, sentence) in [
            ("https://m/{Version}", r#"knows no placeholder "Version"; use {version} and {arch}"#),
            ("https://m/{}", r#"knows no placeholder ""; use {version} and {arch}"#),
            ("https://m/{version", brace),
            ("https://m/version}", brace),
            ("https://m/{{version}}", brace),
            ("s3://m/{version}", "is not a URL; start it with http:// or https://"),
            ("/srv/{version}.tgz", "is not a URL; start it with http:// or https://"),
            (
                "https://u:hunter2@m/{version}",
                "must not hold a user or password: options are readable; use a mirror without",
            ),
        ] {
            assert_eq!(text.parse::<UrlTemplate>().unwrap_err().to_string(), sentence, "{text}");
        }
    }
}
