//! Sends an admitted request to an upstream, and again if that is safe.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{Method, Response, StatusCode};
use tollgate_http::response::SHED;
use tollgate_shed::RequestEnd;
use tollgate_store::Steady;

use crate::answers::Answer;
use crate::clock;
use crate::exchange;
use crate::forwarded_body::{ForwardedBody, RetainedBody, UploadProgress, UploadState};
use crate::model::RouteConfig;
use crate::upstream::{
    AcquireError, CapSlot, ConnectError, RequestHead, RequestInFlight, Reuse, Upstream, UpstreamBody, UpstreamError,
    UpstreamServer,
};

/// A request as an upstream gets it.
pub(crate) struct Outgoing {
    pub(crate) head: RequestHead,
    pub(crate) body: ForwardedBody,
    /// How far the body was sent. `None` if it is in memory.
    pub(crate) upload: Option<Arc<UploadProgress>>,
    /// When the whole request has to be over. `None`: no bound.
    pub(crate) deadline: Option<Steady>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) response: Response<UpstreamBody>,
    pub(crate) in_flight: RequestInFlight,
    /// Whether its head says that the upstream failed.
    pub(crate) is_failure: bool,
    /// What the upstream's cap learns from it.
    pub(crate) end: RequestEnd,
}

/// A request without a response.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) error: ForwardError,
    /// Whether a server may have got a part of it.
    pub(crate) is_sent: bool,
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
    Broken(UpstreamError),
    TimedOut(Duration),
    /// The time of the whole request is over. A server may have it.
    Overdue {
        is_sent: bool,
    },
    /// The client did not send its body as it should.
    Upload(UploadState),
}

/// How often a request of which nothing was sent, or processed, is sent on another connection.
const MAX_UNSENT: usize = 4;
/// After which times is looked whether a body waits for its client or for the server.
const UPLOAD_LOOK: Duration = Duration::from_millis(100);
const MAX_UPLOAD_LOOK: Duration = Duration::from_secs(2);

/// Sends a request.
pub(crate) async fn send(
    upstream: &Upstream,
    route: &RouteConfig,
    mut out: Outgoing,
    cap: &mut CapSlot<'_>,
) -> Result<Arrived, Unanswered> {
    upstream.counts.requests.fetch_add(1, Ordering::Relaxed);
    upstream.budget.deposit(route.retries.budget);
    let mut tries = Tries::default();
    tries.send(upstream, route, &mut out, cap).await.map_err(|error| Unanswered { error, is_sent: tries.is_sent })
}

/// What happened to a request so far.
#[derive(Default)]
struct Tries {
    /// The servers that failed it.
    tried: Vec<Arc<UpstreamServer>>,
    /// How often nothing of it was sent, or processed.
    unsent: usize,
    retries: u32,
    /// Whether an unused connection was closed. The others may be too.
    is_stale: bool,
    /// Whether a server may have got a part of it.
    is_sent: bool,
}

impl Tries {
    async fn send(
        &mut self,
        upstream: &Upstream,
        route: &RouteConfig,
        out: &mut Outgoing,
        cap: &mut CapSlot<'_>,
    ) -> Result<Arrived, ForwardError> {
        loop {
            if is_over(out) {
                return Err(ForwardError::Overdue { is_sent: self.is_sent });
            }
            let server = upstream.pick(&self.tried).ok_or(ForwardError::NoServer)?;
            let again = if is_repeatable(&out.head.method, route) { out.body.again() } else { None };
            let in_flight = RequestInFlight::begin(server.clone());
            let reuse = match &again {
                _ if self.is_stale => Reuse::Never,
                Some(_) if route.retries.on_reset && self.retries < route.retries.attempts => Reuse::Repeatable,
                _ => Reuse::Careful,
            };
            let ended = attempt(upstream, &server, route, out, (reuse, &mut *cap)).await;
            self.is_sent |= !matches!(&ended, Err(Attempt::Unsent(_) | Attempt::Unprocessed(..)))
                && !matches!(&ended, Err(Attempt::Failed(error)) if error.is_unsent());
            let (error, is_retried) = match ended {
                Ok(response) => {
                    let is_refused = is_refused(route, &response);
                    if let Some(body) = again.filter(|_| is_refused && !is_over(out) && self.may_retry(upstream, route))
                    {
                        upstream.answered(&server, &response);
                        out.body = body;
                        self.tried.push(server);
                        continue;
                    }
                    upstream.answered(&server, &response);
                    return Ok(Arrived::new(response, in_flight, out, self.retries));
                }
                Err(Attempt::Unsent(body) | Attempt::Unprocessed(_, Some(body))) => {
                    if self.unsent >= MAX_UNSENT {
                        return Err(ForwardError::NoServer);
                    }
                    (self.unsent, self.is_stale, out.body) = (self.unsent + 1, true, body);
                    continue;
                }
                // Nobody's failure, either: the connection is about to close, or has as many requests as it may.
                Err(Attempt::Unprocessed(error, None)) => return Err(ForwardError::Broken(error)),
                // As if it had been closed a moment earlier, which is nobody's failure: a retry costs the server nothing.
                Err(Attempt::Stale(error)) => {
                    self.is_stale = true;
                    if let Some(body) =
                        again.filter(|_| route.retries.on_reset && !is_over(out) && self.count_retry(upstream, route))
                    {
                        out.body = body;
                        self.tried.push(server);
                        continue;
                    }
                    upstream.failed(&server);
                    return Err(ForwardError::Broken(error));
                }
                Err(Attempt::Failed(error)) => {
                    let is_retried = match &error {
                        ForwardError::Connect(_) => route.retries.on_connect,
                        ForwardError::Broken(_) => route.retries.on_reset,
                        ForwardError::TimedOut(_) => route.retries.on_timeout,
                        _ => false,
                    };
                    (error, is_retried)
                }
            };
            if matches!(error, ForwardError::TimedOut(_) | ForwardError::Overdue { .. }) {
                upstream.counts.timeouts.fetch_add(1, Ordering::Relaxed);
            }
            if !matches!(error, ForwardError::Full | ForwardError::Overdue { is_sent: false } | ForwardError::Upload(_))
            {
                upstream.failed(&server);
            }
            // Nothing of a request that found no connection was sent.
            let body = match &error {
                ForwardError::Connect(_) => Some(take(&mut out.body)),
                _ => again,
            };
            match body.filter(|_| is_retried && !is_over(out) && self.may_retry(upstream, route)) {
                Some(body) => out.body = body,
                None => return Err(error),
            }
            self.tried.push(server);
        }
    }

