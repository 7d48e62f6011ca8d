//! Problem documents for requests that can't be served.

use axum::response::IntoResponse;
use http::StatusCode;
use tollgate::{RequestError, Ruleset};
use tollgate_http::problem::Problem;
use tollgate_rules::quoted;

use crate::body::BodyError;

/// A problem as the result of an axum handler.
#[derive(Debug)]
pub(super) struct ProblemResponse {
    problem: Problem,
    /// The body that could not be read, if that is the problem.
    body: Option<BodyError>,
}

/// How many domains an error lists.
const MAX_DOMAINS: usize = 20;

/// The store did not answer at once, although it never waits.
pub(super) fn no_answer() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_answer", "the store did not answer at once; try again")
}

/// A web page sent the request.
pub(super) fn web_page() -> Problem {
    let detail = "web pages of other sites have no access; a service that calls this address by another name than \
                  localhost must be in http_allowed_hosts";
    Problem::new(StatusCode::FORBIDDEN, "web_page", detail)
}

/// The request has no token with the scope `check`.
pub(super) fn no_token() -> Problem {
    let detail =
        "a token with the scope `check` is required: send Authorization: Bearer tg_… or X-Tollgate-Token: tg_…";
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
}

/// A request that is well-formed but can't be decided.
pub(super) fn invalid_request(error: &RequestError, domain: Option<&str>, rules: &Ruleset) -> Problem {
    let code = match error {
        RequestError::UnknownDomain => "unknown_domain",
        RequestError::NoDomain => "no_domain",
        RequestError::UnknownRule(_) => "unknown_rule",
        RequestError::TooMany { .. } => "too_many",
        RequestError::TooLong => "too_long",
        RequestError::UnknownUnit => "unknown_unit",
        RequestError::BadOnce => "bad_idempotency_key",
    };
    let detail = match error {
        RequestError::UnknownDomain => {
            let domain = quoted(domain.unwrap_or_default());
            format!("there is no domain {domain}; the rules have {}", domain_names(rules))
        }
        RequestError::NoDomain => format!("{error} in `domain`: {}", domain_names(rules)),
        _ => error.to_string(),
    };
    let status = match error {
        RequestError::UnknownDomain | RequestError::UnknownRule(_) => StatusCode::NOT_FOUND,
        _ => StatusCode::BAD_REQUEST,
    };
    Problem::new(status, code, detail)
}

/// The first domains of the rules.
fn domain_names(rules: &Ruleset) -> String {
    let domains = rules.domains();
    let shown: Vec<_> = domains.iter().take(MAX_DOMAINS).map(|domain| quoted(domain.name())).collect();
    match domains.len().saturating_sub(MAX_DOMAINS) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

impl From<Problem> for ProblemResponse {
    fn from(problem: Problem) -> ProblemResponse {
        ProblemResponse { problem, body: None }
    }
}

impl From<BodyError> for ProblemResponse {
    fn from(error: BodyError) -> ProblemResponse {
        ProblemResponse { problem: error.problem(), body: Some(error) }
    }
}

impl IntoResponse for ProblemResponse {
    fn into_response(self) -> axum::response::Response {
        let mut response = self.problem.into_response();
        if let Some(error) = self.body {
            error.announce_end(&mut response);
        }
        response.map(axum::body::Body::new)
    }
}
