//! Plain HTTP, for tests that need no more than a status and a body.

use std::time::Duration;

use serde_json::Value;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Answer {
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
    Some(Answer { status: response.status().as_u16(), body: response.body_mut().read_to_string().ok()? })
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
