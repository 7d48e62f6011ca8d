//! gRPC on HTTP/2.
//!
//! `ShouldRateLimit` is served on hyper itself: one message in, one out, with nothing between. Health and reflection, which
//! nobody calls often, are tonic's.

mod body;
mod others;
mod status;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use tollgate::now;

use crate::gate::patience;
use crate::net::budget::Budget;
use crate::net::{Closing, Stream, within};
use crate::tokens::Keys;
use crate::wire::envoy::{Envoy, Refusal};
use body::Body;
use status::Status;

pub(crate) use others::{Others, follow_health};

/// Where the hot method is found.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// Before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// What a client may send on one stream before the server has looked at it.
const STREAM_WINDOW: u32 = 64 * 1024;
/// And on a connection, for each stream that it may have: h2 takes half of that as its bound on small frames that nobody has read
/// yet, 256 bytes for each, and ends a connection that goes past it. All streams of a connection may have two such frames.
const WINDOW_OF_A_STREAM: u32 = 1024;
/// The largest window that the protocol knows.
const MOST_WINDOW: u32 = (1 << 31) - 1;
/// The longest headers of one call.
const MOST_HEADERS: u32 = 8 * 1024;
/// What a call holds while it arrives, but for its message: its headers, mostly short, and its stream.
const CALL: usize = 4 * 1024;
/// What all calls may hold that are still arriving. Past it calls are refused: they may be tried again.
const MOST_ARRIVING: usize = 64 * 1024 * 1024;

/// The gRPC wire.
#[derive(Debug)]
pub(crate) struct Grpc {
    envoy: Arc<Envoy>,
    others: Others,
    config: GrpcConfig,
    /// Who may check; `None`: whoever can reach the listener.
    keys: Option<Arc<Keys>>,
    /// What calls hold that are still arriving, on all connections.
    arriving: Budget,
}

/// How connections are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrpcConfig {
    /// The largest message, in bytes.
    pub(crate) max_message: usize,
    /// The most calls at a time on one connection.
    pub(crate) max_streams: u32,
    /// After which a connection is asked to end, so that clients spread over the servers anew.
    pub(crate) max_age: Option<Duration>,
    /// How long such a connection may go on with what it has begun.
    pub(crate) age_grace: Duration,
    /// How often a silent client is asked whether it is there.
    pub(crate) keepalive: Duration,
    /// How long it may take to answer.
    pub(crate) keepalive_timeout: Duration,
    /// How long a message may take to arrive.
    pub(crate) body_timeout: Duration,
}

impl Grpc {
    pub(crate) fn new(envoy: Arc<Envoy>, others: Others, config: GrpcConfig) -> Grpc {
        Grpc { envoy, others, config, keys: None, arriving: Budget::new(MOST_ARRIVING) }
    }

    /// Only those may check who show one of these, if there are any.
    pub(crate) fn guarded_by(self, keys: Option<Arc<Keys>>) -> Grpc {
        Grpc { keys, ..self }
    }

    /// Serves one connection until it ends.
    pub(crate) async fn serve(self: Arc<Self>, stream: Stream, mut closing: Closing) {
        let config = self.config;
        let service = service_fn(move |request| {
            let grpc = self.clone();
            async move { Ok::<_, Infallible>(grpc.call(request).await) }
        });
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(config.max_streams)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(
                config.max_streams.saturating_mul(WINDOW_OF_A_STREAM).clamp(STREAM_WINDOW, MOST_WINDOW),
            )
            .max_header_list_size(MOST_HEADERS)
            .keep_alive_interval(config.keepalive)
            .keep_alive_timeout(config.keepalive_timeout)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => {
                // A connection that breaks is the client's affair.
                if let Err(error) = ended {
                    tracing::debug!(%error, "a gRPC connection broke");
                }
                return;
            }
            () = closing.begun() => {}
            () = old_age(config.max_age) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(config.age_grace, connection).await;
    }

    async fn call(&self, request: Request<Incoming>) -> Response<Body> {
        if request.uri().path() != SHOULD_RATE_LIMIT {
            // Kept out of the hot method's future, which is moved and so had better be small.
            return Box::pin(self.others.call(request)).await;
        }
        match self.should_rate_limit(request).await {
            Ok(message) => Body::message(message),
            Err(status) => {
                self.envoy.gate().metrics().refused_request();
                status.response()
            }
        }
    }

