//! Logging in with a local user's password, and what a token lets one do.

use super::Web;
use crate::db::tokens;
use crate::http::{Request, Response, form_field};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;

/// The client that `fly` says it is, with its well-known secret.
const CLIENT: &str = "fly:Zmx5";

/// `POST /sky/issuer/token`.
pub fn token(web: &Web, request: &Request) -> Response {
    let form = String::from_utf8_lossy(&request.body);
    let basic = request
        .header("authorization")
        .and_then(|h| h.strip_prefix("Basic "))
        .and_then(|b| STANDARD.decode(b.trim()).ok());
    let in_form =
        || Some(format!("{}:{}", form_field(&form, "client_id")?, form_field(&form, "client_secret")?));
    let client = basic.map(|b| String::from_utf8_lossy(&b).into_owned()).or_else(in_form);
    if client.as_deref() != Some(CLIENT) {
        return refuse(401, "invalid_client", "Invalid client credentials.");
    }
    if form_field(&form, "grant_type").as_deref() != Some("password") {
        return refuse(400, "unsupported_grant_type", "");
    }
    let (user, password) = (
        form_field(&form, "username").unwrap_or_default(),
        form_field(&form, "password").unwrap_or_default(),
    );
    let user = user.to_lowercase();
    if !web.config.users.get(&user).is_some_and(|stored| matches(stored, &password)) {
        return refuse(401, "access_denied", "Invalid username or password");
    }
    match tokens::create(&web.pool, &user) {
        Ok(token) => Response::json(
            200,
            &json!({"access_token": token, "token_type": "bearer", "expires_in": tokens::LIFE}),
        ),
        Err(e) => {
            web.log.session("dex").error("failed-to-store-token", format!("{e:#}"));
            Response::text(500, "")
        }
    }
}

/// The password may be given to the web as plain text or as a bcrypt hash.
fn matches(stored: &str, given: &str) -> bool {
    if stored.starts_with("$2") { bcrypt::verify(given, stored).unwrap_or(false) } else { stored == given }
}

fn refuse(status: u16, error: &str, description: &str) -> Response {
    Response::json(status, &json!({"error": error, "error_description": description}))
}

/// What somebody is to the API.
pub enum Who {
    /// No token or one that is not known.
    Nobody,
    /// A user of no team.
    User,
    /// A user of the main team.
    Admin,
}

/// Looks at the request's token.
pub fn who(web: &Web, request: &Request) -> anyhow::Result<Who> {
    let header = request.header("authorization").unwrap_or_default();
    let token =
        header.strip_prefix("Bearer ").or_else(|| header.strip_prefix("bearer ")).unwrap_or_default().trim();
    if token.is_empty() {
        return Ok(Who::Nobody);
    }
    Ok(match tokens::user_of(&web.pool, token)? {
        None => Who::Nobody,
        Some(user) if web.config.admins.contains(&user) => Who::Admin,
        Some(_) => Who::User,
    })
}
