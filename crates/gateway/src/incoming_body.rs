//! The bodies of requests, as clients' connections give them.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::http1::FedBody;

/// The body of a request.
pub(crate) enum IncomingBody {
    /// All of it came with the head. Empty if the request has none.
    Whole(Bytes),
    Http1(FedBody),
    Http2(Incoming),
}

/// Why the rest of a body does not come.
#[derive(Debug)]
pub(crate) enum IncomingBodyError {
    /// The client's connection has ended, or what it sent is no body.
    Http1(&'static str),
    Http2(hyper::Error),
}

impl Body for IncomingBody {
    type Data = Bytes;
    type Error = IncomingBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, IncomingBodyError>>> {
        match self.get_mut() {
            IncomingBody::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            IncomingBody::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            IncomingBody::Http1(body) => body.poll_frame(context).map_err(IncomingBodyError::Http1),
            IncomingBody::Http2(body) => Pin::new(body).poll_frame(context).map_err(IncomingBodyError::Http2),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            IncomingBody::Whole(bytes) => bytes.is_empty(),
            IncomingBody::Http1(body) => body.is_end_stream(),
            IncomingBody::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            IncomingBody::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            IncomingBody::Http1(_) => SizeHint::new(),
            IncomingBody::Http2(body) => body.size_hint(),
        }
    }
}

impl fmt::Display for IncomingBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IncomingBodyError::Http1(why) => f.write_str(why),
            IncomingBodyError::Http2(error) => write!(f, "{error}"),
        }
    }
}

impl Error for IncomingBodyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            IncomingBodyError::Http1(_) => None,
            IncomingBodyError::Http2(error) => Some(error),
        }
    }
}
