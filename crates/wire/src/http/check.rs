//! `POST /v1/ratelimit/check`: checks a request.

use std::sync::Arc;

use axum::extract::State;
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use tollgate::{Replay, Request, poll_once};
use tollgate_http::problem::Problem;
use tollgate_http::response::{self, Detail, ResponseContext};

use super::check_request::CheckRequest;
use super::{HttpState, body, once, problem};
use crate::receipts::IssuedReceipt;

/// Decides the request that a body describes.
pub(super) async fn serve<B: Body<Data = Bytes> + Unpin>(
    state: &HttpState,
    headers: &HeaderMap,
    body: B,
) -> Response<Full<Bytes>> {
    match body::collect(body, state.timeouts.body).await {
        // Boxed, so that the future of a request stays small for stores that never wait.
        Ok(bytes) if state.gate.waits() => Box::pin(check(state, headers, bytes)).await,
        Ok(bytes) => poll_once(check(state, headers, bytes)).unwrap_or_else(|| problem::no_answer().into_response()),
        Err(problem) => refuse(state, problem),
    }
}

async fn check(state: &HttpState, headers: &HeaderMap, bytes: Bytes) -> Response<Full<Bytes>> {
    let (parsed, once) = match parse(headers, &bytes) {
        Ok(parsed) => parsed,
        Err(problem) => return refuse(state, problem),
    };
    let (pairs, instructions) = match parsed.pairs() {
        Ok(pairs) => pairs,
        Err(problem) => return refuse(state, problem),
    };
    let descriptors = parsed.descriptors(&pairs);
    let request = instructions.apply_to(Request { once, ..parsed.request(&descriptors) });
    match state.gate.check(&request, headers, state.gate.http_timeout(headers)).await {
        Ok(decision) if decision.replay() == Replay::Conflict => refuse(state, conflict()),
        Ok(decision) => {
            let issued = state.receipts.sign(&decision);
            let receipt = issued.as_ref().map(IssuedReceipt::signed);
            let context = ResponseContext { receipt, ..state.gate.response_context(&decision) };
            response::respond(&state.style, &request, &decision, context, Detail::Full)
        }
        Err(error) => {
            let rules = state.gate.limiter().rules();
            refuse(state, problem::invalid_request(&error, request.domain, &rules))
        }
    }
}

/// The parsed body, and the idempotency key of the request.
fn parse<'r>(headers: &'r HeaderMap, bytes: &'r [u8]) -> Result<(CheckRequest<'r>, Option<&'r str>), Problem> {
    Ok((CheckRequest::parse(bytes)?, once::from_headers(headers)?))
}

fn conflict() -> Problem {
    let detail = "the idempotency key was used for another request, and nothing was taken; use a new key for every request, and \
                  repeat a key only with the same request";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_conflict", detail)
}

/// Check a request
///
/// Takes the cost of the request if it passes, and nothing otherwise. The response has the `RateLimit`, `RateLimit-Policy`,
/// `Retry-After` and `X-RateLimit` headers that the settings and the rules allow.
///
/// With an idempotency key a request is decided once: a repetition has the same response, with `Idempotent-Replayed: true`, and
/// takes nothing. The response has a `receipt` if one is requested or a rule needs one: settle it when the request has ended.
#[utoipa::path(
    post, path = "/v1/ratelimit/check", operation_id = "check", request_body = super::description::CheckBody,
    params(super::description::IdempotencyHeader),
    responses(
        (status = 200, body = super::description::Allowed, description = "The request passes"),
        (status = 400, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The request is invalid"),
        (status = 404, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The domain is unknown"),
        (status = 408, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The body did not arrive in time"),
        (status = 413, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The body is longer than 64 KiB"),
        (status = 422, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The idempotency key was used for another request"),
        (status = 403, body = super::description::Refused, content_type = "application/problem+json", description = "The caller or its address is blocked"),
        (status = 429, body = super::description::Refused, content_type = "application/problem+json", description = "The request is refused"),
        (status = 503, body = super::description::Refused, content_type = "application/problem+json", description = "The request can't be counted, and its rules refuse it in that case"),
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
