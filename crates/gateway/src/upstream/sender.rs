//! A connection that is used for one request.

use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};

use super::pool::OpenStream;
use super::server::UpstreamServer;
use crate::forwarded_body::ForwardedBody;

/// A connection to a server, for one request. An HTTP/1.1 connection goes back to the pool afterwards.
pub(crate) struct Lease {
    pub(super) server: Arc<UpstreamServer>,
    pub(super) sender: Sender,
    /// When the connection was made, in microseconds of the pool's clock.
    pub(super) born: u64,
}

pub(super) enum Sender {
    Http1(http1::SendRequest<ForwardedBody>),
    /// The stream counts as open until the end.
    Http2(http2::SendRequest<ForwardedBody>, #[allow(dead_code, reason = "dropped at the end")] OpenStream),
}

/// Why a request got no response.
pub(crate) struct SendError {
    pub(crate) error: hyper::Error,
    /// The request, if nothing of it was sent.
    pub(crate) unsent: Option<Request<ForwardedBody>>,
}

impl Lease {
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self.sender, Sender::Http2(..))
    }

    /// Sends a request, and returns the head of the response.
    pub(crate) async fn send(&mut self, request: Request<ForwardedBody>) -> Result<Response<Incoming>, SendError> {
        let sent = match &mut self.sender {
            Sender::Http1(sender) => sender.try_send_request(request).await,
            Sender::Http2(sender, ..) => sender.try_send_request(request).await,
        };
        sent.map_err(|mut error| {
            let unsent = error.take_message();
            SendError { error: error.into_error(), unsent }
        })
    }

    /// The response has been read: the connection may be used again.
    pub(crate) fn release(self) {
        if let Sender::Http1(sender) = self.sender {
            self.server.pool.put_back(sender, self.born);
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("server", self.server.address()).finish()
    }
}
