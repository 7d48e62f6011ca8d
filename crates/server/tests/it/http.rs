//! Plain HTTP, for tests that need no more than a status and a body.

use std::time::Duration;

use serde_json::Value;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    /// Whether it says that it is the answer to an earlier request.
    pub(crate) fn is_replay(&self) -> bool {
        self.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(20)))
        .build()
        .new_agent()
}

fn answer(response: Result<http::Response<ureq::Body>, ureq::Error>) -> Option<Answer> {
    let mut response = response.ok()?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Some(Answer { status, headers, body: response.body_mut().read_to_string().ok()? })
}

/// Nothing where nobody answers.
pub(crate) fn try_get(url: &str) -> Option<Answer> {
    answer(agent().get(url).call())
}

#[track_caller]
pub(crate) fn get(url: &str) -> Answer {
    try_get(url).unwrap()
}

#[track_caller]
pub(crate) fn post(url: &str, body: &str) -> Answer {
    answer(agent().post(url).send(body)).unwrap()
}

/// A request under an idempotency key.
#[track_caller]
pub(crate) fn post_once(url: &str, key: &str, body: &str) -> Answer {
    answer(agent().post(url).header("Idempotency-Key", key).send(body)).unwrap()
}
