//! Request bodies: bounded in size and time, JSON only.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use tollgate_records::FieldFault;

use super::{Api, ApiProblem, RequestContext, records};

/// The size of a body.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// How much of a longer body is read and discarded, so that the client gets the response.
const MAX_DISCARDED_BYTES: usize = 64 << 20;
/// Time limit for a body to arrive.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The body of a write, not read yet.
pub(crate) struct RequestBody {
    headers: HeaderMap,
    body: Body,
}

/// What ends a handler before it writes.
pub(crate) enum Interruption {
    Problem(ApiProblem),
    /// The same write was answered before.
    Replay(Response),
}

impl<S: Sync> FromRequest<S> for RequestBody {
    type Rejection = Infallible;

    async fn from_request(request: Request, _: &S) -> Result<RequestBody, Infallible> {
        let (parts, body) = request.into_parts();
        Ok(RequestBody { headers: parts.headers, body })
    }
}

impl RequestBody {
    /// Reads a JSON body.
    pub(super) async fn read(self) -> Result<Bytes, ApiProblem> {
        self.read_up_to(MAX_BYTES).await
    }

    /// Reads a JSON body of at most so many bytes.
    pub(super) async fn read_up_to(self, most: usize) -> Result<Bytes, ApiProblem> {
        let is_json = self.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).is_some_and(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            kind.eq_ignore_ascii_case("application/json")
        });
        if !is_json {
            // Web pages can't send this content type to another site without permission.
            let detail = "use Content-Type: application/json";
            return Err(ApiProblem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail));
        }
        tokio::time::timeout(READ_TIMEOUT, collect(self.body, most)).await.unwrap_or_else(|_| {
            let detail = format!("the body did not arrive within {READ_TIMEOUT:?}");
            Err(ApiProblem::new(StatusCode::REQUEST_TIMEOUT, "slow_body", detail))
        })
    }

    /// Reads a JSON body, unless the same write was answered before: then that response ends the handler.
    pub(super) async fn read_new(self, api: &Api, context: &RequestContext) -> Result<Bytes, Interruption> {
        let body = self.read().await?;
        // The write itself looks again, so an unavailable store of record is its concern.
        match tokio::time::timeout(records::URGENT_TIMEOUT, records::find_replay(api, context, &body)).await {
            Ok(Ok(Some(response))) => Err(Interruption::Replay(response)),
            Ok(Err(problem)) if problem.status.is_client_error() => Err(problem.into()),
            Ok(Err(problem)) if problem.code == "control_off" => Err(problem.into()),
            _ => Ok(body),
        }
    }
}

impl<E: Into<ApiProblem>> From<E> for Interruption {
    fn from(error: E) -> Interruption {
        Interruption::Problem(error.into())
    }
}

impl IntoResponse for Interruption {
    fn into_response(self) -> Response {
        match self {
            Interruption::Problem(problem) => problem.into_response(),
            Interruption::Replay(response) => response,
        }
    }
}

/// Reads a body up to the limit. The rest is read and discarded: a client that is still sending would not read the response.
async fn collect(mut body: Body, most: usize) -> Result<Bytes, ApiProblem> {
    let (mut all, mut length) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let broken = |_| ApiProblem::bad_request("broken_body", "the body is incomplete; send all of it");
        // Trailers are ignored.
        let Ok(piece) = frame.map_err(broken)?.into_data() else { continue };
        length += piece.len();
        if length <= most {
            all.extend_from_slice(&piece);
        } else if length <= MAX_DISCARDED_BYTES {
            all.clear();
        } else {
            break;
        }
    }
    if length <= most {
        return Ok(all.freeze());
    }
    let detail = format!("the body is longer than {most} bytes; send many records to /admin/v1/import");
    Err(ApiProblem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail))
}

/// Parses a JSON body.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiProblem> {
    serde_json::from_slice(body).map_err(|error| {
        let fault = FieldFault { at: String::new(), what: error.to_string() };
        match error.classify() {
            serde_json::error::Category::Data => ApiProblem::invalid(vec![fault]),
            _ => ApiProblem::bad_request("not_json", format!("the body is not JSON: {error}")),
        }
    })
}
