//! Servers that share a store of record, and short ways to ask and to write.

use std::cell::Cell;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_store::{Clock as _, SystemClock};
use tollgate_testing::{Server, ServerBuilder};

use crate::new_server;

pub(crate) const RULES: &str = "
domain: api
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: {free: 100/m, pro: 1000/m, enterprise: 5000/m}}
";

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) tag: String,
    pub(crate) body: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

fn agent() -> &'static ureq::Agent {
    static AGENT: OnceLock<ureq::Agent> = OnceLock::new();
    AGENT.get_or_init(|| {
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        config.timeout_global(Some(Duration::from_secs(20))).build().new_agent()
    })
}

fn answer(response: Result<http::Response<ureq::Body>, ureq::Error>) -> Option<Answer> {
    let mut response = response.ok()?;
    let tag = response.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned()).unwrap_or_default();
    let status = response.status().as_u16();
    // More than a snapshot of these tests has.
    let body = response.body_mut().with_config().limit(64 << 20).read_to_string().ok()?;
    Some(Answer { status, tag, body })
}

/// The token of an operator, for tests in which there are tokens.
pub(crate) const TOKEN: &str = "the-token-of-an-operator";

thread_local! {
    static SHOWS_TOKEN: Cell<bool> = const { Cell::new(false) };
}

/// Shows the token with whatever this thread asks from now on.
pub(crate) fn show_token() {
    SHOWS_TOKEN.set(true);
}

fn token() -> Option<String> {
    SHOWS_TOKEN.get().then(|| format!("Bearer {TOKEN}"))
}

/// Nothing where nobody answers.
pub(crate) fn try_get(url: &str) -> Option<Answer> {
    let mut request = agent().get(url);
    if let Some(token) = token() {
        request = request.header("Authorization", token);
    }
    answer(request.call())
}

#[track_caller]
pub(crate) fn get(url: &str) -> Answer {
    try_get(url).unwrap()
}

/// Sends a body.
#[track_caller]
pub(crate) fn send(method: &str, url: &str, kind: &str, body: String) -> Answer {
    let request = http::Request::builder().method(method).uri(url).header("Content-Type", kind);
    answer(agent().run(request.body(body).unwrap())).unwrap()
}

/// Sends JSON.
#[track_caller]
pub(crate) fn post(url: &str, body: &Value) -> Answer {
    send("POST", url, "application/json", body.to_string())
}

/// Writes what a caller has, if it is as it was.
#[track_caller]
pub(crate) fn put(server: &Server, caller: &str, tag: Option<&str>, quota: &Value) -> Answer {
    let url = server.url("admin", &format!("/admin/v1/quotas/{caller}"));
    let mut request = agent().put(&url).header("Content-Type", "application/json");
    if let Some(tag) = tag {
        request = request.header("If-Match", tag);
    }
    if let Some(token) = token() {
        request = request.header("Authorization", token);
    }
    answer(request.send(quota.to_string())).unwrap()
}

/// Gives a caller a limit of its own.
#[track_caller]
pub(crate) fn set_limit(server: &Server, caller: &str, limit: u64) {
    let told = put(server, caller, None, &limited(limit));
    assert_eq!(told.status, 200, "{told:?}");
}

pub(crate) fn limited(limit: u64) -> Value {
    json!({"overrides": [{"rule": "per-key", "requests_per_unit": limit, "unit": "minute"}]})
}

/// What a server decides a caller by: its limit, and why. A look takes nothing.
pub(crate) fn try_decided(server: &Server, caller: &str) -> Option<(u64, String)> {
    let body = json!({"attributes": {"api_key": caller}, "cost": 0}).to_string();
    let told = answer(agent().post(&server.url("http", "/v1/ratelimit/check")).send(body))?;
    let told = told.json();
    Some((told["limit"].as_u64()?, told["resolved_by"].as_str()?.to_owned()))
}

#[track_caller]
pub(crate) fn decided(server: &Server, caller: &str) -> (u64, String) {
    try_decided(server, caller).unwrap()
}

/// A server on this store of record, with what else is said.
pub(crate) fn server_on(control: &str, args: &[&str]) -> Server {
    on(new_server().rules(RULES), control, args).start()
}

pub(crate) fn on(builder: ServerBuilder, control: &str, args: &[&str]) -> ServerBuilder {
    builder.listen(&["http", "admin"]).args(&["--control", control]).args(args)
}

/// Microseconds on the clock that all processes of this machine share.
pub(crate) fn now() -> u64 {
    static CLOCK: OnceLock<SystemClock> = OnceLock::new();
    CLOCK.get_or_init(SystemClock::default).now().as_micros()
}

/// Whether a server keeps this in its copy.
pub(crate) fn is_kept(server: &Server, text: &str) -> bool {
    contains(&server.home().join("data/control-copy.jsonl"), text)
}

pub(crate) fn contains(path: &Path, text: &str) -> bool {
    std::fs::read_to_string(path).is_ok_and(|kept| kept.contains(text))
}

/// The generation that is in force on a server.
pub(crate) fn generation(server: &Server) -> u64 {
    let metrics = get(&server.url("admin", "/metrics")).body;
    let line = metrics.lines().find(|line| line.starts_with("tollgate_control_generation ")).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}
