//! A plain HTTP client, for tests that need a status, headers and a body.

use std::time::Duration;

use serde_json::Value;

/// The response to a request.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
}

impl HttpResponse {
    /// Whether it is marked as the response to an earlier request.
    pub(crate) fn is_replay(&self) -> bool {
        self.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
    }

    /// The entity tag; empty if there is none.
    pub(crate) fn etag(&self) -> &str {
        self.headers.get("etag").map_or("", |tag| tag.to_str().unwrap())
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// The largest body that is read: larger than any snapshot of these tests.
const MAX_BODY_BYTES: u64 = 64 << 20;

/// A client with connections of its own, for which no status is an error.
pub(crate) fn new_agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(20)))
        .build()
        .new_agent()
}

/// Reads a response; `None` if the server is unavailable.
pub(crate) fn read(response: Result<http::Response<ureq::Body>, ureq::Error>) -> Option<HttpResponse> {
    let mut response = response.ok()?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = response.body_mut().with_config().limit(MAX_BODY_BYTES).read_to_string().ok()?;
    Some(HttpResponse { status, headers, body })
}

/// `None` if the server is unavailable.
pub(crate) fn try_get(url: &str) -> Option<HttpResponse> {
    read(new_agent().get(url).call())
}

#[track_caller]
pub(crate) fn get(url: &str) -> HttpResponse {
    try_get(url).unwrap()
}

#[track_caller]
pub(crate) fn post(url: &str, body: &str) -> HttpResponse {
    read(new_agent().post(url).send(body)).unwrap()
}

/// Posts under an idempotency key.
#[track_caller]
pub(crate) fn post_once(url: &str, key: &str, body: &str) -> HttpResponse {
    read(new_agent().post(url).header("Idempotency-Key", key).send(body)).unwrap()
}