    /// Whether the request may be sent again, which the upstream's budget has to allow.
    fn may_retry(&mut self, upstream: &Upstream, route: &RouteConfig) -> bool {
        self.retries < route.retries.attempts && upstream.budget.withdraw() && self.count_retry(upstream, route)
    }

    /// The same, whatever the budget.
    fn count_retry(&mut self, upstream: &Upstream, route: &RouteConfig) -> bool {
        if self.retries >= route.retries.attempts {
            return false;
        }
        self.retries += 1;
        upstream.counts.retries.fetch_add(1, Ordering::Relaxed);
        true
    }
}

/// Whether the status of a response is a reason to send the request again. A server that protects itself gets it once.
fn is_refused(route: &RouteConfig, response: &Response<UpstreamBody>) -> bool {
    route.retries.on_status.contains(&response.status().as_u16()) && !response.headers().contains_key(&SHED)
}

impl Arrived {
    fn new(response: Response<UpstreamBody>, in_flight: RequestInFlight, out: &Outgoing, retries: u32) -> Arrived {
        let is_failure = exchange::is_failure(response.status(), response.headers());
        // One that was answered before its body was sent says nothing of the time that the upstream takes.
        let is_sample = !is_failure
            && retries == 0
            && response.status() != StatusCode::SWITCHING_PROTOCOLS
            && out.upload_state() == UploadState::Done;
        let end = if is_sample { RequestEnd::Answered } else { RequestEnd::Unsampled };
        Arrived { response, in_flight, is_failure, end }
    }
}

impl Outgoing {
    /// How far the body was sent.
    fn upload_state(&self) -> UploadState {
        self.upload.as_deref().map_or(UploadState::Done, UploadProgress::get)
    }
}

/// How an attempt ended without a response.
enum Attempt {
    /// The connection was closed before anything was sent.
    Unsent(ForwardedBody),
    /// The server has surely not processed the request. The body, if it is still there.
    Unprocessed(UpstreamError, Option<ForwardedBody>),
    /// A connection that had been used before was closed before the first byte of the response.
    Stale(UpstreamError),
    Failed(ForwardError),
}

