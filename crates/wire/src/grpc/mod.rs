//! gRPC on HTTP/2.
//!
//! `ShouldRateLimit` is served on hyper directly: one message in, one out. Health and reflection, which are called
//! rarely, are served by tonic.

mod auxiliary;
mod body;
mod status;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};
use tollgate::poll_once;
use tollgate_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

use crate::access::AccessControl;
use crate::envoy::{Envoy, InvalidRequest};
use crate::gate::timeout;
use body::GrpcBody;
use status::GrpcStatus;
use tollgate_net::budget::Budget;
use tollgate_net::{Closing, Slot, Stream, timeout};

pub use auxiliary::{AuxiliaryServices, follow_health};

/// The path of the hot method.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// The prefix of a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
/// The flow-control window of a stream.
const STREAM_WINDOW: u32 = 64 * 1024;
/// The window of a connection, per stream: h2 takes half of it as its bound on unread small frames, 256 bytes for each,
/// and closes a connection that exceeds it. All streams of a connection may have two such frames.
const WINDOW_PER_STREAM: u32 = 1024;
/// The largest window of the protocol.
const MAX_WINDOW: u32 = (1 << 31) - 1;
/// The maximum size of a call's headers. A gateway may forward headers of its clients, such as `tracestate`, up to the
/// size of the heads that it accepts itself.
const MAX_HEADER_BYTES: u32 = 64 * 1024;
/// How much of a message that is too large is read, so that the response does not reset the stream.
const MAX_DISCARDED_BYTES: usize = 16 * 1024 * 1024;
/// The number of the field `domain`.
const DOMAIN_FIELD: u32 = 1;
/// The memory of an arriving call without its message: its headers and its stream.
const CALL_BYTES: usize = 4 * 1024;
/// The memory of all arriving calls. Further ones are answered by the policies of the rules.
const MAX_ARRIVING_BYTES: usize = 64 * 1024 * 1024;

/// The gRPC wire.
#[derive(Debug)]
pub struct Grpc {
    envoy: Arc<Envoy>,
    auxiliary: AuxiliaryServices,
    config: GrpcConfig,
    /// Decides who may check; `None`: every client of the listener.
    access: Option<Arc<dyn AccessControl>>,
    /// The memory of arriving calls, over all connections.
    arriving: Budget,
}

/// The settings of connections.
#[derive(Clone, Copy, Debug)]
pub struct GrpcConfig {
    /// The largest message, in bytes.
    pub max_message: usize,
    /// The largest number of concurrent calls on one connection.
    pub max_streams: u32,
    /// The age at which a connection is shut down gracefully, so that clients spread over the servers again.
    pub max_age: Option<Duration>,
    /// How long calls of such a connection may take to finish.
    pub age_grace: Duration,
    /// The interval of pings to an idle client.
    pub keepalive: Duration,
    /// The timeout of a ping.
    pub keepalive_timeout: Duration,
    /// The timeout of a message's arrival.
    pub body_timeout: Duration,
}

impl Grpc {
    pub fn new(envoy: Arc<Envoy>, auxiliary: AuxiliaryServices, config: GrpcConfig) -> Grpc {
        Grpc { envoy, auxiliary, config, access: None, arriving: Budget::new(MAX_ARRIVING_BYTES) }
    }

    /// Requires tokens, if there is an access control.
    pub fn with_access_control(self, access: Option<Arc<dyn AccessControl>>) -> Grpc {
        Grpc { access, ..self }
    }

    /// Serves one connection until it ends.
    pub async fn serve(self: Arc<Self>, stream: Stream, mut closing: Closing, slot: Arc<Slot>) {
        let config = self.config;
        let service = service_fn(move |request| {
            slot.begin_first();
            let grpc = self.clone();
            async move { Ok::<_, Infallible>(grpc.call(request).await) }
        });
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(config.max_streams)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(
                config.max_streams.saturating_mul(WINDOW_PER_STREAM).clamp(STREAM_WINDOW, MAX_WINDOW),
            )
            .max_header_list_size(MAX_HEADER_BYTES)
            .keep_alive_interval(config.keepalive)
            .keep_alive_timeout(config.keepalive_timeout)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => {
                // A connection that fails is the client's problem.
                if let Err(error) = ended {
                    tracing::debug!(%error, "gRPC connection failed");
                }
                return;
            }
            () = closing.begun() => {}
            () = max_age_reached(config.max_age) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(config.age_grace, connection).await;
    }

    async fn call(&self, request: Request<Incoming>) -> Response<GrpcBody> {
        if request.uri().path() != SHOULD_RATE_LIMIT {
            // Boxed, so that the hot method's future, which is moved, stays small.
            return Box::pin(self.auxiliary.call(request)).await;
        }
        match self.should_rate_limit(request).await {
            Ok(message) => GrpcBody::message(message),
            Err(status) => {
                self.envoy.gate().metrics().refused_request();
                status.response()
            }
        }
    }

    async fn should_rate_limit(&self, request: Request<Incoming>) -> Result<Bytes, GrpcStatus> {
        let (head, body) = request.into_parts();
        if self.access.as_ref().is_some_and(|access| !access.may_check(&head.headers)) {
            return Err(GrpcStatus::no_token());
        }
        let message = match self.read(&head.headers, body).await? {
            Arrival::Message(message) => message,
            Arrival::Undecided(domain) => return encode(&self.envoy.undecided(domain.as_deref(), 0)),
        };
        let request: RateLimitRequest = tollgate_proto::decode(&message)
            .map_err(|error| GrpcStatus::invalid(format!("not a RateLimitRequest: {error}")))?;
        if self.envoy.gate().waits() {
            return Box::pin(self.decide(request, head.headers)).await;
        }
        match poll_once(self.envoy.should_rate_limit(&request, &head.headers, None)) {
            Some(decided) => encode_response(decided),
            None => Err(GrpcStatus::internal("the store did not answer at once".to_owned())),
        }
    }

