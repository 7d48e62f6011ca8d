//! Reading a body: bounded in length and in time, JSON and nothing else.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use tollgate::control::Fault;

use super::Problem;

/// The longest body of a write.
pub(super) const MOST_BYTES: usize = 1 << 20;
/// How much of one that is longer is read, so that its sender hears of it.
const MOST_DROPPED: usize = 64 << 20;
/// How long it may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// All of a body that says it is JSON.
pub(super) async fn whole(headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
    let is_json = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).is_some_and(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json")
    });
    if !is_json {
        // A web page can't send this by itself, so that none can write here.
        let detail = "write Content-Type: application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail));
    }
    tokio::time::timeout(PATIENCE, gathered(body)).await.unwrap_or_else(|_| {
        let detail = format!("the body did not arrive within {PATIENCE:?}");
        Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "slow_body", detail))
    })
}

/// All of a body within its bound. What is past that is read and dropped: a client that is still sending would not hear the answer.
async fn gathered(mut body: Body) -> Result<Bytes, Problem> {
    let (mut all, mut length) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let broken = |_| Problem::bad_request("broken_body", "the body ended before its end; send all of it");
        // Trailers say nothing here.
        let Ok(piece) = frame.map_err(broken)?.into_data() else { continue };
        length += piece.len();
        if length <= MOST_BYTES {
            all.extend_from_slice(&piece);
        } else if length <= MOST_DROPPED {
            all.clear();
        } else {
            break;
        }
    }
    if length <= MOST_BYTES {
        return Ok(all.freeze());
    }
    let detail = format!("the body is longer than {MOST_BYTES} bytes; send many records to /admin/v1/import");
    Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail))
}

/// What a body says.
pub(super) fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        let fault = Fault { at: String::new(), what: error.to_string() };
        match error.classify() {
            serde_json::error::Category::Data => Problem::invalid(vec![fault]),
            _ => Problem::bad_request("not_json", format!("the body is not JSON: {error}")),
        }
    })
}
