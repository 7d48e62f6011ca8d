//! Reading a body: bounded in length and in time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body::Body;
use http_body_util::BodyExt;

use super::problem::Problem;
use crate::net::within;

/// The longest body that is read.
pub(super) const MOST_BYTES: usize = 64 * 1024;

/// All of a body.
pub(super) async fn whole<B: Body<Data = Bytes> + Unpin>(body: B, patience: Duration) -> Result<Bytes, Problem> {
    if body.size_hint().lower() > MOST_BYTES as u64 {
        return Err(too_large());
    }
    within(patience, gather(body)).await.unwrap_or_else(|| {
        let detail = format!("the body did not arrive within {patience:?}; send it at once, with its length");
        Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "slow_body", detail))
    })
}

async fn gather<B: Body<Data = Bytes> + Unpin>(mut body: B) -> Result<Bytes, Problem> {
    let first = next(&mut body).await?.unwrap_or_default();
    if first.len() > MOST_BYTES {
        return Err(too_large());
    }
    // Nearly all bodies come in one piece, which is not copied.
    if body.is_end_stream() {
        return Ok(first);
    }
    let mut all = BytesMut::from(first);
    while let Some(more) = next(&mut body).await? {
        if all.len() + more.len() > MOST_BYTES {
            return Err(too_large());
        }
        all.extend_from_slice(&more);
    }
    Ok(all.freeze())
}

/// The next piece; none at the end.
async fn next<B: Body<Data = Bytes> + Unpin>(body: &mut B) -> Result<Option<Bytes>, Problem> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(_)) => {
                return Err(Problem::bad_request("broken_body", "the body ended before its end; send all of it"));
            }
            // Trailers say nothing here.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

fn too_large() -> Problem {
    let detail = format!("the body is longer than {MOST_BYTES} bytes; ask about one request at a time");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
}
