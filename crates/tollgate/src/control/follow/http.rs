//! The client of a server's control endpoints, over HTTP/1.1.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::IDLE_TIMEOUT;
use super::local_copy::LocalCopy;
use super::snapshot::{self, MAX_PENDING_CHUNKS, Snapshot};
use crate::control::lines::{MAX_LINE_BYTES, SnapshotHead};

/// The address of a server, and how to connect to it. `Debug` omits the token.
#[derive(Clone)]
pub(super) struct Endpoint {
    host: String,
    port: u16,
    /// The value of the header `Host`.
    authority: String,
    /// The prefix of all paths.
    prefix: String,
    token: Option<HeaderValue>,
    tls: TlsMode,
}

#[derive(Clone)]
enum TlsMode {
    Off,
    /// The URL requires TLS, and there is no configuration for it.
    Missing,
    On(Arc<ClientConfig>),
}

/// An invalid URL of a server, or a token with invalid characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointError(String);

/// Why a watch could not be opened.
pub(super) enum WatchError {
    /// The server no longer has the changes since the given generation: a snapshot is needed.
    TooOld,
    /// The server can't be reached, or responds with an error.
    Unavailable(String),
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time until the response begins. A server may queue requests for snapshots.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// How much of an error response is read.
const MAX_ERROR_BYTES: usize = 4_096;

impl Endpoint {
    pub(super) fn new(url: &str, token: Option<&str>) -> Result<Endpoint, EndpointError> {
        let bad =
            || EndpointError(format!("{url:?} is not the URL of a server; write for instance http://tollgate:8070"));
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (TlsMode::Off, 80),
            Some("https") => (TlsMode::Missing, 443),
            _ => return Err(bad()),
        };
        let authority = uri.authority().ok_or_else(bad)?;
        if authority.as_str().contains('@') || uri.query().is_some() {
            return Err(bad());
        }
        let token = token.map(|token| HeaderValue::try_from(format!("Bearer {token}"))).transpose();
        let mut token =
            token.map_err(|_| EndpointError("the token has characters that are invalid in a header".to_owned()))?;
        token.iter_mut().for_each(|token| token.set_sensitive(true));
        let host = authority.host();
        Ok(Endpoint {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: authority.port_u16().unwrap_or(port),
            authority: authority.to_string(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            token,
            tls,
        })
    }

    pub(super) fn set_tls(&mut self, tls: Arc<ClientConfig>) {
        if !matches!(self.tls, TlsMode::Off) {
            self.tls = TlsMode::On(tls);
        }
    }

    /// Downloads a snapshot, and stores it in the copy, if there is one.
    pub(super) async fn snapshot(&self, copy: Option<&mut LocalCopy>) -> Result<Snapshot, String> {
        let mut response = self.get("/v1/control/snapshot").await?;
        if response.status() != StatusCode::OK {
            return Err(error_message(response).await);
        }
        let (chunks, received) = mpsc::channel(MAX_PENDING_CHUNKS);
        let receive = async {
            while let Some(frame) = tokio::time::timeout(IDLE_TIMEOUT, response.frame()).await.unwrap_or(None) {
                // The reader notices a truncated snapshot by its missing last line.
                let Ok(frame) = frame else { break };
                if let Ok(data) = frame.into_data()
                    && chunks.send(data).await.is_err()
                {
                    break;
                }
            }
            drop(chunks);
        };
        let (snapshot, ()) = tokio::join!(snapshot::read_chunks(received, copy), receive);
        snapshot.map_err(|error| format!("the server's snapshot can't be used: {error}"))
    }

    /// Opens the stream of changes after a generation.
    pub(super) async fn watch(&self, after: &SnapshotHead, with_files: bool) -> Result<LineStream, WatchError> {
        let files = if with_files { "" } else { "&files=false" };
        let path = format!("/v1/control/watch?after={}&of={}{files}", after.as_of, after.identity);
        let response = self.get(&path).await.map_err(WatchError::Unavailable)?;
        match response.status() {
            StatusCode::OK => Ok(LineStream { body: response.into_body(), buffer: BytesMut::new(), searched: 0 }),
            StatusCode::GONE => Err(WatchError::TooOld),
            _ => Err(WatchError::Unavailable(error_message(response).await)),
        }
    }

    async fn get(&self, path: &str) -> Result<Response<Incoming>, String> {
        let authority = &self.authority;
        let mut request = Request::get(format!("{}{path}", self.prefix)).header(HOST, authority);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
        let connect = async {
            let stream = TcpStream::connect((&*self.host, self.port)).await.map_err(|error| error.to_string())?;
            match &self.tls {
                TlsMode::Off => handshake(stream).await,
                TlsMode::Missing => Err("its URL begins with https, which needs with_tls(…)".to_owned()),
                TlsMode::On(config) => {
                    let name = ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())?;
                    let connector = tokio_rustls::TlsConnector::from(config.clone());
                    handshake(connector.connect(name, stream).await.map_err(|error| error.to_string())?).await
                }
            }
        };
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, connect).await;
        let mut sender = connected
            .unwrap_or_else(|_| Err("the connection timed out".to_owned()))
            .map_err(|error| format!("{authority} can't be reached: {error}"))?;
        match tokio::time::timeout(RESPONSE_TIMEOUT, sender.send_request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(format!("{authority} did not respond: {error}")),
            Err(_) => Err(format!("{authority} did not respond in time")),
        }
    }
}

type Sender = http1::SendRequest<Empty<Bytes>>;

async fn handshake(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Sender, String> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // The connection ends when the response is dropped.
    tokio::spawn(connection);
    Ok(sender)
}

/// The message for an error response.
async fn error_message(response: Response<Incoming>) -> String {
    let status = response.status().as_u16();
    let body =
        tokio::time::timeout(CONNECT_TIMEOUT, Limited::new(response.into_body(), MAX_ERROR_BYTES).collect()).await;
    let body = body.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
    format!("the server responded {status}: {}", String::from_utf8_lossy(&body))
}

/// The lines of a response, as they arrive.
pub(super) struct LineStream {
    body: Incoming,
    buffer: BytesMut,
    /// How many bytes at the start of the buffer contain no line break.
    searched: usize,
}

impl LineStream {
    /// The next line; `None` at the end. It is cancel-safe: an incomplete line stays in the buffer.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            let found = self.buffer.get(self.searched..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n'));
            if let Some(found) = found {
                let line = self.buffer.split_to(self.searched + found + 1);
                self.searched = 0;
                return Ok(Some(line.freeze()));
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > MAX_LINE_BYTES {
                return Err("the server sent a line that is too long".to_owned());
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(format!("the watch broke: {error}")),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EndpointError {}
