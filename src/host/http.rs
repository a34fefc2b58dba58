//! The web node's API on this machine.

use crate::parse::Secret;
use anyhow::{Context, Result};
use reqwest::{Client, Method, StatusCode};
use serde::Deserialize;
use std::time::Duration;

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("failed to start a runtime")
}

/// Without proxies and without CA certificates, which take longer to load than the request: it is this machine.
fn client(timeout: Duration) -> Result<Client> {
    Client::builder()
        .no_proxy()
        .tls_built_in_root_certs(false)
        .timeout(timeout)
        .build()
        .context("failed to make a client")
}

#[derive(Deserialize)]
struct Info {
    version: String,
}

/// The version that `/api/v1/info` tells; `None` if nothing, or nothing sensible, answers.
pub fn info(port: u16, timeout: Duration) -> Option<String> {
    let client = client(timeout).ok()?;
    runtime().ok()?.block_on(async {
        let answer = client.get(format!("http://127.0.0.1:{port}/api/v1/info")).send().await.ok()?;
        answer.error_for_status().ok()?.json().await.ok().map(|info: Info| info.version)
    })
}

/// The web node's API with the administrator's rights.
pub struct Api {
    client: Client,
    runtime: tokio::runtime::Runtime,
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
        let (client, runtime) = (client(Duration::from_secs(20))?, runtime()?);
        let base = format!("http://127.0.0.1:{port}");
        let form = [
            ("grant_type", "password"),
            ("username", user),
            ("password", password),
            ("scope", "openid profile email federated:id groups"),
        ];
        let token: Token = runtime.block_on(async {
            // The client id and secret are public: every fly has them.
            let request = client.post(format!("{base}/sky/issuer/token")).basic_auth("fly", Some("Zmx5"));
            let answer = request.form(&form).send().await?.error_for_status()?;
            answer.json().await
        })?;
        Ok(Api { client, runtime, base, token: Secret::new(token.access_token) })
    }

    /// The registered workers.
    ///
    /// # Errors
    /// The web node does not answer.
    pub fn workers(&self) -> Result<Vec<Worker>> {
        let request =
            self.client.get(format!("{}/api/v1/workers", self.base)).bearer_auth(self.token.expose());
        Ok(self.runtime.block_on(async { request.send().await?.error_for_status()?.json().await })?)
    }

    /// Retires or prunes a worker; one that is not there is as good as pruned.
    ///
    /// # Errors
    /// The web node refuses, for example to prune a running worker.
    pub fn worker(&self, name: &str, verb: &str) -> Result<()> {
        let url = format!("{}/api/v1/workers/{name}/{verb}", self.base);
        let request = self.client.request(Method::PUT, url).bearer_auth(self.token.expose());
        let answer = self.runtime.block_on(async { request.send().await })?;
        if answer.status() != StatusCode::NOT_FOUND {
            answer.error_for_status()?;
        }
        Ok(())
    }
}
