//! What is told to a client whose request can't be answered: `application/problem+json` (RFC 9457).

use axum::response::IntoResponse;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde::Serialize;
use tollgate::told::PROBLEM_JSON;
use tollgate::{RequestError, Ruleset};
use tollgate_rules::quoted;

/// A request that is not answered as it was meant.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    /// For programs; it stays what it is when the sentence changes.
    pub(super) code: &'static str,
    /// What is wrong, and what to do.
    pub(super) detail: String,
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    code: &'static str,
    detail: &'a str,
}

/// How many of the known domains are named.
const MOST_DOMAINS: usize = 20;

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Problem {
        Problem { status, code, detail: detail.into() }
    }

    pub(super) fn bad_request(code: &'static str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// The store did not answer. It always does.
    pub(super) fn no_answer() -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_answer", "the store did not answer at once; try again")
    }

    /// Who asks did not show that they may.
    pub(super) fn no_token() -> Problem {
        let detail =
            "show a token that may check: Authorization: Bearer tg_… or X-Tollgate-Token: tg_… with the scope `check`";
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
    }

    /// What is wrong with a request that could be read and can't be decided.
    pub(super) fn of_request(error: &RequestError, domain: Option<&str>, rules: &Ruleset) -> Problem {
        let code = match error {
            RequestError::UnknownDomain => "unknown_domain",
            RequestError::NoDomain => "no_domain",
            RequestError::UnknownRule(_) => "unknown_rule",
            RequestError::TooMany { .. } => "too_many",
            RequestError::TooLong => "too_long",
            RequestError::UnknownUnit => "unknown_unit",
            RequestError::BadOnce => "bad_idempotency_key",
            RequestError::BadCost(_) => "bad_cost",
        };
        let detail = match error {
            RequestError::UnknownDomain => {
                format!("there is no domain {}; the rules have {}", quoted(domain.unwrap_or_default()), names(rules))
            }
            RequestError::NoDomain => format!("{error} in `domain`: {}", names(rules)),
            _ => error.to_string(),
        };
        let status = match error {
            RequestError::UnknownDomain | RequestError::UnknownRule(_) => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        };
        Problem::new(status, code, detail)
    }

    pub(super) fn into_answer(self) -> Response<Full<Bytes>> {
        let body = Body {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            code: self.code,
            detail: &self.detail,
        };
        // Texts and numbers always have a form in JSON.
        let text = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, PROBLEM_JSON.clone());
        if self.status == StatusCode::UNAUTHORIZED {
            let how = HeaderValue::from_static("Bearer realm=\"tollgate\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, how);
        }
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> axum::response::Response {
        self.into_answer().map(axum::body::Body::new)
    }
}

/// Some of the domains that a request could have named.
fn names(rules: &Ruleset) -> String {
    let domains = rules.domains();
    let shown: Vec<_> = domains.iter().take(MOST_DOMAINS).map(|domain| quoted(domain.name())).collect();
    match domains.len().saturating_sub(MOST_DOMAINS) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
