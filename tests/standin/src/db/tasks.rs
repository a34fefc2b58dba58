//! Tasks and their output. Output is stored by its place in the stream, so that a piece sent twice counts once.

use super::Pool;
use crate::protocol::Task;
use anyhow::Result;
use serde_json::{Value, json};

/// A task's row, as the API shows it.
pub fn show(pool: &Pool, id: i64) -> Result<Option<Value>> {
    let sql = "SELECT worker, state, exit_code, message, \
        (SELECT coalesce(max(start + length(data)), 0) FROM standin_output o WHERE o.task = t.id) FROM standin_tasks t WHERE id = $1";
    let row = pool.with(|c| c.query_opt(sql, &[&id]))?;
    Ok(row.map(|r| {
        json!({"id": id, "worker": r.get::<_, String>(0), "state": r.get::<_, String>(1), "exit_code": r.get::<_, Option<i32>>(2),
            "message": r.get::<_, Option<String>>(3), "size": r.get::<_, i64>(4)})
    }))
}

/// All tasks without their output.
pub fn list(pool: &Pool) -> Result<Vec<Value>> {
    let rows = pool.with(|c| {
        c.query(
            "SELECT id, worker, state, exit_code, message FROM standin_tasks ORDER BY id DESC LIMIT 200",
            &[],
        )
    })?;
    Ok(rows
        .iter()
        .map(|r| {
            json!({"id": r.get::<_, i64>(0), "worker": r.get::<_, String>(1), "state": r.get::<_, String>(2),
                "exit_code": r.get::<_, Option<i32>>(3), "message": r.get::<_, Option<String>>(4)})
        })
        .collect())
}

/// Gives a task to a worker.
pub fn create(pool: &Pool, worker: &str, task: &Task) -> Result<i64> {
    let spec = serde_json::to_string(task)?;
    let sql = "INSERT INTO standin_tasks (worker, spec, state) VALUES ($1, $2, 'pending') RETURNING id";
    Ok(pool.with(|c| c.query_one(sql, &[&worker, &spec]))?.get(0))
}

/// The tasks a worker has to start.
pub fn pending(pool: &Pool, worker: &str) -> Result<Vec<Task>> {
    let rows = pool.with(|c| {
        c.query(
            "SELECT id, spec FROM standin_tasks WHERE worker = $1 AND state = 'pending' ORDER BY id",
            &[&worker],
        )
    })?;
    rows.iter().map(|r| Ok(Task { id: r.get(0), ..serde_json::from_str(r.get(1))? })).collect()
}

/// The tasks that run on a worker as far as the database knows.
pub fn started_on(pool: &Pool, worker: &str) -> Result<Vec<i64>> {
    let rows = pool.with(|c| {
        c.query("SELECT id FROM standin_tasks WHERE worker = $1 AND state = 'started'", &[&worker])
    })?;
    Ok(rows.iter().map(|r| r.get(0)).collect())
}

/// The task's process runs now.
pub fn started(pool: &Pool, id: i64) -> Result<()> {
    pool.with(|c| {
        c.execute("UPDATE standin_tasks SET state = 'started' WHERE id = $1 AND state = 'pending'", &[&id])
    })?;
    Ok(())
}

/// Stores a piece of output if it continues what is there.
pub fn output(pool: &Pool, id: i64, offset: i64, data: &[u8]) -> Result<()> {
    let sql = "INSERT INTO standin_output (task, start, data) SELECT $1, $2, $3 \
        WHERE (SELECT coalesce(max(start + length(data)), 0) FROM standin_output WHERE task = $1) = $2 ON CONFLICT DO NOTHING";
    pool.with(|c| c.execute(sql, &[&id, &offset, &data]))?;
    Ok(())
}

/// How many bytes of output are stored.
pub fn size(pool: &Pool, id: i64) -> Result<i64> {
    let sql = "SELECT coalesce(max(start + length(data)), 0) FROM standin_output WHERE task = $1";
    Ok(pool.with(|c| c.query_one(sql, &[&id]))?.get(0))
}

/// Output from a place on, at most about a mebibyte.
pub fn read(pool: &Pool, id: i64, offset: i64) -> Result<Vec<u8>> {
    let sql = "SELECT start, data FROM standin_output WHERE task = $1 AND start + length(data) > $2 ORDER BY start LIMIT 32";
    let rows = pool.with(|c| c.query(sql, &[&id, &offset]))?;
    let mut out = Vec::new();
    for row in rows {
        let (start, data): (i64, Vec<u8>) = (row.get(0), row.get(1));
        let skip = usize::try_from(offset - start).unwrap_or(0);
        out.extend_from_slice(data.get(skip..).unwrap_or_default());
    }
    Ok(out)
}

/// The task is over.
pub fn ended(pool: &Pool, id: i64, exit_code: Option<i32>, error: Option<&str>) -> Result<()> {
    let state = match (exit_code, error) {
        (Some(0), None) => "succeeded",
        (Some(_), None) => "failed",
        _ => "errored",
    };
    let sql = "UPDATE standin_tasks SET state = $2, exit_code = $3, message = $4, ended = now() WHERE id = $1 AND state IN ('pending', 'started')";
    pool.with(|c| c.execute(sql, &[&id, &state, &exit_code, &error]))?;
    Ok(())
}

/// Tasks of workers that are no longer in the database can't end any more.
pub fn fail_orphans(pool: &Pool) -> Result<u64> {
    let sql = "UPDATE standin_tasks SET state = 'errored', ended = now(), message = 'worker ''' || worker || ''' disappeared' \
        WHERE state IN ('pending', 'started') AND worker NOT IN (SELECT name FROM standin_workers)";
    pool.with(|c| c.execute(sql, &[]))
}

/// How many tasks are in each state, for the metrics page.
pub fn count_by_state(pool: &Pool) -> Result<Vec<(String, i64)>> {
    let rows = pool
        .with(|c| c.query("SELECT state, count(*) FROM standin_tasks GROUP BY state ORDER BY state", &[]))?;
    Ok(rows.iter().map(|r| (r.get(0), r.get(1))).collect())
}
