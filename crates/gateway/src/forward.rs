//! Sends an admitted request to an upstream, and again if that is safe.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body::Body as _;
use hyper::body::Incoming;
use tollgate_shed::RequestEnd;
use tollgate_store::Steady;

use crate::answers::Answer;
use crate::clock;
use crate::forwarded_body::{ForwardedBody, UploadProgress, UploadState};
use crate::model::RouteConfig;
use crate::upstream::{AcquireError, ConnectError, Lease, RequestInFlight, Reuse, Upstream, UpstreamServer};

/// A request as an upstream gets it, but for what depends on the connection.
pub(crate) struct Outgoing {
    pub(crate) request: Request<ForwardedBody>,
    /// In origin form.
    pub(crate) target: Uri,
    /// The host, and its port.
    pub(crate) authority: HeaderValue,
    /// Whether the client used TLS.
    pub(crate) is_tls: bool,
    pub(crate) upload: Arc<UploadProgress>,
    /// When the whole request has to be over. `None`: no bound.
    pub(crate) deadline: Option<Steady>,
}

/// A response, and the connection that it comes on.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) response: Response<Incoming>,
    pub(crate) lease: Lease,
    pub(crate) in_flight: RequestInFlight,
    pub(crate) upload: Arc<UploadProgress>,
}

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum ForwardError {
    /// No server may be used.
    NoServer,
    /// Too many requests wait for a connection.
    Full,
    Connect(ConnectError),
    /// The connection failed after the request was sent, or a part of it.
    Broken(hyper::Error),
    TimedOut(Duration),
    /// The client did not send its body as it should.
    Upload(UploadState),
}

/// How often a request of which nothing was sent is sent on another connection.
const MAX_UNSENT: usize = 4;

/// Sends a request.
pub(crate) async fn send(upstream: &Upstream, route: &RouteConfig, mut out: Outgoing) -> Result<Arrived, ForwardError> {
    upstream.counts.requests.fetch_add(1, Ordering::Relaxed);
    upstream.budget.deposit(route.retries.budget);
    let (mut tried, mut unsent, mut retries) = (Vec::new(), 0, 0);
    loop {
        let server = upstream.pick(&tried).ok_or(ForwardError::NoServer)?;
        let again = is_repeatable(&out.request, route).then(|| repetition(&out.request)).flatten();
        let in_flight = RequestInFlight::begin(server.clone());
        let reuse = match &again {
            // Unused connections of a server may all be dead: then a new one.
            _ if unsent > 0 => Reuse::Never,
            Some(_) if route.retries.on_reset && retries < route.retries.attempts => Reuse::Repeatable,
            _ => Reuse::Careful,
        };
        let error = match attempt(upstream, &server, route, &mut out, reuse).await {
            Ok((response, lease)) => {
                let is_refused = route.retries.on_status.contains(&response.status().as_u16());
                if let Some(request) = again.filter(|_| is_refused && may_retry(upstream, route, &mut retries)) {
                    out.request = request;
                    tried.push(server);
                    continue;
                }
                if !response.status().is_server_error() {
                    server.succeeded();
                }
                return Ok(Arrived { response, lease, in_flight, upload: out.upload });
            }
            Err(Attempt::Unsent(request)) if unsent < MAX_UNSENT => {
                unsent += 1;
                out.request = *request;
                continue;
            }
            Err(Attempt::Unsent(_)) => return Err(ForwardError::NoServer),
            Err(Attempt::Failed(error)) => error,
        };
        let is_retried = match &error {
            ForwardError::Connect(_) => route.retries.on_connect,
            ForwardError::Broken(_) => route.retries.on_reset,
            ForwardError::TimedOut(_) => route.retries.on_timeout && !is_over(&out),
            _ => false,
        };
        if matches!(error, ForwardError::TimedOut(_)) {
            upstream.counts.timeouts.fetch_add(1, Ordering::Relaxed);
        }
        if !matches!(error, ForwardError::Full | ForwardError::Upload(_)) {
            upstream.failed(&server);
        }
        // Nothing of a request that found no connection was sent.
        let request = match &error {
            ForwardError::Connect(_) => {
                Some(std::mem::replace(&mut out.request, Request::new(ForwardedBody::Whole(None))))
            }
            _ => again,
        };
        match request.filter(|_| is_retried && may_retry(upstream, route, &mut retries)) {
            Some(request) => out.request = request,
            None => return Err(error),
        }
        tried.push(server);
    }
}

/// How an attempt ended without a response.
enum Attempt {
    /// The connection was closed before anything was sent.
    Unsent(Box<Request<ForwardedBody>>),
    Failed(ForwardError),
}

async fn attempt(
    upstream: &Upstream,
    server: &Arc<UpstreamServer>,
    route: &RouteConfig,
    out: &mut Outgoing,
    reuse: Reuse,
) -> Result<(Response<Incoming>, Lease), Attempt> {
    let mut lease = match upstream.connect(server, &route.timeouts, reuse).await {
        Ok(lease) => lease,
        Err(AcquireError::Full) => return Err(Attempt::Failed(ForwardError::Full)),
        Err(AcquireError::Connect(error)) => return Err(Attempt::Failed(ForwardError::Connect(error))),
    };
    let mut request = std::mem::replace(&mut out.request, Request::new(ForwardedBody::Whole(None)));
    address(&mut request, out, lease.is_http2());
    let sent = within(route, out, lease.send(request)).await;
    match sent {
        Some(Ok(response)) => Ok((response, lease)),
        Some(Err(error)) => match (error.unsent, out.upload.get()) {
            (Some(request), _) => Err(Attempt::Unsent(Box::new(request))),
            (None, UploadState::Running | UploadState::Done) => Err(Attempt::Failed(ForwardError::Broken(error.error))),
            (None, why) => Err(Attempt::Failed(ForwardError::Upload(why))),
        },
        None => Err(Attempt::Failed(ForwardError::TimedOut(route.timeouts.response))),
    }
}

