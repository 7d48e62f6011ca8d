//! Reading HTTP bodies: bounded in length, in time and in memory.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Body;
use http_body_util::BodyExt;
use tollgate_http::problem::Problem;
use tollgate_net::budget::Budget;

/// The maximum length of a body. The values of a check may be headers of a client, and the same header may be in
/// several of them.
pub(crate) const MAX_BODY_BYTES: usize = 512 * 1024;
/// A body up to this length needs no share of [`MAX_ARRIVING_BYTES`].
const FREE_BODY_BYTES: usize = 64 * 1024;
/// The memory of all longer bodies that are arriving.
const MAX_ARRIVING_BYTES: usize = 64 * 1024 * 1024;
/// How much of a body that is too long is read, so that the connection can go on.
const MAX_DISCARDED_BYTES: usize = 16 * 1024 * 1024;

static ARRIVING: LazyLock<Budget> = LazyLock::new(|| Budget::new(MAX_ARRIVING_BYTES));

/// Why there is no body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// It is too long, or there is no memory for it.
    TooLarge {
        /// Whether all of it was read. If not, the connection can't be used any more.
        was_read: bool,
    },
    /// It did not arrive in time.
    Slow(Duration),
    /// It ended early.
    Broken,
}

/// Reads a whole body.
pub(crate) async fn collect<B: Body<Data = Bytes> + Unpin>(body: B, timeout: Duration) -> Result<Bytes, BodyError> {
    if body.size_hint().lower() > MAX_DISCARDED_BYTES as u64 {
        return Err(BodyError::TooLarge { was_read: false });
    }
    tollgate_net::timeout(timeout, gather(body)).await.unwrap_or(Err(BodyError::Slow(timeout)))
}

async fn gather<B: Body<Data = Bytes> + Unpin>(mut body: B) -> Result<Bytes, BodyError> {
    let first = next(&mut body).await?.unwrap_or_default();
    // Nearly all bodies come in one frame, which is not copied.
    if body.is_end_stream() && first.len() <= MAX_BODY_BYTES {
        return Ok(first);
    }
    // Boxed, so that the future of a request stays small.
    Box::pin(gather_frames(first, body)).await
}

async fn gather_frames<B: Body<Data = Bytes> + Unpin>(first: Bytes, mut body: B) -> Result<Bytes, BodyError> {
    let mut share = ARRIVING.reserve(0);
    let mut all = BytesMut::from(first);
    let mut length = all.len();
    while let Some(more) = next(&mut body).await? {
        length += more.len();
        let fits = length <= FREE_BODY_BYTES || share.as_mut().is_some_and(|share| share.grow(more.len()));
        if length > MAX_BODY_BYTES || !fits {
            drop((all, share));
            return discard(body, length).await;
        }
        all.extend_from_slice(&more);
    }
    match length <= MAX_BODY_BYTES {
        true => Ok(all.freeze()),
        false => Err(BodyError::TooLarge { was_read: true }),
    }
}

/// Reads the rest of a body that is too long.
async fn discard<B: Body<Data = Bytes> + Unpin>(mut body: B, mut length: usize) -> Result<Bytes, BodyError> {
    while length <= MAX_DISCARDED_BYTES {
        match next(&mut body).await? {
            Some(more) => length += more.len(),
            None => return Err(BodyError::TooLarge { was_read: true }),
        }
    }
    Err(BodyError::TooLarge { was_read: false })
}

/// The next frame's data; `None` at the end.
async fn next<B: Body<Data = Bytes> + Unpin>(body: &mut B) -> Result<Option<Bytes>, BodyError> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(_)) => return Err(BodyError::Broken),
            // Trailers are ignored.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

impl BodyError {
    /// The connection can't be used after the response.
    fn ends_connection(&self) -> bool {
        !matches!(self, BodyError::TooLarge { was_read: true })
    }

    /// Announces that the connection ends, if it does.
    pub(crate) fn announce_end<B>(&self, response: &mut Response<B>) {
        if self.ends_connection() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }

    /// The problem for the client.
    pub(crate) fn problem(&self) -> Problem {
        match self {
            BodyError::TooLarge { .. } => {
                let detail = format!("the body is longer than {MAX_BODY_BYTES} bytes; send one request at a time");
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
            }
            BodyError::Slow(timeout) => {
                let detail =
                    format!("the body did not arrive within {timeout:?}; send it at once, with a Content-Length");
                Problem::new(StatusCode::REQUEST_TIMEOUT, "slow_body", detail)
            }
            BodyError::Broken => Problem::bad_request("broken_body", "the body ended early; send all of it"),
        }
    }
}
