//! The body of a response, and the frame of a message.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use http_body::{Frame, SizeHint};

use super::PREFIX_BYTES;

/// The body of a response.
pub(super) enum GrpcBody {
    /// One message, followed by trailers with status 0.
    Message(Option<Bytes>),
    /// Only the trailers.
    Trailers,
    /// Nothing more.
    Empty,
    /// A body of tonic's.
    Tonic(tonic::body::Body),
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

impl GrpcBody {
    /// A response of one message.
    pub(super) fn message(message: Bytes) -> Response<GrpcBody> {
        let mut response = Response::new(GrpcBody::Message(Some(message)));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        response
    }

    pub(super) fn empty() -> GrpcBody {
        GrpcBody::Empty
    }
}

impl http_body::Body for GrpcBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let body = self.get_mut();
        match body {
            GrpcBody::Message(message) => {
                let message = message.take().unwrap_or_default();
                *body = GrpcBody::Trailers;
                Poll::Ready(Some(Ok(Frame::data(message))))
            }
            GrpcBody::Trailers => {
                *body = GrpcBody::Empty;
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            GrpcBody::Empty => Poll::Ready(None),
            GrpcBody::Tonic(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            GrpcBody::Empty => true,
            GrpcBody::Message(_) | GrpcBody::Trailers => false,
            GrpcBody::Tonic(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            GrpcBody::Tonic(body) => body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

/// Writes the prefix of a message of this length.
pub(super) fn put_prefix(bytes: &mut BytesMut, length: usize) {
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
}

/// Reads the prefix of a message: whether it is compressed, and its length.
pub(super) fn prefix(bytes: &[u8]) -> Option<(bool, usize)> {
    let (prefix, _) = bytes.split_first_chunk::<PREFIX_BYTES>()?;
    let [compressed, length @ ..] = *prefix;
    Some((compressed != 0, u32::from_be_bytes(length) as usize))
}
