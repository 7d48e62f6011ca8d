//! A connection that is used for one request.

use std::io;
use std::sync::Arc;
use std::{error, fmt};

use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, Version, header};
use hyper::client::conn::http2;

use super::body::UpstreamBody;
use super::http1::Http1Connection;
use super::http2::OpenStream;
use super::server::UpstreamServer;
use crate::activity::ConnectionState;
use crate::forwarded_body::{BodyError, ForwardedBody};

/// The head of a request, as an upstream gets it.
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    /// In origin form.
    pub(crate) target: Uri,
    /// The host, and its port.
    pub(crate) authority: HeaderValue,
    pub(crate) headers: HeaderMap,
    /// Whether the client used TLS.
    pub(crate) is_tls: bool,
    /// The client's connection, if it gets informational responses.
    pub(crate) interim: Option<Arc<ConnectionState>>,
}

/// A connection to a server, for one request.
pub(crate) struct Lease {
    pub(super) server: Arc<UpstreamServer>,
    pub(super) sender: Sender,
    /// Whether the connection was used before.
    pub(super) is_reused: bool,
}

pub(super) enum Sender {
    Http1(Http1Connection),
    /// The stream counts as open until the end.
    Http2(http2::SendRequest<ForwardedBody>, OpenStream),
}

/// Why a request got no response.
pub(crate) struct SendError {
    pub(crate) error: UpstreamError,
    /// The body, if nothing of the request was sent and it could be taken back.
    pub(crate) unsent: Option<ForwardedBody>,
    /// Whether the server has surely not processed the request.
    pub(crate) is_unprocessed: bool,
    /// Whether the connection had been used before, and was closed before the first byte of the response.
    pub(crate) is_stale: bool,
}

/// Why a request got no response, or not all of it.
#[derive(Debug)]
pub(crate) enum UpstreamError {
    Connection(io::Error),
    /// What is wrong with the response.
    Response(&'static str),
    Http2(hyper::Error),
    /// The client did not send its body as it should.
    Upload(BodyError),
}

impl Lease {
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self.sender, Sender::Http2(..))
    }

    /// Sends a request, and returns the head of the response. An HTTP/1.1 connection goes back to the pool at the end of the
    /// response's body.
    pub(crate) async fn send(
        self,
        head: &RequestHead,
        body: ForwardedBody,
    ) -> Result<Response<UpstreamBody>, SendError> {
        match self.sender {
            Sender::Http1(connection) => match connection.send(&self.server, head, body).await {
                Ok(response) => Ok(response.map(UpstreamBody::Http1)),
                Err(error) => Err(SendError { is_stale: error.is_stale && self.is_reused, ..error }),
            },
            Sender::Http2(mut sender, stream) => {
                let written = stream.written();
                match sender.try_send_request(http2_request(head, body)).await {
                    Ok(response) => Ok(response.map(|body| UpstreamBody::Http2(body, stream))),
                    Err(mut error) => {
                        let unsent = error.take_message().map(Request::into_body);
                        let error = error.into_error();
                        let is_closed = is_closed(&error);
                        Err(SendError {
                            is_unprocessed: (is_closed && stream.written() == written) || is_refused(&error),
                            is_stale: self.is_reused && is_closed,
                            error: UpstreamError::Http2(error),
                            unsent,
                        })
                    }
                }
            }
        }
    }
}

/// Whether the server says that it has not processed the request: it refused the stream, or its GOAWAY names a stream before it
/// as the last (RFC 9113 8.7). A stream after that is all that h2 gives this error.
fn is_refused(error: &hyper::Error) -> bool {
    http2_error(error).is_some_and(|error| {
        error.is_remote()
            && (error.is_go_away() || (error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM)))
    })
}

/// Whether the connection was closed.
fn is_closed(error: &hyper::Error) -> bool {
    error.is_closed() || error.is_canceled() || http2_error(error).is_some_and(h2::Error::is_io)
}

fn http2_error(error: &hyper::Error) -> Option<&h2::Error> {
    error::Error::source(error)?.downcast_ref()
}

/// A request with the fields of HTTP/2.
pub(super) fn http2_request(head: &RequestHead, body: ForwardedBody) -> Request<ForwardedBody> {
    let mut request = Request::new(body);
    *request.version_mut() = Version::HTTP_2;
    *request.method_mut() = head.method.clone();
    *request.headers_mut() = head.headers.clone();
    request.headers_mut().remove(header::HOST);
    request.headers_mut().remove(header::TRANSFER_ENCODING);
    let mut parts = head.target.clone().into_parts();
    parts.scheme = Some(if head.is_tls { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = head.authority.to_str().ok().and_then(|authority| authority.parse().ok());
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    request
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("server", self.server.address()).finish()
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpstreamError::Connection(error) => write!(f, "{error}"),
            UpstreamError::Response(why) => f.write_str(why),
            UpstreamError::Http2(error) => write!(f, "{error}"),
            UpstreamError::Upload(error) => write!(f, "{error}"),
        }
    }
}

impl error::Error for UpstreamError {}
