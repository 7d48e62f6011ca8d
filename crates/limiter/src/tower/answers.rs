//! The layer's own answers: refusals, as HTTP or as gRPC tell them.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use crate::RequestError;
use crate::told::PROBLEM_JSON;

static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
static GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// When a gRPC client may try again, in milliseconds; one that is negative says that it may not.
static GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

static GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// The codes of gRPC that are a server's failure, as 5xx are: UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE,
/// DATA_LOSS.
const FAILURES: [&str; 6] = ["2", "4", "12", "13", "14", "15"];

/// Whether a request is a call of gRPC, whose answers have their status in a header of their own.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let rest = headers.get(CONTENT_TYPE).and_then(|value| value.as_bytes().strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// Whether the headers or trailers of an answer say that a call of gRPC failed for the server's sake.
pub(super) fn is_grpc_failure(headers: &HeaderMap) -> bool {
    headers.get(&GRPC_STATUS).is_some_and(|status| FAILURES.iter().any(|code| status == *code))
}

/// Whether an answer is a failure of the server's.
pub(super) fn is_failure<R>(response: &Response<R>) -> bool {
    response.status().is_server_error() || is_grpc_failure(response.headers())
}

/// The answer to a request whose idempotency key another request has.
pub(super) fn conflict() -> Response<Bytes> {
    problem(
        StatusCode::UNPROCESSABLE_ENTITY,
        "idempotency_conflict",
        "this idempotency key was used for another request; use a new one",
    )
}

/// The answer to a request that can't be decided, where such are refused.
pub(super) fn undecided(error: &RequestError) -> Response<Bytes> {
    problem(StatusCode::BAD_REQUEST, "bad_request", &error.to_string())
}

fn problem(status: StatusCode, code: &str, detail: &str) -> Response<Bytes> {
    let body = serde_json::json!({
        "type": "about:blank",
        "title": status.canonical_reason(),
        "status": status.as_u16(),
        "code": code,
        "detail": detail,
    });
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON.clone());
    response
}

/// A refusal as gRPC has it: no body, and the status in the headers.
pub(super) fn grpc(response: Response<Bytes>) -> Response<Bytes> {
    let (mut head, _) = response.into_parts();
    let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let (code, what) = match head.status {
        StatusCode::SERVICE_UNAVAILABLE => (14, "the limiter can't count this call at the moment"),
        StatusCode::UNPROCESSABLE_ENTITY => (3, "this idempotency key was used for another request"),
        StatusCode::FORBIDDEN => (7, "calls from this caller are blocked"),
        StatusCode::BAD_REQUEST => (3, "the limiter can't decide this call as it is"),
        _ => (8, "rate limit exceeded"),
    };
    let mut message = what.to_owned();
    if let Some(seconds) = retry_after {
        // Writing to a String can't fail.
        let _ = write!(message, "; retry after {seconds} s");
    }
    let pushback = match retry_after {
        Some(seconds) => HeaderValue::from(seconds.saturating_mul(1_000)),
        None => HeaderValue::from(-1),
    };
    head.status = StatusCode::OK;
    head.headers.insert(CONTENT_TYPE, GRPC.clone());
    head.headers.insert(&GRPC_STATUS, HeaderValue::from(code));
    head.headers.insert(&GRPC_PUSHBACK, pushback);
    if let Ok(message) = HeaderValue::try_from(message) {
        head.headers.insert(&GRPC_MESSAGE, message);
    }
    Response::from_parts(head, Bytes::new())
}
