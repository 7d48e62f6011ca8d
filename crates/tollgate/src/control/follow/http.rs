//! Asking a server, over HTTP/1.1.

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

use super::SILENCE;
use super::kept::Kept;
use super::snapshot::{self, Snapshot, WAITING};
use crate::control::lines::{MAX_LINE_BYTES, SnapshotHead};

/// Where a server is, and how it is asked. Not `Debug` as it is: it has the token.
#[derive(Clone)]
pub(super) struct Endpoint {
    host: String,
    port: u16,
    /// `Host`, as HTTP writes it.
    authority: String,
    /// What paths begin with.
    prefix: String,
    token: Option<HeaderValue>,
    tls: Tls,
}

#[derive(Clone)]
enum Tls {
    Off,
    /// It is asked for, and nobody said how.
    Missing,
    With(Arc<ClientConfig>),
}

/// A URL that can't be followed, or a token that can't be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadUrl(String);

/// Why there is no watch.
pub(super) enum Gone {
    /// A snapshot is to be taken.
    TooOld,
    /// The server does not answer as it should.
    Away(String),
}

/// How long a connection may take to come about, and an answer to begin: a server may wait for its own turn.
const CONNECT: Duration = Duration::from_secs(10);
const BEGIN: Duration = Duration::from_secs(30);
/// The most that is read of what a server says against it.
const MOST_TOLD: usize = 4_096;

impl Endpoint {
    pub(super) fn new(url: &str, token: Option<&str>) -> Result<Endpoint, BadUrl> {
        let bad = || BadUrl(format!("{url:?} is no URL of a server: write for instance http://tollgate:8070"));
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (Tls::Off, 80),
            Some("https") => (Tls::Missing, 443),
            _ => return Err(bad()),
        };
        let authority = uri.authority().ok_or_else(bad)?;
        if authority.as_str().contains('@') || uri.query().is_some() {
            return Err(bad());
        }
        let token = token.map(|token| HeaderValue::try_from(format!("Bearer {token}"))).transpose();
        let mut token = token.map_err(|_| BadUrl("the token has characters that no token has".to_owned()))?;
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

    pub(super) fn secure(&mut self, tls: Arc<ClientConfig>) {
        if !matches!(self.tls, Tls::Off) {
            self.tls = Tls::With(tls);
        }
    }

    /// All that there is.
    pub(super) async fn snapshot(&self, kept: Option<&mut Kept>) -> Result<Snapshot, String> {
        let mut answer = self.get("/v1/control/snapshot").await?;
        if answer.status() != StatusCode::OK {
            return Err(refusal(answer).await);
        }
        let (chunks, taken) = mpsc::channel(WAITING);
        let passing = async {
            while let Some(frame) = tokio::time::timeout(SILENCE, answer.frame()).await.unwrap_or(None) {
                // What is cut off here lacks its end, which the reader will find.
                let Ok(frame) = frame else { break };
                if let Ok(data) = frame.into_data()
                    && chunks.send(data).await.is_err()
                {
                    break;
                }
            }
            drop(chunks);
        };
        let (taken, ()) = tokio::join!(snapshot::of_chunks(taken, kept), passing);
        taken.map_err(|error| format!("the server's snapshot can't be used: {error}"))
    }

    /// What changes past a point.
    pub(super) async fn watch(&self, at: &SnapshotHead, with_files: bool) -> Result<Lines, Gone> {
        let files = if with_files { "" } else { "&files=false" };
        let path = format!("/v1/control/watch?after={}&of={}{files}", at.as_of, at.identity);
        let answer = self.get(&path).await.map_err(Gone::Away)?;
        match answer.status() {
            StatusCode::OK => Ok(Lines { body: answer.into_body(), buffer: BytesMut::new(), searched: 0 }),
            StatusCode::GONE => Err(Gone::TooOld),
            _ => Err(Gone::Away(refusal(answer).await)),
        }
    }

    async fn get(&self, path: &str) -> Result<Response<Incoming>, String> {
        let place = &self.authority;
        let mut request = Request::get(format!("{}{path}", self.prefix)).header(HOST, place);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
        let connected = async {
            let stream = TcpStream::connect((&*self.host, self.port)).await.map_err(|error| error.to_string())?;
            match &self.tls {
                Tls::Off => handshake(stream).await,
                Tls::Missing => Err("its URL begins with https, and there is no with_tls(…)".to_owned()),
                Tls::With(config) => {
                    let name = ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())?;
                    let connector = tokio_rustls::TlsConnector::from(config.clone());
                    handshake(connector.connect(name, stream).await.map_err(|error| error.to_string())?).await
                }
            }
        };
        let connected = tokio::time::timeout(CONNECT, connected).await;
        let mut sender = connected
            .unwrap_or_else(|_| Err("no connection in time".to_owned()))
            .map_err(|why| format!("{place} can't be reached: {why}"))?;
        match tokio::time::timeout(BEGIN, sender.send_request(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(format!("{place} does not answer: {error}")),
            Err(_) => Err(format!("{place} does not answer in time")),
        }
    }
}

type Sender = http1::SendRequest<Empty<Bytes>>;

async fn handshake(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Sender, String> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // It ends with what is read from it.
    tokio::spawn(connection);
    Ok(sender)
}

/// What a server says against it.
async fn refusal(answer: Response<Incoming>) -> String {
    let status = answer.status().as_u16();
    let told = tokio::time::timeout(CONNECT, Limited::new(answer.into_body(), MOST_TOLD).collect()).await;
    let told = told.ok().and_then(Result::ok).map(|told| told.to_bytes()).unwrap_or_default();
    format!("the server answers {status}: {}", String::from_utf8_lossy(&told))
}

/// Lines as they come.
pub(super) struct Lines {
    body: Incoming,
    buffer: BytesMut,
    /// How far there is no end of a line.
    searched: usize,
}

impl Lines {
    /// The next line; `None` at the end. What was read of one that is not whole stays for the next call, if this one is dropped.
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
                return Err("the server sends a line without an end".to_owned());
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

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUrl {}
