//! Servers that share a store of record, and requests to their APIs.

use std::cell::Cell;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::{Value, json};
use tollgate_store::{Clock as _, SystemClock};
use tollgate_testing::{Server, ServerBuilder};

use crate::http::{HttpResponse, new_agent, read};
use crate::new_server;

pub(crate) const RULES: &str = "
domain: api
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: {free: 100/m, pro: 1000/m, enterprise: 5000/m}}
";

fn agent() -> &'static ureq::Agent {
    static AGENT: OnceLock<ureq::Agent> = OnceLock::new();
    AGENT.get_or_init(new_agent)
}

/// The token of an operator, for tests with access control.
pub(crate) const TOKEN: &str = "the-token-of-an-operator";

thread_local! {
    static SENDS_TOKEN: Cell<bool> = const { Cell::new(false) };
}

/// Makes this thread send the token with every request from now on.
pub(crate) fn send_token() {
    SENDS_TOKEN.set(true);
}

fn token() -> Option<String> {
    SENDS_TOKEN.get().then(|| format!("Bearer {TOKEN}"))
}

/// `None` if the server is unavailable.
pub(crate) fn try_get(url: &str) -> Option<HttpResponse> {
    let mut request = agent().get(url);
    if let Some(token) = token() {
        request = request.header("Authorization", token);
    }
    read(request.call())
}

#[track_caller]
pub(crate) fn get(url: &str) -> HttpResponse {
    try_get(url).unwrap()
}

/// Sends a body.
#[track_caller]
pub(crate) fn send(method: &str, url: &str, kind: &str, body: String) -> HttpResponse {
    let mut request = http::Request::builder().method(method).uri(url).header("Content-Type", kind);
    if let Some(token) = token() {
        request = request.header("Authorization", token);
    }
    read(agent().run(request.body(body).unwrap())).unwrap()
}

/// Sends JSON.
#[track_caller]
pub(crate) fn post(url: &str, body: &Value) -> HttpResponse {
    send("POST", url, "application/json", body.to_string())
}

/// Writes a caller's quota, with `If-Match` if there is a tag.
#[track_caller]
pub(crate) fn put(server: &Server, caller: &str, tag: Option<&str>, quota: &Value) -> HttpResponse {
    let url = server.url("admin", &format!("/admin/v1/quotas/{caller}"));
    let mut request = agent().put(&url).header("Content-Type", "application/json");
    if let Some(tag) = tag {
        request = request.header("If-Match", tag);
    }
    if let Some(token) = token() {
        request = request.header("Authorization", token);
    }
    read(request.send(quota.to_string())).unwrap()
}

/// Writes a quota with this limit for a caller.
#[track_caller]
pub(crate) fn set_limit(server: &Server, caller: &str, limit: u64) {
    let response = put(server, caller, None, &quota(limit));
    assert_eq!(response.status, 200, "{response:?}");
}

/// A quota with this limit for each minute.
pub(crate) fn quota(limit: u64) -> Value {
    json!({"overrides": [{"rule": "per-key", "requests_per_unit": limit, "unit": "minute"}]})
}

/// The limit of a caller on a server, and how it was resolved; `None` if the server is unavailable.
pub(crate) fn try_limit(server: &Server, caller: &str) -> Option<(u64, String)> {
    let body = json!({"attributes": {"api_key": caller}, "cost": 0}).to_string();
    let response = read(agent().post(&server.url("http", "/v1/ratelimit/check")).send(body))?;
    let decision = response.json();
    Some((decision["limit"].as_u64()?, decision["resolved_by"].as_str()?.to_owned()))
}

#[track_caller]
pub(crate) fn limit(server: &Server, caller: &str) -> (u64, String) {
    try_limit(server, caller).unwrap()
}

/// A server with this store of record and these arguments.
pub(crate) fn server_on(control: &str, args: &[&str]) -> Server {
    with_control(new_server().rules(RULES), control, args).start()
}

pub(crate) fn with_control(builder: ServerBuilder, control: &str, args: &[&str]) -> ServerBuilder {
    builder.listen(&["http", "admin"]).args(&["--control", control]).args(args)
}

/// The time in microseconds, by the clock that all processes share.
pub(crate) fn now() -> u64 {
    static CLOCK: OnceLock<SystemClock> = OnceLock::new();
    CLOCK.get_or_init(SystemClock::default).now().as_micros()
}

/// Whether a server's local copy contains this text.
pub(crate) fn is_copied(server: &Server, text: &str) -> bool {
    file_contains(&server.home().join("data/control-copy.jsonl"), text)
}

pub(crate) fn file_contains(path: &Path, text: &str) -> bool {
    std::fs::read_to_string(path).is_ok_and(|contents| contents.contains(text))
}

/// The generation that is in force on a server.
pub(crate) fn generation(server: &Server) -> u64 {
    let metrics = get(&server.url("admin", "/metrics")).body;
    let line = metrics.lines().find(|line| line.starts_with("tollgate_control_generation ")).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}
