//! The schema and its version. A web refuses a database that a newer version has migrated.

use super::Pool;
use anyhow::{Result, bail};
use postgres::Client;

/// All webs that start at once wait for one another here.
const LOCK: i64 = 0x57A9D1;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS standin_migrations_history (
    version bigint NOT NULL, tstamp timestamptz NOT NULL DEFAULT now(), direction text NOT NULL);
CREATE TABLE IF NOT EXISTS standin_workers (
    name text PRIMARY KEY, addr text, baggageclaim_url text, state text NOT NULL, team text NOT NULL, tags text NOT NULL,
    platform text NOT NULL, version text NOT NULL, resource_types text NOT NULL, ephemeral boolean NOT NULL,
    start_time bigint NOT NULL, active_containers int NOT NULL DEFAULT 0, active_volumes int NOT NULL DEFAULT 0,
    expires timestamptz, stalled_since timestamptz);
CREATE TABLE IF NOT EXISTS standin_tokens (token text PRIMARY KEY, username text NOT NULL, expires timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS standin_tasks (
    id bigserial PRIMARY KEY, worker text NOT NULL, spec text NOT NULL, state text NOT NULL, exit_code int, message text,
    created timestamptz NOT NULL DEFAULT now(), ended timestamptz);
CREATE TABLE IF NOT EXISTS standin_output (
    task bigint NOT NULL REFERENCES standin_tasks(id) ON DELETE CASCADE, start bigint NOT NULL, data bytea NOT NULL,
    PRIMARY KEY (task, start));
";

fn current_in(client: &mut Client) -> Result<Option<i64>, postgres::Error> {
    let there: bool =
        client.query_one("SELECT to_regclass('standin_migrations_history') IS NOT NULL", &[])?.get(0);
    if !there {
        return Ok(None);
    }
    let row = client
        .query_opt("SELECT version FROM standin_migrations_history ORDER BY tstamp DESC LIMIT 1", &[])?;
    Ok(row.map(|r| r.get(0)))
}

/// The version that the database has, or nothing if it is empty.
pub fn current(pool: &Pool) -> Result<Option<i64>> {
    pool.with(current_in)
}

/// Brings the schema to a version, up or down.
pub fn migrate_to(pool: &Pool, version: i64) -> Result<()> {
    pool.with(|client| {
        let mut tx = client.transaction()?;
        tx.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK])?;
        tx.batch_execute(TABLES)?;
        let row = tx.query_opt("SELECT version FROM standin_migrations_history ORDER BY tstamp DESC LIMIT 1", &[])?;
        let now: Option<i64> = row.map(|r| r.get(0));
        if now != Some(version) {
            let direction = if now.is_some_and(|n| n > version) { "down" } else { "up" };
            tx.execute("INSERT INTO standin_migrations_history (version, tstamp, direction) VALUES ($1, clock_timestamp(), $2)", &[&version, &direction])?;
        }
        tx.commit()
    })
}

/// What a web does at its start.
pub fn up(pool: &Pool, supported: i64) -> Result<()> {
    if let Some(have) = current(pool)?.filter(|have| *have > supported) {
        bail!(
            "database schema version {have} is newer than the version {supported} that this Concourse supports"
        );
    }
    migrate_to(pool, supported)
}
