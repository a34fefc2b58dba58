//! The HTTP API: as much of the real one as the charm and its tests use, and the stand-in's own way to run a task.

use super::Web;
use super::auth::{self, Who};
use crate::db::{tasks, tokens, workers};
use crate::http::{Request, Response, form_field};
use crate::protocol::Task;
use crate::version::{WORKER_VERSION, banner, version};
use anyhow::Result;
use serde_json::{Value, json};

/// Answers a request.
pub fn answer(web: &Web, request: &Request) -> Response {
    route(web, request).unwrap_or_else(|e| {
        web.log.session("api").error("request-failed", format!("{e:#}"));
        Response::text(500, "internal server error")
    })
}

fn route(web: &Web, request: &Request) -> Result<Response> {
    let parts: Vec<&str> = request.path.trim_matches('/').split('/').collect();
    Ok(match (request.method.as_str(), parts.as_slice()) {
        ("GET" | "HEAD", [""]) => Response { status: 200, kind: "text/html", body: page().into_bytes() },
        ("POST", ["sky", "issuer", "token"]) => auth::token(web, request),
        ("GET" | "HEAD", ["api", "v1", "info"]) => info(web)?,
        ("GET", ["api", "v1", "workers"]) => match auth::who(web, request)? {
            Who::Nobody => Response::text(401, "not authorized"),
            Who::User => Response::text(403, "forbidden"),
            Who::Admin => Response::json(200, &workers::list(&web.pool)?.into()),
        },
        ("PUT", ["api", "v1", "workers", name, verb @ ("land" | "retire" | "prune")]) => {
            admin(web, request, || change_worker(web, name, verb))?
        }
        ("GET", ["api", "v1", "standin", "tasks"]) => {
            admin(web, request, || Ok(Response::json(200, &tasks::list(&web.pool)?.into())))?
        }
        ("POST", ["api", "v1", "standin", "tasks"]) => {
            admin(web, request, || create_task(web, &request.body))?
        }
        ("GET", ["api", "v1", "standin", "tasks", id]) => admin(web, request, || {
            let shown = tasks::show(&web.pool, id.parse().unwrap_or(-1))?;
            Ok(shown.map_or_else(|| Response::text(404, ""), |v| Response::json(200, &v)))
        })?,
        ("GET", ["api", "v1", "standin", "tasks", id, "output"]) => admin(web, request, || {
            let offset = form_field(&request.query, "offset").and_then(|o| o.parse().ok()).unwrap_or(0);
            let body = tasks::read(&web.pool, id.parse().unwrap_or(-1), offset)?;
            Ok(Response { status: 200, kind: "application/octet-stream", body })
        })?,
        _ => Response::text(404, "404 page not found"),
    })
}

fn admin(web: &Web, request: &Request, then: impl FnOnce() -> Result<Response>) -> Result<Response> {
    match auth::who(web, request)? {
        Who::Nobody => Ok(Response::text(401, "not authorized")),
        Who::User => Ok(Response::text(403, "forbidden")),
        Who::Admin => then(),
    }
}

fn info(web: &Web) -> Result<Response> {
    // The real one answers without a look at the database; here a lost database shows at once.
    tokens::user_of(&web.pool, "")?;
    let mut info = json!({
        "version": version(), "worker_version": WORKER_VERSION, "feature_flags": {}, "external_url": web.config.external_url,
        "stand-in": true,
    });
    if !web.config.cluster_name.is_empty() {
        info["cluster_name"] = web.config.cluster_name.clone().into();
    }
    Ok(Response::json(200, &info))
}

fn change_worker(web: &Web, name: &str, verb: &str) -> Result<Response> {
    let Some(_state) = workers::state(&web.pool, name)? else { return Ok(Response::text(404, "")) };
    let done = match verb {
        "land" => workers::land(&web.pool, name)?,
        "retire" => workers::retire(&web.pool, name)?,
        _ => workers::prune(&web.pool, name)?,
    };
    Ok(match (done, verb) {
        (false, "prune") => Response::json(400, &json!({"stderr": "cannot prune running worker"})),
        (false, _) => Response::text(404, ""),
        (true, _) => Response::text(200, ""),
    })
}

