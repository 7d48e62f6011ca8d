//! The layer's own responses: refusals over HTTP and gRPC.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;

use crate::problem::Problem;
use crate::response::SHED;
use tollgate::RequestError;

static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
static GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// When a gRPC client may retry, in milliseconds; a negative value means never.
static GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

static GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// The gRPC codes that are failures of the server, like 5xx: UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL,
/// UNAVAILABLE, DATA_LOSS.
const FAILURES: [&str; 6] = ["2", "4", "12", "13", "14", "15"];

/// Whether a request is a gRPC call, whose status is in its own header.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let rest = headers.get(CONTENT_TYPE).and_then(|value| value.as_bytes().strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// Whether the headers or trailers of a gRPC response say that the server failed.
pub fn is_grpc_failure(headers: &HeaderMap) -> bool {
    headers.get(&GRPC_STATUS).is_some_and(|status| FAILURES.iter().any(|code| status == *code))
}

/// Whether a response is a failure of the server.
pub(super) fn is_failure<R>(response: &Response<R>) -> bool {
    response.status().is_server_error() || is_grpc_failure(response.headers())
}

/// The response to a conflict of idempotency keys.
pub(super) fn conflict() -> Response<Full<Bytes>> {
    let detail = "this idempotency key was used for another request; use a new one";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_conflict", detail).into_response()
}

/// The response to a request that can't be decided, if the layer refuses those.
pub(super) fn undecided(error: &RequestError) -> Response<Full<Bytes>> {
    Problem::bad_request("bad_request", error.to_string()).into_response()
}

/// A refusal as a gRPC response: no body, and the status in the headers.
pub fn grpc(response: Response<Bytes>) -> Response<Bytes> {
    let (mut head, _) = response.into_parts();
    let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let (code, what) = match head.status {
        StatusCode::SERVICE_UNAVAILABLE if head.headers.contains_key(&SHED) => {
            (14, "the service is under too much load to answer this call now")
        }
        StatusCode::SERVICE_UNAVAILABLE => (14, "the limiter can't count calls at the moment"),
        StatusCode::UNPROCESSABLE_ENTITY => (3, "this idempotency key was used for another request"),
        StatusCode::FORBIDDEN => (7, "calls from this caller are blocked"),
        StatusCode::BAD_REQUEST => (3, "the call is invalid for the limiter"),
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