/// Waits for the head of the response. The time begins when the request's body has been sent.
async fn within<T>(route: &RouteConfig, out: &Outgoing, sent: impl Future<Output = T>) -> Option<T> {
    let mut sent = std::pin::pin!(sent);
    loop {
        let left = clock::until(out.deadline);
        let time = left.map_or(route.timeouts.response, |left| left.min(route.timeouts.response));
        if let Ok(answer) = tokio::time::timeout(time, sent.as_mut()).await {
            return Some(answer);
        }
        if out.upload.get() != UploadState::Running || is_over(out) {
            return None;
        }
    }
}

/// Whether the time of the whole request is over.
fn is_over(out: &Outgoing) -> bool {
    clock::until(out.deadline).is_some_and(|left| left.is_zero())
}

/// Writes what depends on the protocol of the connection.
fn address(request: &mut Request<ForwardedBody>, out: &Outgoing, is_http2: bool) {
    if !is_http2 {
        *request.version_mut() = Version::HTTP_11;
        *request.uri_mut() = out.target.clone();
        request.headers_mut().insert(header::HOST, out.authority.clone());
        // hyper sends no body of unknown length with GET and HEAD, unless the head says so.
        if request.body().size_hint().exact().is_none() && !request.headers().contains_key(header::CONTENT_LENGTH) {
            request.headers_mut().insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        return;
    }
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(header::HOST);
    request.headers_mut().remove(header::TRANSFER_ENCODING);
    let mut parts = out.target.clone().into_parts();
    parts.scheme = Some(if out.is_tls { http::uri::Scheme::HTTPS } else { http::uri::Scheme::HTTP });
    parts.authority = out.authority.to_str().ok().and_then(|authority| authority.parse().ok());
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

fn is_repeatable(request: &Request<ForwardedBody>, route: &RouteConfig) -> bool {
    let method = request.method();
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) || route.retries.methods.contains(method)
}

/// The same request once more, if its body is in memory.
fn repetition(request: &Request<ForwardedBody>) -> Option<Request<ForwardedBody>> {
    let mut again = Request::new(request.body().again()?);
    *again.method_mut() = request.method().clone();
    *again.headers_mut() = request.headers().clone();
    Some(again)
}

fn may_retry(upstream: &Upstream, route: &RouteConfig, retries: &mut u32) -> bool {
    if *retries >= route.retries.attempts || !upstream.budget.withdraw() {
        return false;
    }
    *retries += 1;
    upstream.counts.retries.fetch_add(1, Ordering::Relaxed);
    true
}

impl ForwardError {
    /// What the upstream's cap learns from it.
    pub(crate) fn end(&self) -> RequestEnd {
        if matches!(self, ForwardError::TimedOut(_)) { RequestEnd::TimedOut } else { RequestEnd::Unsampled }
    }

    /// Whether the upstream is to blame.
    pub(crate) fn is_failure(&self) -> bool {
        !matches!(self, ForwardError::Upload(_))
    }

    /// The response to the client.
    pub(crate) fn answer(&self) -> Answer {
        let (status, code, detail) = match self {
            ForwardError::NoServer => {
                (StatusCode::SERVICE_UNAVAILABLE, "no_server", "No server of the upstream can be used at the moment.")
            }
            ForwardError::Full => {
                (StatusCode::SERVICE_UNAVAILABLE, "upstream_full", "Too many requests wait for the upstream.")
            }
            ForwardError::Connect(ConnectError::TimedOut(_)) => {
                (StatusCode::GATEWAY_TIMEOUT, "connect_timeout", "The upstream could not be reached in time.")
            }
            ForwardError::Connect(ConnectError::Failed(_)) => {
                (StatusCode::BAD_GATEWAY, "connect_failed", "The upstream could not be reached.")
            }
            ForwardError::Broken(_) => (
                StatusCode::BAD_GATEWAY,
                "upstream_broken",
                "The upstream closed the connection, or its response is invalid.",
            ),
            ForwardError::TimedOut(_) => {
                (StatusCode::GATEWAY_TIMEOUT, "response_timeout", "The upstream did not answer in time.")
            }
            ForwardError::Upload(UploadState::TooLarge) => {
                (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "The body is larger than this route allows.")
            }
            ForwardError::Upload(UploadState::Broken) => {
                (StatusCode::BAD_REQUEST, "broken_body", "The body could not be read.")
            }
            ForwardError::Upload(_) => {
                (StatusCode::REQUEST_TIMEOUT, "body_timeout", "The body did not arrive in time.")
            }
        };
        Answer::problem(status, code, detail)
    }
}

impl std::fmt::Display for ForwardError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ForwardError::NoServer => f.write_str("no server may be used"),
            ForwardError::Full => f.write_str("too many requests wait for a connection"),
            ForwardError::Connect(error) => write!(f, "{error}"),
            ForwardError::Broken(error) => write!(f, "{error}"),
            ForwardError::TimedOut(time) => write!(f, "no response within {time:?}"),
            ForwardError::Upload(state) => write!(f, "the client's body: {state:?}"),
        }
    }
}