    async fn should_rate_limit(&self, request: Request<Incoming>) -> Result<Bytes, Status> {
        let (head, body) = request.into_parts();
        if self.keys.as_ref().is_some_and(|keys| !keys.may_check(&head.headers)) {
            return Err(Status::no_token());
        }
        let message = self.read(&head.headers, body).await?;
        let request = RateLimitRequest::decode(message)
            .map_err(|error| Status::invalid(format!("not a RateLimitRequest: {error}")))?;
        if self.envoy.gate().waits() {
            return Box::pin(self.decide(request, head.headers)).await;
        }
        match now(self.envoy.should_rate_limit(&request, &head.headers, None)) {
            Some(decided) => framed(decided),
            None => Err(Status::internal("the store did not answer at once".to_owned())),
        }
    }

    /// The same on a store that makes wait. It is boxed and has all that it needs, so that the future of a call, which is moved,
    /// is as small as if no store did.
    async fn decide(&self, request: RateLimitRequest, headers: HeaderMap) -> Result<Bytes, Status> {
        framed(self.envoy.should_rate_limit(&request, &headers, patience::of_grpc(&headers)).await)
    }

    /// The one message of a call.
    async fn read(&self, headers: &HeaderMap, mut body: Incoming) -> Result<Bytes, Status> {
        let is_grpc = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/grpc");
        if !headers.get(header::CONTENT_TYPE).is_some_and(is_grpc) {
            return Err(Status::invalid("the content type must be application/grpc".to_owned()));
        }
        let time = self.config.body_timeout;
        within(time, self.read_message(&mut body)).await.unwrap_or_else(|| Err(Status::too_slow(time)))
    }

    async fn read_message(&self, body: &mut Incoming) -> Result<Bytes, Status> {
        let most = self.config.max_message;
        let mut share = self.arriving.take(CALL).ok_or_else(Status::too_busy)?;
        let mut first = Bytes::new();
        let mut more = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| Status::cut_off())?.into_data() else { continue };
            let length = data.len();
            if first.is_empty() {
                first = data;
            } else if !data.is_empty() {
                if more.is_empty() {
                    more.extend_from_slice(&first);
                }
                more.extend_from_slice(&data);
            }
            if first.len().max(more.len()) > PREFIX + most {
                return Err(Status::too_large(most));
            }
            // To answer before the client has ended would reset the stream, which counts against the connection.
            if body.is_end_stream() {
                break;
            }
            if !share.grow(length) {
                return Err(Status::too_busy());
            }
        }
        let mut message = if more.is_empty() { first } else { more.freeze() };
        let Some((compressed, length)) = body::prefix(&message) else { return Err(Status::cut_off()) };
        if compressed {
            return Err(Status::compressed());
        }
        if length > most {
            return Err(Status::too_large(most));
        }
        message.advance(PREFIX);
        match message.len() == length {
            true => Ok(message),
            false => Err(Status::cut_off()),
        }
    }
}

/// The answer as a message of the protocol.
fn framed(decided: Result<RateLimitResponse, Refusal>) -> Result<Bytes, Status> {
    let response = decided.map_err(|Refusal(reason)| Status::invalid(reason))?;
    let length = response.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    body::put_prefix(&mut bytes, length);
    response.encode(&mut bytes).map_err(|error| Status::internal(error.to_string()))?;
    Ok(bytes.freeze())
}

/// Ends when a connection is old; ages differ by a tenth, so that those of one moment do not end in one moment.
async fn old_age(age: Option<Duration>) {
    match age {
        Some(age) => tokio::time::sleep(age.mul_f64(fastrand::f64().mul_add(0.2, 0.9))).await,
        None => std::future::pending().await,
    }
}

impl crate::net::workers::Wire for Grpc {
    fn serve(self: Arc<Self>, stream: Stream, closing: Closing) -> crate::net::workers::Serving {
        Box::pin(Grpc::serve(self, stream, closing))
    }
}
