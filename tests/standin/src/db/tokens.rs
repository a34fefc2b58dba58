//! Access tokens live in the database, so that every web knows those that another one gave.

use super::Pool;
use anyhow::{Context, Result};
use std::io::Read;

/// How long a token is good for, in seconds; the real default is a day.
pub const LIFE: i64 = 86_399;

/// Makes a token for a user.
pub fn create(pool: &Pool, user: &str) -> Result<String> {
    let mut bytes = [0u8; 32];
    std::fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes)).context("/dev/urandom")?;
    let token: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    pool.with(|c| {
        c.execute("DELETE FROM standin_tokens WHERE expires < now()", &[])?;
        c.execute(
            "INSERT INTO standin_tokens VALUES ($1, $2, now() + make_interval(secs => $3))",
            &[&token, &user, &(LIFE as f64)],
        )
    })?;
    Ok(token)
}

/// The user a token was given to.
pub fn user_of(pool: &Pool, token: &str) -> Result<Option<String>> {
    let row = pool.with(|c| {
        c.query_opt("SELECT username FROM standin_tokens WHERE token = $1 AND expires > now()", &[&token])
    })?;
    Ok(row.map(|r| r.get(0)))
}
