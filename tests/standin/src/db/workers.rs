//! Workers as rows, and what time does to them. States and their changes are those of the real one.

use super::Pool;
use crate::protocol::Worker;
use anyhow::Result;
use postgres::Row;
use serde_json::{Value, json};

const COLUMNS: &str = "name, coalesce(addr, ''), coalesce(baggageclaim_url, ''), state, team, tags, platform, version, resource_types, \
    ephemeral, start_time, active_containers, active_volumes, \
    (SELECT count(*) FROM standin_tasks t WHERE t.worker = w.name AND t.state IN ('pending', 'started'))";

/// A task keeps a worker from being landed or forgotten while it is in one of these states.
const BUSY: &str = "(SELECT worker FROM standin_tasks WHERE state IN ('pending', 'started'))";

/// Registers a worker: whatever its row said before, it is `running` now.
pub fn save(pool: &Pool, w: &Worker, addr: &str, url: &str, ttl: f64) -> Result<()> {
    let (tags, types) = (json!(w.tags).to_string(), json!(w.resource_types).to_string());
    pool.with(|c| {
        c.execute(
            "INSERT INTO standin_workers (name, addr, baggageclaim_url, state, team, tags, platform, version, resource_types, ephemeral,
                 start_time, active_containers, active_volumes, expires)
             VALUES ($1, $2, $3, 'running', $4, $5, $6, $7, $8, $9, $10, $11, $12, now() + make_interval(secs => $13))
             ON CONFLICT (name) DO UPDATE SET addr = $2, baggageclaim_url = $3, state = 'running', team = $4, tags = $5, platform = $6,
                 version = $7, resource_types = $8, ephemeral = $9, start_time = $10, active_containers = $11, active_volumes = $12,
                 expires = now() + make_interval(secs => $13)",
            &[&w.name, &addr, &url, &w.team, &tags, &w.platform, &w.version, &types, &w.ephemeral, &w.start_time, &w.active_containers, &w.active_volumes, &ttl],
        )
    })?;
    Ok(())
}

/// Extends a worker's life; gives its state, or nothing if it is gone.
pub fn heartbeat(pool: &Pool, name: &str, containers: i32, volumes: i32, ttl: f64) -> Result<Option<String>> {
    let row = pool.with(|c| {
        c.query_opt(
            "UPDATE standin_workers SET expires = now() + make_interval(secs => $4), active_containers = $2, active_volumes = $3,
                 stalled_since = NULL, state = CASE WHEN state IN ('landing', 'landed', 'retiring') THEN state ELSE 'running' END
             WHERE name = $1 RETURNING state",
            &[&name, &containers, &volumes, &ttl],
        )
    })?;
    Ok(row.map(|r| r.get(0)))
}

/// A worker's state.
pub fn state(pool: &Pool, name: &str) -> Result<Option<String>> {
    Ok(pool
        .with(|c| c.query_opt("SELECT state FROM standin_workers WHERE name = $1", &[&name]))?
        .map(|r| r.get(0)))
}

/// All workers, as the API shows them.
pub fn list(pool: &Pool) -> Result<Vec<Value>> {
    let rows =
        pool.with(|c| c.query(&format!("SELECT {COLUMNS} FROM standin_workers w ORDER BY name"), &[]))?;
    Ok(rows.iter().map(present).collect())
}

fn present(row: &Row) -> Value {
    let parsed = |i: usize| serde_json::from_str::<Value>(row.get::<_, &str>(i)).unwrap_or(Value::Null);
    let text = |i: usize| row.get::<_, &str>(i).to_owned();
    json!({
        "name": text(0), "addr": text(1), "baggageclaim_url": text(2), "state": text(3), "team": text(4), "tags": parsed(5),
        "platform": text(6), "version": text(7), "resource_types": parsed(8), "ephemeral": row.get::<_, bool>(9),
        "start_time": row.get::<_, i64>(10), "active_containers": row.get::<_, i32>(11), "active_volumes": row.get::<_, i32>(12),
        "active_tasks": row.get::<_, i64>(13), "max_active_tasks": 0,
    })
}

/// Begins landing; a landed worker stays landed. False if there is no such worker.
pub fn land(pool: &Pool, name: &str) -> Result<bool> {
    let sql = "UPDATE standin_workers SET state = CASE state WHEN 'landed' THEN 'landed' ELSE 'landing' END WHERE name = $1";
    Ok(pool.with(|c| c.execute(sql, &[&name]))? > 0)
}

/// Begins retiring. False if there is no such worker.
pub fn retire(pool: &Pool, name: &str) -> Result<bool> {
    Ok(pool.with(|c| c.execute("UPDATE standin_workers SET state = 'retiring' WHERE name = $1", &[&name]))?
        > 0)
}

/// Forgets a worker at once.
pub fn delete(pool: &Pool, name: &str) -> Result<()> {
    pool.with(|c| c.execute("DELETE FROM standin_workers WHERE name = $1", &[&name]))?;
    Ok(())
}

/// Forgets a worker that isn't running. False if it is running.
pub fn prune(pool: &Pool, name: &str) -> Result<bool> {
    Ok(pool.with(|c| {
        c.execute("DELETE FROM standin_workers WHERE name = $1 AND state <> 'running'", &[&name])
    })? > 0)
}

/// What time does: ephemeral workers vanish, silent ones stall, landing and retiring ones get there.
/// Gives what changed, for the log.
pub fn tick(pool: &Pool, stalled_timeout: f64) -> Result<Vec<(&'static str, String)>> {
    let land = format!(
        "UPDATE standin_workers SET state = 'landed', addr = NULL, baggageclaim_url = NULL WHERE state = 'landing' AND name NOT IN {BUSY} RETURNING name"
    );
    let retire =
        format!("DELETE FROM standin_workers WHERE state = 'retiring' AND name NOT IN {BUSY} RETURNING name");
    let steps: [(&'static str, &str); 4] = [
        (
            "ephemeral-workers-removed",
            "DELETE FROM standin_workers WHERE ephemeral AND expires < now() RETURNING name",
        ),
        (
            "marked-workers-as-stalled",
            "UPDATE standin_workers SET state = 'stalled', expires = NULL, stalled_since = now() WHERE state = 'running' AND expires < now() RETURNING name",
        ),
        ("marked-workers-as-retired", &retire),
        ("marked-workers-as-landed", &land),
    ];
    pool.with(|c| {
        let mut changed = Vec::new();
        for (what, sql) in steps {
            changed.extend(c.query(sql, &[])?.iter().map(|r| (what, r.get(0))));
        }
        if stalled_timeout > 0.0 {
            let sql = "DELETE FROM standin_workers WHERE state = 'stalled' AND stalled_since < now() - make_interval(secs => $1) RETURNING name";
            changed.extend(c.query(sql, &[&stalled_timeout])?.iter().map(|r| ("stalled-workers-removed", r.get(0))));
        }
        Ok(changed)
    })
}

/// How many workers are in each state, for the metrics page.
pub fn count_by_state(pool: &Pool) -> Result<Vec<(String, i64)>> {
    let rows = pool.with(|c| {
        c.query("SELECT state, count(*) FROM standin_workers GROUP BY state ORDER BY state", &[])
    })?;
    Ok(rows.iter().map(|r| (r.get(0), r.get(1))).collect())
}