    /// Decides on a store that waits. It is boxed and owns its arguments, so that the future of a call, which is moved,
    /// stays small.
    async fn decide(&self, request: RateLimitRequest, headers: HeaderMap) -> Result<Bytes, GrpcStatus> {
        encode_response(self.envoy.should_rate_limit(&request, &headers, timeout::from_grpc(&headers)).await)
    }

    /// Reads the one message of a call.
    async fn read(&self, headers: &HeaderMap, mut body: Incoming) -> Result<Arrival, GrpcStatus> {
        let is_grpc = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/grpc");
        if !headers.get(header::CONTENT_TYPE).is_some_and(is_grpc) {
            return Err(GrpcStatus::invalid("the content type must be application/grpc".to_owned()));
        }
        let limit = self.config.body_timeout;
        timeout(limit, self.read_message(&mut body)).await.unwrap_or_else(|| Err(GrpcStatus::too_slow(limit)))
    }

    async fn read_message(&self, body: &mut Incoming) -> Result<Arrival, GrpcStatus> {
        let max = self.config.max_message;
        let Some(mut share) = self.arriving.reserve(CALL_BYTES) else { return Ok(Arrival::Undecided(None)) };
        let mut first = Bytes::new();
        let mut more = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| GrpcStatus::cut_off())?.into_data() else { continue };
            let length = data.len();
            if first.is_empty() {
                first = data;
            } else if !data.is_empty() {
                if more.is_empty() {
                    more.extend_from_slice(&first);
                }
                more.extend_from_slice(&data);
            }
            // A response before the end of the request would reset the stream, which counts against the connection.
            let is_end = body.is_end_stream();
            let received = first.len().max(more.len());
            if received > PREFIX_BYTES + max {
                let domain = domain(if more.is_empty() { &first } else { &more });
                drop((first, more, share));
                discard(body, received).await?;
                return Ok(Arrival::Undecided(domain));
            }
            if is_end {
                break;
            }
            if !share.grow(length) {
                return Ok(Arrival::Undecided(domain(if more.is_empty() { &first } else { &more })));
            }
        }
        let mut message = if more.is_empty() { first } else { more.freeze() };
        let Some((compressed, length)) = body::prefix(&message) else { return Err(GrpcStatus::cut_off()) };
        if compressed {
            return Err(GrpcStatus::compressed());
        }
        message.advance(PREFIX_BYTES);
        match message.len() == length {
            true => Ok(Arrival::Message(message)),
            false => Err(GrpcStatus::cut_off()),
        }
    }
}

/// What a call brings.
enum Arrival {
    /// Its message.
    Message(Bytes),
    /// A message that is too large, or for which there is no memory. The domain is at its beginning.
    Undecided(Option<String>),
}

/// Reads the rest of a body, unless it is very long.
#[cold]
async fn discard(body: &mut Incoming, mut received: usize) -> Result<(), GrpcStatus> {
    while received <= MAX_DISCARDED_BYTES && !body.is_end_stream() {
        let Some(frame) = body.frame().await else { break };
        received += frame.map_err(|_| GrpcStatus::cut_off())?.data_ref().map_or(0, Bytes::len);
    }
    Ok(())
}

/// The domain of a message of which only the beginning is known: the first field, as gateways write it.
fn domain(beginning: &[u8]) -> Option<String> {
    let mut message = beginning.get(PREFIX_BYTES..)?;
    let (DOMAIN_FIELD, WireType::LengthDelimited) = decode_key(&mut message).ok()? else { return None };
    let length = usize::try_from(decode_varint(&mut message).ok()?).ok()?;
    str::from_utf8(message.get(..length)?).ok().map(str::to_owned)
}

/// Encodes the response with its prefix.
fn encode_response(decided: Result<RateLimitResponse, InvalidRequest>) -> Result<Bytes, GrpcStatus> {
    encode(&decided.map_err(|InvalidRequest(reason)| GrpcStatus::invalid(reason))?)
}

fn encode(response: &RateLimitResponse) -> Result<Bytes, GrpcStatus> {
    let length = response.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + length);
    body::put_prefix(&mut bytes, length);
    response.encode(&mut bytes).map_err(|error| GrpcStatus::internal(error.to_string()))?;
    Ok(bytes.freeze())
}

/// Ends when a connection reaches its age. Ages vary by a tenth, so that connections of one moment do not close at
/// once.
async fn max_age_reached(age: Option<Duration>) {
    match age {
        Some(age) => tokio::time::sleep(age.mul_f64(fastrand::f64().mul_add(0.2, 0.9))).await,
        None => std::future::pending().await,
    }
}

impl tollgate_net::workers::Wire for Grpc {
    fn serve(
        self: Arc<Self>,
        stream: Stream,
        closing: Closing,
        slot: Arc<Slot>,
    ) -> tollgate_net::workers::ConnectionFuture {
        Box::pin(Grpc::serve(self, stream, closing, slot))
    }
}