async fn attempt(
    upstream: &Upstream,
    server: &Arc<UpstreamServer>,
    route: &RouteConfig,
    out: &mut Outgoing,
    (reuse, cap): (Reuse, &mut CapSlot<'_>),
) -> Result<Response<UpstreamBody>, Attempt> {
    let connecting = upstream.connect(server, &route.timeouts, reuse);
    let connected = match clock::until(out.deadline) {
        None => Some(connecting.await),
        Some(left) => Box::pin(tokio::time::timeout(left, connecting)).await.ok(),
    };
    let lease = match connected {
        Some(Ok(lease)) => lease,
        Some(Err(AcquireError::Full)) => return Err(Attempt::Failed(ForwardError::Full)),
        Some(Err(AcquireError::Connect(error))) => return Err(Attempt::Failed(ForwardError::Connect(error))),
        None => return Err(Attempt::Failed(ForwardError::Overdue { is_sent: false })),
    };
    let mut body = take(&mut out.body);
    let retained = if lease.is_http2() { body.retain() } else { None };
    match within(route, out, cap, lease.send(&out.head, body)).await {
        Ok(Ok(response)) => {
            retained.into_iter().for_each(RetainedBody::release);
            Ok(response)
        }
        Ok(Err(error)) => match (error.unsent, out.upload_state()) {
            (Some(body), _) => Err(Attempt::Unsent(body)),
            (None, UploadState::Running | UploadState::Done) if error.is_unprocessed => {
                Err(Attempt::Unprocessed(error.error, retained.and_then(RetainedBody::take_back)))
            }
            (None, UploadState::Running | UploadState::Done) if error.is_stale => Err(Attempt::Stale(error.error)),
            (None, UploadState::Running | UploadState::Done) => Err(Attempt::Failed(ForwardError::Broken(error.error))),
            (None, why) => Err(Attempt::Failed(ForwardError::Upload(why))),
        },
        Err(late) => Err(Attempt::Failed(late)),
    }
}

/// Waits for the head of the response. The time for it begins when the request's body has been sent.
async fn within<T>(
    route: &RouteConfig,
    out: &Outgoing,
    cap: &mut CapSlot<'_>,
    sent: impl Future<Output = T>,
) -> Result<T, ForwardError> {
    let mut sent = std::pin::pin!(sent);
    if let Some(upload) = out.upload.as_deref().filter(|upload| upload.get() == UploadState::Running) {
        // Boxed, because most requests have no body, or one that is in memory.
        let uploaded = Box::pin(while_uploading((route, out), upload, cap, sent.as_mut())).await;
        if let Some(early) = uploaded? {
            return Ok(early);
        }
    }
    let time = bounded(route.timeouts.response, out);
    let late = |_| if is_over(out) { ForwardError::Overdue { is_sent: true } } else { ForwardError::TimedOut(time) };
    tokio::time::timeout(time, sent).await.map_err(late)
}

/// Waits until the body has been sent. A response may come before. While the client is awaited, the request is not in flight for
/// the upstream's cap.
async fn while_uploading<T>(
    (route, out): (&RouteConfig, &Outgoing),
    upload: &UploadProgress,
    cap: &mut CapSlot<'_>,
    mut sent: std::pin::Pin<&mut impl Future<Output = T>>,
) -> Result<Option<T>, ForwardError> {
    let idle = route.timeouts.request_idle;
    // Since when the server has not taken anything.
    let (mut stuck, mut requested) = (Duration::ZERO, upload.requested());
    let mut pause = UPLOAD_LOOK;
    loop {
        let waited = bounded(pause.min(idle), out);
        tokio::select! {
            biased;
            early = sent.as_mut() => return Ok(Some(early)),
            () = upload.ended() => {
                cap.resume();
                return Ok(None);
            }
            () = tokio::time::sleep(waited) => {}
        }
        pause = (pause * 2).min(MAX_UPLOAD_LOOK);
        // The client has a timeout of its own while its next part is awaited.
        let is_awaited = upload.is_awaited();
        if is_over(out) {
            let slow_client = ForwardError::Upload(UploadState::TooSlow);
            return Err(if is_awaited { slow_client } else { ForwardError::Overdue { is_sent: true } });
        }
        if is_awaited {
            cap.pause()
        } else {
            cap.resume()
        }
        let before = std::mem::replace(&mut requested, upload.requested());
        stuck = if is_awaited || requested != before { Duration::ZERO } else { stuck + waited };
        if stuck >= idle {
            return Err(ForwardError::TimedOut(idle));
        }
    }
}

/// A time, or what is left for the whole request.
fn bounded(time: Duration, out: &Outgoing) -> Duration {
    clock::until(out.deadline).map_or(time, |left| left.min(time))
}

/// Whether the time of the whole request is over.
fn is_over(out: &Outgoing) -> bool {
    clock::until(out.deadline).is_some_and(|left| left.is_zero())
}

fn is_repeatable(method: &Method, route: &RouteConfig) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) || route.retries.methods.contains(method)
}

fn take(body: &mut ForwardedBody) -> ForwardedBody {
    std::mem::replace(body, ForwardedBody::Whole(None))
}

/// The answer to a request whose whole time is over.
pub(crate) fn overdue() -> Answer {
    let detail = "The request took longer than this route allows.";
    Answer::problem(StatusCode::GATEWAY_TIMEOUT, "whole_timeout", detail)
}

impl ForwardError {
    /// What the upstream's cap learns from it.
    pub(crate) fn end(&self) -> RequestEnd {
        let is_sample = matches!(self, ForwardError::TimedOut(_) | ForwardError::Overdue { is_sent: true });
        if is_sample { RequestEnd::TimedOut } else { RequestEnd::Unsampled }
    }

    /// Whether the server got nothing in the attempt that ended so.
    fn is_unsent(&self) -> bool {
        use ForwardError::{Connect, Full, NoServer, Overdue};
        matches!(self, NoServer | Full | Connect(_) | Overdue { is_sent: false })
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
            ForwardError::Overdue { .. } => return overdue(),
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
            ForwardError::Overdue { .. } => f.write_str("the time of the whole request is over"),
            ForwardError::Upload(state) => write!(f, "the client's body: {state:?}"),
        }
    }
}

#[cfg(test)]
mod tests;
