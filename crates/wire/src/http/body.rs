//! Reading bodies: bounded in length and in time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body::Body;
use http_body_util::BodyExt;

use tollgate_http::problem::Problem;

/// The maximum length of a body.
pub(super) const MAX_BODY_BYTES: usize = 64 * 1024;

/// Reads a whole body.
pub(super) async fn collect<B: Body<Data = Bytes> + Unpin>(body: B, timeout: Duration) -> Result<Bytes, Problem> {
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    tollgate_net::timeout(timeout, gather(body)).await.unwrap_or_else(|| {
        let detail = format!("the body did not arrive within {timeout:?}; send it at once, with a Content-Length");
        Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "slow_body", detail))
    })
}

async fn gather<B: Body<Data = Bytes> + Unpin>(mut body: B) -> Result<Bytes, Problem> {
    let first = next(&mut body).await?.unwrap_or_default();
    if first.len() > MAX_BODY_BYTES {
        return Err(too_large());
    }
    // Nearly all bodies come in one frame, which is not copied.
    if body.is_end_stream() {
        return Ok(first);
    }
    let mut all = BytesMut::from(first);
    while let Some(more) = next(&mut body).await? {
        if all.len() + more.len() > MAX_BODY_BYTES {
            return Err(too_large());
        }
        all.extend_from_slice(&more);
    }
    Ok(all.freeze())
}

/// The next frame's data; `None` at the end.
async fn next<B: Body<Data = Bytes> + Unpin>(body: &mut B) -> Result<Option<Bytes>, Problem> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(_)) => {
                return Err(Problem::bad_request("broken_body", "the body ended early; send all of it"));
            }
            // Trailers are ignored.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

fn too_large() -> Problem {
    let detail = format!("the body is longer than {MAX_BODY_BYTES} bytes; check one request at a time");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
}
