//! The bodies of responses, as they come from upstreams.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::http1::{Http1Body, UpgradedConnection};
use super::http2::OpenStream;
use super::sender::UpstreamError;

/// The body of a response.
pub(crate) enum UpstreamBody {
    Http1(Http1Body),
    /// The stream counts as open until the body is dropped.
    Http2(Incoming, #[allow(dead_code, reason = "dropped at the end")] OpenStream),
}

impl UpstreamBody {
    /// All of it, if it came with the head. The connection can be used again.
    pub(crate) fn take_whole(&mut self) -> Option<Bytes> {
        match self {
            UpstreamBody::Http1(body) => body.take_whole(),
            UpstreamBody::Http2(..) => None,
        }
    }

    /// The connection, if it has another protocol from now on.
    pub(crate) fn into_upgraded(self) -> Option<UpgradedConnection> {
        match self {
            UpstreamBody::Http1(body) => body.into_upgraded(),
            UpstreamBody::Http2(..) => None,
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        match self.get_mut() {
            UpstreamBody::Http1(body) => body.poll_frame(context),
            UpstreamBody::Http2(body, _) => Pin::new(body).poll_frame(context).map_err(UpstreamError::Http2),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            UpstreamBody::Http1(body) => body.is_end_stream(),
            UpstreamBody::Http2(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            UpstreamBody::Http1(body) => body.size_hint(),
            UpstreamBody::Http2(body, _) => body.size_hint(),
        }
    }
}

impl fmt::Debug for UpstreamBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UpstreamBody::Http1(_) => "UpstreamBody::Http1",
            UpstreamBody::Http2(..) => "UpstreamBody::Http2",
        })
    }
}
