//! `POST /v1/ratelimit/check`: may this request pass?

use std::sync::Arc;

use axum::extract::State;
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use tollgate::told::{self, Beside, Detail};
use tollgate::{Decision, Replay, Request, RequestError, now};

use super::asked::Asked;
use super::problem::Problem;
use super::{Wire, body, once};
use crate::gate::patience;
use crate::receipts::Signed;

/// Decides the request that a body describes.
pub(super) async fn answer<B: Body<Data = Bytes> + Unpin>(
    wire: &Wire,
    headers: &HeaderMap,
    body: B,
) -> Response<Full<Bytes>> {
    match body::whole(body, wire.times.body).await {
        // Boxed, so that the future of a request is as small as if no store made wait.
        Ok(bytes) if wire.gate.waits() => Box::pin(wait(wire, headers, bytes)).await,
        Ok(bytes) => decide(wire, headers, &bytes),
        Err(problem) => refuse(wire, problem),
    }
}

/// What is asked, and the caller's name for it.
fn read<'r>(headers: &'r HeaderMap, bytes: &'r [u8]) -> Result<(Asked<'r>, Option<&'r str>), Problem> {
    Ok((Asked::read(bytes)?, once::of(headers)?))
}

/// On a store that never makes wait.
fn decide(wire: &Wire, headers: &HeaderMap, bytes: &[u8]) -> Response<Full<Bytes>> {
    let (asked, once) = match read(headers, bytes) {
        Ok(read) => read,
        Err(problem) => return refuse(wire, problem),
    };
    let (pairs, instructions) = match asked.pairs() {
        Ok(pairs) => pairs,
        Err(problem) => return refuse(wire, problem),
    };
    let descriptors = asked.descriptors(&pairs);
    let request = instructions.applied_to(Request { once, ..asked.request(&descriptors) });
    tell(wire, &request, now(wire.gate.check(&request, headers, None)))
}

/// On one that does.
async fn wait(wire: &Wire, headers: &HeaderMap, bytes: Bytes) -> Response<Full<Bytes>> {
    let (asked, once) = match read(headers, &bytes) {
        Ok(read) => read,
        Err(problem) => return refuse(wire, problem),
    };
    let (pairs, instructions) = match asked.pairs() {
        Ok(pairs) => pairs,
        Err(problem) => return refuse(wire, problem),
    };
    let descriptors = asked.descriptors(&pairs);
    let request = instructions.applied_to(Request { once, ..asked.request(&descriptors) });
    tell(wire, &request, Some(wire.gate.check(&request, headers, patience::of_http(headers)).await))
}

fn tell(wire: &Wire, request: &Request<'_>, decided: Option<Result<Decision, RequestError>>) -> Response<Full<Bytes>> {
    match decided {
        Some(Ok(decision)) if decision.replay() == Replay::Conflict => refuse(wire, conflict()),
        Some(Ok(decision)) => {
            let signed = wire.receipts.sign(&decision);
            let receipt = signed.as_ref().map(Signed::carried);
            let beside = Beside { receipt, ..wire.gate.beside(&decision) };
            told::answer(&wire.told, request, &decision, beside, Detail::Whole)
        }
        Some(Err(error)) => refuse(wire, Problem::of_request(&error, request.domain, &wire.gate.limiter().rules())),
        None => Problem::no_answer().into_answer(),
    }
}

fn conflict() -> Problem {
    let detail = "the idempotency key was used for another request, and nothing was consumed; send a key of its own with every \
                  request, and the same key only with the very same one";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_conflict", detail)
}

/// May this request pass?
///
/// What it costs is taken if it does; if not, nothing is. All of `RateLimit`, `RateLimit-Policy`, `Retry-After` and the `X-RateLimit`
/// headers are on the answer, as far as they are switched on and the rules let themselves be seen.
///
/// Under an idempotency key a request is decided once: the same again is answered alike, with `Idempotent-Replayed: true`, and consumes
/// nothing. The answer has a `receipt` if one is asked for or a rule needs one: settle it when the request has ended.
#[utoipa::path(
    post, path = "/v1/ratelimit/check", operation_id = "check", request_body = super::openapi::CheckBody,
    params(super::openapi::Idempotency),
    responses(
        (status = 200, body = super::openapi::Allowed, description = "It passes"),
        (status = 400, body = super::openapi::ProblemBody, content_type = "application/problem+json", description = "It can't be read, or can't be decided as it is"),
        (status = 404, body = super::openapi::ProblemBody, content_type = "application/problem+json", description = "There is no such domain"),
        (status = 408, body = super::openapi::ProblemBody, content_type = "application/problem+json", description = "The body did not arrive in time"),
        (status = 413, body = super::openapi::ProblemBody, content_type = "application/problem+json", description = "The body is longer than 64 KiB"),
        (status = 422, body = super::openapi::ProblemBody, content_type = "application/problem+json", description = "The idempotency key was used for another request"),
        (status = 403, body = super::openapi::Refused, content_type = "application/problem+json", description = "The caller or its address is blocked"),
        (status = 429, body = super::openapi::Refused, content_type = "application/problem+json", description = "It does not pass"),
        (status = 503, body = super::openapi::Refused, content_type = "application/problem+json", description = "It can't be counted, and its rules refuse it then"),
    )
)]
pub(super) async fn handle(
    State(wire): State<Arc<Wire>>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> axum::response::Response {
    answer(&wire, &headers, body).await.map(axum::body::Body::new)
}

/// An answer to what could not be decided, counted.
pub(super) fn refuse(wire: &Wire, problem: Problem) -> Response<Full<Bytes>> {
    wire.gate.metrics().refused_request();
    problem.into_answer()
}