/// A new task: who it is for, and what it is.
#[derive(serde::Deserialize)]
struct NewTask {
    worker: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(flatten)]
    task: Task,
}

fn create_task(web: &Web, body: &[u8]) -> Result<Response> {
    let mut new: NewTask = match serde_json::from_slice(body) {
        Ok(new) => new,
        Err(e) => return Ok(Response::json(400, &json!({"error": format!("malformed task: {e}")}))),
    };
    new.task.external_url = web.config.external_url.clone();
    let all = workers::list(&web.pool)?;
    let Some(worker) = choose(&all, new.worker.as_deref(), &new.tags) else {
        let wanted = new.worker.map_or_else(|| format!("tags {:?}", new.tags), |w| format!("name '{w}'"));
        return Ok(Response::json(503, &json!({"error": format!("no workers satisfying: {wanted}")})));
    };
    let id = tasks::create(&web.pool, worker, &new.task)?;
    Ok(Response::json(201, &json!({"id": id, "worker": worker})))
}

/// The running worker with that name, or the least busy one that fits the tags: a step without tags goes only to
/// a worker without tags, a step with tags to one that has them all.
fn choose<'a>(all: &'a [Value], name: Option<&str>, tags: &[String]) -> Option<&'a str> {
    let fits = |w: &&Value| {
        let have: Vec<&str> =
            w["tags"].as_array().map(|t| t.iter().filter_map(Value::as_str).collect()).unwrap_or_default();
        let right = match name {
            Some(name) => w["name"] == name,
            None if tags.is_empty() => have.is_empty(),
            None => tags.iter().all(|t| have.contains(&t.as_str())),
        };
        w["state"] == "running" && right
    };
    all.iter().filter(fits).min_by_key(|w| w["active_tasks"].as_i64()).and_then(|w| w["name"].as_str())
}

/// The metrics page.
pub fn metrics(web: &Web) -> Response {
    let build = || -> Result<String> {
        let mut text = String::from(
            "# This is a stand-in for Concourse, not the real one.\n# TYPE concourse_workers_registered gauge\n",
        );
        for (state, n) in workers::count_by_state(&web.pool)? {
            text += &format!("concourse_workers_registered{{state=\"{state}\"}} {n}\n");
        }
        text += "# TYPE concourse_standin_tasks gauge\n";
        for (state, n) in tasks::count_by_state(&web.pool)? {
            text += &format!("concourse_standin_tasks{{state=\"{state}\"}} {n}\n");
        }
        Ok(text)
    };
    build().map_or_else(
        |e| Response::text(500, format!("{e:#}")),
        |t| Response { status: 200, kind: "text/plain; version=0.0.4", body: t.into_bytes() },
    )
}

fn page() -> String {
    format!(
        "<!doctype html><title>Stand-in Concourse</title><h1>{}</h1><p>Nothing here builds pipelines; see /api/v1/info.</p>\n",
        banner()
    )
}

#[cfg(test)]
mod tests {
    use super::choose;
    use serde_json::json;

    #[test]
    fn placement() {
        let all = [
            json!({"name": "a", "state": "running", "tags": ["gpu", "cuda"], "active_tasks": 0}),
            json!({"name": "b", "state": "running", "tags": [], "active_tasks": 1}),
            json!({"name": "c", "state": "running", "tags": null, "active_tasks": 0}),
            json!({"name": "d", "state": "stalled", "tags": ["amd"], "active_tasks": 0}),
        ];
        let tags = |t: &[&str]| t.iter().map(|s| s.to_string()).collect::<Vec<_>>();
        assert_eq!(choose(&all, None, &[]), Some("c"));
        assert_eq!(choose(&all, None, &tags(&["cuda"])), Some("a"));
        assert_eq!(choose(&all, None, &tags(&["cuda", "amd"])), None);
        assert_eq!(choose(&all, None, &tags(&["amd"])), None);
        assert_eq!(choose(&all, Some("a"), &[]), Some("a"));
    }
}
