//! Makes connections: TCP or a Unix socket, TLS, and the handshake of the protocol.

use std::fmt;
use std::io;
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::{Upstream, other};
use crate::forwarded_body::ForwardedBody;
use crate::model::{ServerAddress, Timeouts, UpstreamProtocol};

/// Why a connection could not be made.
#[derive(Debug)]
pub(crate) enum ConnectError {
    TimedOut(io::Error),
    Failed(io::Error),
}

/// A stream to a server.
pub(super) trait ServerStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> ServerStream for S {}

pub(super) type BoxStream = Box<dyn ServerStream>;
type Io = TokioIo<BoxStream>;

/// A connection after the handshake of its protocol, and the future that drives it.
pub(super) enum Connected {
    Http1(http1::SendRequest<ForwardedBody>, Box<http1::Connection<Io, ForwardedBody>>),
    Http2(http2::SendRequest<ForwardedBody>, http2::Connection<Io, ForwardedBody, TokioExecutor>),
}

/// The largest head of a response, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The largest part of a message that a connection buffers.
const MAX_BUFFER_BYTES: usize = 128 * 1024;
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to a server.
pub(super) async fn connect(
    upstream: &Upstream,
    address: &ServerAddress,
    timeouts: &Timeouts,
) -> Result<Connected, ConnectError> {
    let stream = within(timeouts.connect, "connecting", open(address)).await?;
    let (stream, has_http2) = match upstream.client_tls() {
        Some(tls) => within(timeouts.tls, "the TLS handshake", tls.connect(address, stream)).await?,
        None => (stream, false),
    };
    let is_http2 = match upstream.config.protocol {
        UpstreamProtocol::Http1 => false,
        UpstreamProtocol::Http2 => true,
        UpstreamProtocol::Negotiated => has_http2,
    };
    let io = TokioIo::new(stream);
    if is_http2 {
        let handshake = async {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new()).keep_alive_interval(KEEPALIVE).keep_alive_timeout(KEEPALIVE_TIMEOUT);
            builder.max_header_list_size(MAX_HEAD_BYTES as u32).handshake(io).await.map_err(other)
        };
        let (sender, connection) = within(timeouts.connect, "the HTTP/2 handshake", handshake).await?;
        return Ok(Connected::Http2(sender, connection));
    }
    let mut builder = http1::Builder::new();
    builder.max_header_size(MAX_HEAD_BYTES).max_buf_size(MAX_BUFFER_BYTES);
    let handshake = async { builder.handshake(io).await.map_err(other) };
    let (sender, connection) = within(timeouts.connect, "the handshake", handshake).await?;
    Ok(Connected::Http1(sender, Box::new(connection)))
}

async fn open(address: &ServerAddress) -> io::Result<BoxStream> {
    let stream = match address {
        ServerAddress::Socket(address) => TcpStream::connect(address).await?,
        ServerAddress::Name { host, port } => TcpStream::connect((host.as_str(), *port)).await?,
        ServerAddress::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
    };
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

async fn within<T>(
    timeout: Duration,
    what: &str,
    step: impl Future<Output = io::Result<T>>,
) -> Result<T, ConnectError> {
    match tokio::time::timeout(timeout, step).await {
        Ok(done) => done.map_err(ConnectError::Failed),
        Err(_) => Err(ConnectError::TimedOut(other(format!("{what} took longer than {timeout:?}")))),
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::TimedOut(error) | ConnectError::Failed(error) => write!(f, "{error}"),
        }
    }
}
