//! The database: a small pool of connections that behaves like a real one. Connections that live keep living;
//! a new one has to log in anew, so a changed password shows as soon as a connection is needed.

pub mod schema;
pub mod tasks;
pub mod tokens;
pub mod workers;

use crate::opts::{Opt, Values, dft, one};
use crate::tls::{self, Check};
use anyhow::{Context, Result, anyhow};
use postgres::{Client, Config, NoTls, config::SslMode};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The options of every subcommand that needs the database.
pub const OPTIONS: &[Opt] = &[
    dft("postgres-host", "127.0.0.1"),
    dft("postgres-port", "5432"),
    one("postgres-socket"),
    one("postgres-user"),
    one("postgres-password"),
    dft("postgres-database", "atc"),
    dft("postgres-sslmode", "disable"),
    one("postgres-ca-cert"),
    one("postgres-client-cert"),
    one("postgres-client-key"),
    dft("postgres-connect-timeout", "5m"),
    dft("postgres-application-name", "concourse"),
    one("postgres-sslnegotiation"),
];

/// How many idle connections are kept.
const KEPT: usize = 8;
/// How long a start waits for a database that refuses, as the real one does.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// The pool.
pub struct Pool {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    idle: Mutex<Vec<Client>>,
}

impl Pool {
    /// Reads the options; connects to nothing yet.
    pub fn new(values: &Values) -> Result<Pool> {
        let mut config = Config::new();
        if let Some(socket) = values.get("postgres-socket") {
            config.host(socket);
        } else {
            for host in values.text("postgres-host").split(',') {
                config.host(host.trim());
            }
            config.port(values.number("postgres-port")?.unwrap_or(5432));
        }
        if let Some(user) = values.get("postgres-user") {
            config.user(user);
        }
        if let Some(password) = values.get("postgres-password") {
            config.password(password);
        }
        config.dbname(&values.text("postgres-database"));
        config.application_name(&values.text("postgres-application-name"));
        // The real default of 5 minutes would only make tests slow.
        config.connect_timeout(
            values
                .duration("postgres-connect-timeout")?
                .clamp(Duration::from_secs(1), Duration::from_secs(10)),
        );
        values.choice("postgres-sslmode", &["disable", "require", "verify-ca", "verify-full"])?;
        let check = match values.text("postgres-sslmode").as_str() {
            "require" => Some(Check::Nothing),
            "verify-ca" => Some(Check::Authority),
            "verify-full" => Some(Check::Name),
            _ => None,
        };
        config.ssl_mode(if check.is_some() { SslMode::Require } else { SslMode::Disable });
        let identity = values.get("postgres-client-cert").zip(values.get("postgres-client-key"));
        let tls = check.map(|c| tls::client(c, values.get("postgres-ca-cert"), identity)).transpose()?;
        Ok(Pool { config, tls: tls.map(MakeRustlsConnect::new), idle: Mutex::default() })
    }

    fn connect(&self) -> Result<Client> {
        let client = match &self.tls {
            None => self.config.connect(NoTls),
            Some(tls) => self.config.connect(tls.clone()),
        };
        client.map_err(|e| {
            let user = self.config.get_user().unwrap_or_default();
            let database = self.config.get_dbname().unwrap_or_default();
            anyhow!("failed to connect to `user={user} database={database}`: {}", full(&e))
        })
    }

    /// Waits for the database as the real one does at its start: half a minute, then it gives up.
    pub fn wait_for_database(&self) -> Result<()> {
        let begin = Instant::now();
        let mut pause = Duration::from_millis(500);
        loop {
            match self.connect() {
                Ok(client) => {
                    self.idle.lock().unwrap_or_else(|e| e.into_inner()).push(client);
                    return Ok(());
                }
                Err(e) if begin.elapsed() > START_PATIENCE => return Err(e),
                Err(_) => std::thread::sleep(pause),
            }
            pause = (pause * 3 / 2).min(Duration::from_secs(5));
        }
    }

    /// An idle connection that still works.
    fn kept(&self) -> Option<Client> {
        loop {
            let mut client = self.idle.lock().unwrap_or_else(|e| e.into_inner()).pop()?;
            if !client.is_closed() && client.is_valid(Duration::from_secs(5)).is_ok() {
                return Some(client);
            }
        }
    }

    /// Does something with a connection.
    pub fn with<T>(&self, work: impl FnOnce(&mut Client) -> Result<T, postgres::Error>) -> Result<T> {
        let mut client = self.kept().map_or_else(|| self.connect(), Ok)?;
        let result = work(&mut client);
        if !client.is_closed() {
            let mut idle = self.idle.lock().unwrap_or_else(|e| e.into_inner());
            if idle.len() < KEPT {
                idle.push(client);
            }
        }
        result.map_err(|e| anyhow!("{}", full(&e))).context("database")
    }
}

/// A PostgreSQL error with its cause; its own text alone says too little.
pub fn full(error: &postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
