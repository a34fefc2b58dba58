//! The web node's API on this machine.

//!
//! By a client without TLS: one that has it takes longer to make than the answer takes to come, and every hook asks.

use crate::parse::Secret;
use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use url::form_urlencoded::Serializer;

#[derive(Deserialize)]
struct Info {
    version: String,
}

/// The version that `/api/v1/info` tells; `None` if nothing, or nothing sensible, answers.
pub fn info(port: u16, timeout: Duration) -> Option<String> {
    let request = minreq::get(format!("http://127.0.0.1:{port}/api/v1/info")).with_timeout(timeout.as_secs());
    answer(request).ok().map(|info: Info| info.version)
}

/// Sends the request and reads the JSON of its answer.
fn answer<T: DeserializeOwned>(request: minreq::Request) -> Result<T> {
    serde_json::from_slice(send(request)?.as_bytes())
        .context("the web node answers with something else than expected")
}

/// Sends the request; an answer that is no success is an error.
fn send(request: minreq::Request) -> Result<minreq::Response> {
    let answer = request.send().context("the web node does not answer")?;
    match answer.status_code {
        200..300 => Ok(answer),
        code => bail!("the web node answers {code} {}", answer.reason_phrase),
    }
}

/// How long the API may take for what it is asked here.
const PATIENCE: u64 = 20;

/// The web node's API with the administrator's rights.
pub struct Api {
    base: String,
    token: Secret,
}

#[derive(Deserialize)]
struct Token {
    access_token: String,
}

/// A registered worker, as far as the charm needs it.
#[derive(Clone, Debug, Deserialize)]
pub struct Worker {
    /// Its name.
    pub name: String,
    /// running, stalled, landing, landed or retiring.
    pub state: String,
}

impl Api {
    /// Logs in.
    ///
    /// # Errors
    /// The web node does not answer, or knows another password.
    pub fn login(port: u16, user: &str, password: &str) -> Result<Self> {
        let base = format!("http://127.0.0.1:{port}");
        let form = Serializer::new(String::new())
            .append_pair("grant_type", "password")
            .append_pair("username", user)
            .append_pair("password", password)
            .append_pair("scope", "openid profile email federated:id groups")
            .finish();
        let request = minreq::post(format!("{base}/sky/issuer/token"))
            // The client id and secret are public: every fly has them.
            .with_header("Authorization", format!("Basic {}", STANDARD.encode("fly:Zmx5")))
            .with_header("Content-Type", "application/x-www-form-urlencoded")
            .with_body(form)
            .with_timeout(PATIENCE);
        let token: Token = answer(request)?;
        Ok(Api { base, token: Secret::new(token.access_token) })
    }

    /// The registered workers.
    ///
    /// # Errors
    /// The web node does not answer.
    pub fn workers(&self) -> Result<Vec<Worker>> {
        answer(self.with_token(minreq::get(format!("{}/api/v1/workers", self.base))))
    }

    /// Retires or prunes a worker; one that is not there is as good as pruned.
    ///
    /// # Errors
    /// The web node refuses, for example to prune a running worker.
    pub fn worker(&self, name: &str, verb: &str) -> Result<()> {
        let request = self.with_token(minreq::put(format!("{}/api/v1/workers/{name}/{verb}", self.base)));
        match request.send().context("the web node does not answer")? {
            gone if gone.status_code == 404 => Ok(()),
            done if (200..300).contains(&done.status_code) => Ok(()),
            refused => bail!("the web node answers {} {}", refused.status_code, refused.reason_phrase),
        }
    }

    fn with_token(&self, request: minreq::Request) -> minreq::Request {
        request.with_header("Authorization", format!("Bearer {}", self.token.expose())).with_timeout(PATIENCE)
    }
}
