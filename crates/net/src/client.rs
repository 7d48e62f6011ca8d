//! A small HTTP(S) client for messages to others: webhooks. Each request has a connection of its own; requests are rare.

mod roots;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, StatusCode, Uri, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::timeout::timeout;

/// An address that messages are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostTarget {
    is_tls: bool,
    host: String,
    port: u16,
    authority: Authority,
    path: PathAndQuery,
}

/// Sends messages to one target.
pub struct Poster {
    target: PostTarget,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// The response to a message, as far as senders need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostAnswer {
    pub status: StatusCode,
    /// How long the receiver asks senders to wait.
    pub retry_after: Option<Duration>,
}

/// Of a response, what is beyond is not read.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// The longest head of a response.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Longer waits than that are not what a receiver means.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);

impl PostTarget {
    /// Reads an address such as `https://hooks.example.com/tollgate`.
    ///
    /// # Errors
    /// What is wrong, for operators.
    pub fn parse(text: &str) -> Result<PostTarget, String> {
        let uri: Uri = text.parse().map_err(|error| format!("it is not a URL: {error}"))?;
        let parts = uri.into_parts();
        let is_tls = match parts.scheme {
            Some(scheme) if scheme == Scheme::HTTPS => true,
            Some(scheme) if scheme == Scheme::HTTP => false,
            _ => return Err("it begins neither with https:// nor with http://".to_owned()),
        };
        let Some(authority) = parts.authority else { return Err("it has no host".to_owned()) };
        if authority.as_str().contains('@') {
            return Err("it has a user or a password".to_owned());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = match authority.port_u16() {
            Some(port) => port,
            None if authority.as_str().len() > authority.host().len() => {
                return Err("its port is not a number up to 65535".to_owned());
            }
            None if is_tls => 443,
            None => 80,
        };
        let path = parts.path_and_query.unwrap_or(PathAndQuery::from_static("/"));
        Ok(PostTarget { is_tls, host, port, authority, path })
    }

    /// The host and the port, which is all of the address that logs may show.
    pub fn host(&self) -> String {
        self.authority.to_string()
    }

    /// Whether messages are encrypted.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }
}

impl Poster {
    /// A sender to a target. The certificate of the target must be signed by a CA of the file, or else of the system.
    ///
    /// # Errors
    /// What is wrong with the CAs or the name.
    pub fn new(target: PostTarget, ca: Option<&Path>) -> Result<Poster, String> {
        let tls = match target.is_tls {
            false => None,
            true => {
                let name = ServerName::try_from(target.host.clone())
                    .map_err(|_| format!("`{}` is neither a name nor an address", target.host))?;
                Some((roots::config(ca)?, name))
            }
        };
        Ok(Poster { target, tls })
    }

    /// Sends a message by POST. Redirects are not followed.
    ///
    /// # Errors
    /// Why there was no response, without the path of the target: it may be a secret.
    pub async fn post(&self, headers: HeaderMap, body: Bytes, limit: Duration) -> Result<PostAnswer, String> {
        let answer = timeout(limit, self.exchange(headers, body)).await;
        answer.unwrap_or_else(|| Err(format!("no response within {} s", limit.as_secs())))
    }

    async fn exchange(&self, headers: HeaderMap, body: Bytes) -> Result<PostAnswer, String> {
        let PostTarget { host, port, .. } = &self.target;
        let connecting = TcpStream::connect((host.as_str(), *port));
        let stream = connecting.await.map_err(|error| format!("no connection: {error}"))?;
        // Best effort: it only saves a delay.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.send(TokioIo::new(stream), headers, body).await,
            Some((config, name)) => {
                let connector = TlsConnector::from(config.clone());
                let stream = connector.connect(name.clone(), stream).await;
                let stream = stream.map_err(|error| format!("no TLS connection: {error}"))?;
                self.send(TokioIo::new(stream), headers, body).await
            }
        }
    }

    async fn send(
        &self,
        stream: impl Read + Write + Unpin + Send + 'static,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<PostAnswer, String> {
        let connected = http1::Builder::new().max_buf_size(MAX_HEAD_BYTES).handshake(stream).await;
        let (mut sender, connection) = connected.map_err(|error| error.to_string())?;
        let response = sender.send_request(self.request(headers, body)?);
        let answer = async {
            let response = response.await.map_err(|error| format!("no response: {error}"))?;
            let answer = PostAnswer::of(&response);
            discard(response.into_body()).await;
            Ok(answer)
        };
        // A connection that ends fails the response, unless it has been read.
        let driving = async {
            let _ = connection.await;
            pending().await
        };
        tokio::select! {
            answer = answer => answer,
            never = driving => never,
        }
    }

    fn request(&self, headers: HeaderMap, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_11;
        *request.uri_mut() = Uri::from(self.target.path.clone());
        *request.headers_mut() = headers;
        let host = HeaderValue::from_str(self.target.authority.as_str()).map_err(|error| error.to_string())?;
        request.headers_mut().insert(HOST, host);
        request.headers_mut().entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        Ok(request)
    }
}

impl PostAnswer {
    fn of(response: &http::Response<Incoming>) -> PostAnswer {
        let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let retry_after = seconds.map(|seconds| Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
        PostAnswer { status: response.status(), retry_after }
    }
}

/// Reads the body, so that the receiver need not fail to write it. What is beyond the bound is left.
async fn discard(mut body: Incoming) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > MAX_RESPONSE_BYTES {
            return;
        }
    }
}

impl fmt::Debug for Poster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poster").field("host", &self.target.host()).finish_non_exhaustive()
    }
}
