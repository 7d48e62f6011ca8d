//! Makes connections: TCP or a Unix socket, TLS, and the handshake of the protocol.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpStream, UnixStream};

use super::http2::{MAX_STREAMS, Observed, ObservedStream};
use super::stream::ServerStream;
use super::{Upstream, other};
use crate::forwarded_body::ForwardedBody;
use crate::model::{ServerAddress, Timeouts, UpstreamProtocol};

/// Why a connection could not be made.
#[derive(Debug)]
pub(crate) enum ConnectError {
    TimedOut(io::Error),
    Failed(io::Error),
}

/// A connection after the handshake of its protocol, and the future that drives it if that is not the request's.
pub(super) enum Connected {
    Http1(ServerStream),
    Http2(http2::SendRequest<ForwardedBody>, Http2Driver, Arc<Observed>),
}

pub(super) type Http2Driver = http2::Connection<TokioIo<ObservedStream>, ForwardedBody, TokioExecutor>;

/// The largest head of a response, in bytes.
const MAX_HEAD_BYTES: u32 = 64 * 1024;
/// What a server may send on a stream of HTTP/2 before its client has read it, in bytes. The connection has room for all its
/// streams, so that clients that do not read delay nobody else.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = STREAM_WINDOW_BYTES * MAX_STREAMS as u32;
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
    if !is_http2 {
        return Ok(Connected::Http1(stream));
    }
    let (stream, observed) = ObservedStream::new(stream);
    let handshake = async {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(STREAM_WINDOW_BYTES).initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        builder.timer(TokioTimer::new()).keep_alive_interval(KEEPALIVE).keep_alive_timeout(KEEPALIVE_TIMEOUT);
        builder.max_header_list_size(MAX_HEAD_BYTES).handshake(TokioIo::new(stream)).await.map_err(other)
    };
    let (sender, driver) = within(timeouts.connect, "the HTTP/2 handshake", handshake).await?;
    Ok(Connected::Http2(sender, driver, observed))
}

async fn open(address: &ServerAddress) -> io::Result<ServerStream> {
    let stream = match address {
        ServerAddress::Socket(address) => TcpStream::connect(address).await?,
        ServerAddress::Name { host, port } => TcpStream::connect((host.as_str(), *port)).await?,
        ServerAddress::Unix(path) => return Ok(ServerStream::Unix(UnixStream::connect(path).await?)),
    };
    stream.set_nodelay(true)?;
    Ok(ServerStream::Tcp(stream))
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
