//! The body of an answer, and the frame around a message.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use http_body::{Frame, SizeHint};

use super::PREFIX;

/// What an answer consists of.
pub(super) enum Body {
    /// One message, and the word that all went well.
    Message(Option<Bytes>),
    /// That word alone.
    Well,
    /// Nothing, or nothing more.
    Empty,
    /// What tonic answers.
    Tonic(tonic::body::Body),
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

impl Body {
    /// An answer of one message.
    pub(super) fn message(message: Bytes) -> Response<Body> {
        let mut response = Response::new(Body::Message(Some(message)));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        response
    }

    pub(super) fn empty() -> Body {
        Body::Empty
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let body = self.get_mut();
        match body {
            Body::Message(message) => {
                let message = message.take().unwrap_or_default();
                *body = Body::Well;
                Poll::Ready(Some(Ok(Frame::data(message))))
            }
            Body::Well => {
                *body = Body::Empty;
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            Body::Empty => Poll::Ready(None),
            Body::Tonic(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Empty => true,
            Body::Message(_) | Body::Well => false,
            Body::Tonic(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Tonic(body) => body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

/// Writes what comes before a message of this length.
pub(super) fn put_prefix(bytes: &mut BytesMut, length: usize) {
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
}

/// What comes before a message: whether it is compressed, and its length.
pub(super) fn prefix(bytes: &[u8]) -> Option<(bool, usize)> {
    let (prefix, _) = bytes.split_first_chunk::<PREFIX>()?;
    let [compressed, length @ ..] = *prefix;
    Some((compressed != 0, u32::from_be_bytes(length) as usize))
}
