//! `POST /v1/ratelimit/check`: checks a request.

use std::sync::Arc;

use axum::extract::State;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::Body;
use http_body_util::Full;
use tollgate::{Request, RequestError, poll_once};
use tollgate_http::problem::{PROBLEM_JSON, Problem};
use tollgate_http::response::{self, Detail, ResponseContext};
use tollgate_telemetry::metrics::{Repair, Repairs};

use super::check_request::CheckRequest;
use super::prepared::PreparedResponse;
use super::{HttpState, once, problem};
use crate::attributes::Undecided;
use crate::body::{self, BodyError};
use crate::json_text;
use crate::receipts::IssuedReceipt;

/// The bodies of responses to checks that can't be decided.
const PASSED: &str = r#"{"allowed":true,"source":"assumed"}"#;
const REFUSED: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","#,
    r#""title":"Temporarily reduced capacity","status":503,"#,
    r#""detail":"The request can't be decided, and a rule that might apply refuses it in that case.","#,
    r#""violated-policies":[],"allowed":false,"retryable":false,"source":"assumed","#,
    r#""error":{"code":"REDUCED_CAPACITY","#,
    r#""message":"The request can't be decided, and a rule that might apply refuses it in that case."}}"#
);

/// Decides the request that a body describes.
pub(super) async fn serve<B: Body<Data = Bytes> + Unpin>(
    state: &HttpState,
    headers: &HeaderMap,
    body: B,
) -> Response<Full<Bytes>> {
    match body::collect(body, state.timeouts.body).await {
        // Boxed, so that the future of a request stays small for stores that never wait.
        Ok(bytes) if state.gate.waits() => Box::pin(check(state, headers, &bytes)).await.into_response(),
        Ok(bytes) => check_at_once(state, headers, &bytes).into_response(),
        Err(error @ BodyError::TooLarge { .. }) => {
            let mut response = undecided(state, None);
            error.announce_end(&mut response);
            response
        }
        Err(error) => refuse_body(state, &error),
    }
}

/// Decides on a store that never waits.
pub(super) fn check_at_once(state: &HttpState, headers: &HeaderMap, body: &[u8]) -> PreparedResponse {
    poll_once(check(state, headers, body)).unwrap_or_else(|| problem::no_answer().into_response().into())
}

async fn check(state: &HttpState, headers: &HeaderMap, bytes: &[u8]) -> PreparedResponse {
    let mut repairs = Repairs::default();
    let text;
    let parsed = match CheckRequest::parse(bytes) {
        Err(problem) => match json_text::as_utf8(bytes) {
            Some(repaired) => {
                text = repaired;
                CheckRequest::parse(&text)
            }
            None => Err(problem),
        },
        parsed => parsed,
    };
    let mut parsed = match parsed {
        Ok(parsed) => parsed,
        Err(problem) => return refuse(state, problem).into(),
    };
    let is_repaired = parsed.repair(state.normalization, state.gate.limiter(), &mut repairs);
    let once = once::from_headers(headers, &mut repairs);
    state.gate.metrics().repaired_all(repairs);
    if is_repaired == Err(Undecided) {
        return undecided(state, parsed.domain.as_deref()).into();
    }
    let (pairs, instructions) = match parsed.pairs() {
        Ok(pairs) => pairs,
        Err(problem) => return refuse(state, problem).into(),
    };
    if instructions.ignored() > 0 {
        state.gate.metrics().repaired(Repair::BadName);
    }
    let descriptors = parsed.descriptors(&pairs);
    let request = instructions.apply_to(Request { once: once.as_deref(), ..parsed.request(&descriptors) });
    let mut decision = state.gate.limiter().decision();
    match state.gate.check(&request, headers, state.gate.http_timeout(headers), &mut decision).await {
        Ok(()) => {
            let issued = state.receipts.sign(&decision);
            let receipt = issued.as_ref().map(IssuedReceipt::signed);
            let context = ResponseContext { receipt, ..state.gate.response_context(&decision) };
            response::respond(&state.style, &request, &decision, context, Detail::Full).into()
        }
        Err(RequestError::TooMany { .. } | RequestError::TooLong | RequestError::BadOnce) => {
            undecided(state, request.domain).into()
        }
        Err(error) => {
            let rules = state.gate.limiter().rules();
            refuse(state, problem::invalid_request(&error, request.domain, &rules)).into()
        }
    }
}

/// The response to a check that can't be decided, by the policies of the rules.
#[cold]
pub(super) fn undecided(state: &HttpState, domain: Option<&str>) -> Response<Full<Bytes>> {
    let (status, kind, body) = match state.gate.pass_undecided(domain) {
        true => (StatusCode::OK, HeaderValue::from_static("application/json"), PASSED),
        false => (StatusCode::SERVICE_UNAVAILABLE, PROBLEM_JSON.clone(), REFUSED),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Check a request
///
/// Takes the cost of the request if it passes, and nothing otherwise. The response has the `RateLimit`, `RateLimit-Policy`,
/// `Retry-After` and `X-RateLimit` headers that the settings and the rules allow.
///
/// With an idempotency key a request is decided once: a repetition has the same response, with `Idempotent-Replayed: true`, and
/// takes nothing. A key that was used for another request has no effect. The response has a `receipt` if one is requested or a rule needs one: settle it when the request has ended.
#[utoipa::path(
    post, path = "/v1/ratelimit/check", operation_id = "check", request_body = super::description::CheckBody,
    params(super::description::IdempotencyHeader),
    responses(
        (status = 200, body = super::description::Allowed, description = "The request passes"),
        (status = 400, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The request is invalid"),
        (status = 404, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The domain is unknown"),
        (status = 408, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The body did not arrive in time"),
        (status = 403, body = super::description::Refused, content_type = "application/problem+json", description = "The caller or its address is blocked"),
        (status = 429, body = super::description::Refused, content_type = "application/problem+json", description = "The request is refused"),
        (status = 503, body = super::description::Refused, content_type = "application/problem+json", description = "The request can't be counted, and its rules refuse it in that case; or a rule refuses it to protect the service"),
    )
)]
pub(super) async fn handle(
    State(state): State<Arc<HttpState>>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> axum::response::Response {
    serve(&state, &headers, body).await.map(axum::body::Body::new)
}

/// The response to an invalid request, which is counted.
pub(super) fn refuse(state: &HttpState, problem: Problem) -> Response<Full<Bytes>> {
    state.gate.metrics().refused_request();
    problem.into_response()
}

/// The response to a body that could not be read.
pub(super) fn refuse_body(state: &HttpState, error: &BodyError) -> Response<Full<Bytes>> {
    let mut response = refuse(state, error.problem());
    error.announce_end(&mut response);
    response
}
