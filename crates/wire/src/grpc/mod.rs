//! gRPC on HTTP/2.
//!
//! `ShouldRateLimit` is served on h2 directly: one message in, one out, in the task of the connection. Health and
//! reflection, which are called rarely, are served by tonic.

mod alarm;
mod arriving;
mod auxiliary;
mod connection;
mod gathering;
mod keepalive;
mod message;
mod respond;
mod status;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::PingPong;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, header};
use tokio::time::{Sleep, sleep};
use tollgate::poll_once;
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitRequest;

use crate::access::AccessControl;
use crate::envoy::{Envoy, EnvoyResponse, InvalidRequest};
use crate::gate::timeout::from_grpc as grpc_timeout;
use alarm::Alarm;
use connection::Calls;
use gathering::Gathering;
use keepalive::{Heard, silence};
use message::encode;
use status::GrpcStatus;
use tollgate_net::budget::Budget;
use tollgate_net::{Closing, Slot, Stream};

pub use auxiliary::{AuxiliaryServices, follow_health};

/// The path of the hot method.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
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
/// The memory of an arriving call without its message: its headers and its stream.
const CALL_BYTES: usize = 4 * 1024;
/// The memory of all arriving calls. Further ones are answered by the policies of the rules.
const MAX_ARRIVING_BYTES: usize = 64 * 1024 * 1024;
/// How long the last frame to a client that does not answer may take.
const FAREWELL: Duration = Duration::from_secs(1);

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

/// Why a connection is ended.
enum Ending {
    /// The server stops, or the connection is old: calls may finish.
    Leave,
    /// The client did not answer a ping.
    Silence,
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
        let leave = async {
            tokio::select! {
                () = closing.begun() => {}
                () = max_age_reached(config.max_age) => {}
            }
        };
        let mut leave = pin!(leave);
        let heard = Heard::default();
        // Boxed, so that an idle connection has no memory for its beginning.
        let opened = Box::pin(self.open(stream, leave.as_mut(), &slot, &heard)).await;
        let Some((mut calls, pings, leaving)) = opened else { return };
        let grace = match leaving {
            Some(grace) => {
                calls.finish();
                grace
            }
            None => {
                let ends = pin!(async {
                    tokio::select! {
                        () = leave => Ending::Leave,
                        () = silence(pings, &heard, config.keepalive, config.keepalive_timeout) => Ending::Silence,
                    }
                });
                let mut ends = Alarm::new(ends);
                let ending = poll_fn(|context| match ends.poll(context) {
                    Poll::Ready(ending) => Poll::Ready(Some(ending)),
                    Poll::Pending => calls.poll(context).map(|()| None),
                });
                match ending.await {
                    None => return,
                    Some(Ending::Leave) => {
                        calls.finish();
                        Box::pin(sleep(config.age_grace))
                    }
                    Some(Ending::Silence) => {
                        calls.give_up();
                        Box::pin(sleep(FAREWELL))
                    }
                }
            }
        };
        tokio::select! {
            () = poll_fn(|context| calls.poll(context)) => {}
            () = grace => {}
        }
    }

    /// Begins a connection: its calls and its pings; and the rest of its time if it has to leave already.
    async fn open<'g>(
        self: &'g Arc<Self>,
        stream: Stream,
        leave: Pin<&mut impl Future<Output = ()>>,
        slot: &'g Slot,
        heard: &'g Heard,
    ) -> Option<(Box<Calls<'g>>, PingPong, Option<Pin<Box<Sleep>>>)> {
        let mut handshake = pin!(self.http2().handshake(Gathering(stream)));
        let (connected, leaving) = tokio::select! {
            connected = handshake.as_mut() => (connected, None),
            () = leave => {
                let mut grace = Box::pin(sleep(self.config.age_grace));
                let connected = tokio::select! {
                    connected = handshake => connected,
                    () = grace.as_mut() => return None,
                };
                (connected, Some(grace))
            }
        };
        let mut connection = connected.inspect_err(|error| tracing::debug!(%error, "gRPC connection failed")).ok()?;
        let pings = connection.ping_pong()?;
        Some((Box::new(Calls::new(self, slot, heard, connection)), pings, leaving))
    }

    /// The settings of connections. The others are those of h2, which bound streams that are reset and frames without
    /// content.
    fn http2(&self) -> h2::server::Builder {
        let streams = self.config.max_streams;
        let mut builder = h2::server::Builder::new();
        builder
            .max_concurrent_streams(streams)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(streams.saturating_mul(WINDOW_PER_STREAM).clamp(STREAM_WINDOW, MAX_WINDOW))
            .max_header_list_size(MAX_HEADER_BYTES);
        builder
    }

    /// What a call may not have: no token, another content type.
    fn refuse(&self, headers: &HeaderMap) -> Option<GrpcStatus> {
        if self.access.as_ref().is_some_and(|access| !access.may_check(headers)) {
            return Some(GrpcStatus::no_token());
        }
        let is_grpc = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/grpc");
        match headers.get(header::CONTENT_TYPE).is_some_and(is_grpc) {
            true => None,
            false => Some(GrpcStatus::invalid("the content type must be application/grpc".to_owned())),
        }
    }

    /// Decides the call of a message; `None` on a store that waits.
    fn decide(&self, request: &RateLimitRequest, headers: &HeaderMap) -> Option<Result<Bytes, GrpcStatus>> {
        if self.envoy.gate().waits() {
            return None;
        }
        Some(match poll_once(self.envoy.should_rate_limit(request, headers, None)) {
            Some(decided) => encode_response(decided),
            None => Err(GrpcStatus::internal("the store did not answer at once".to_owned())),
        })
    }

    /// The same on a store that waits.
    async fn decide_later(&self, request: RateLimitRequest, headers: HeaderMap) -> Result<Bytes, GrpcStatus> {
        encode_response(self.envoy.should_rate_limit(&request, &headers, grpc_timeout(&headers)).await)
    }

    /// Sends the response of a call. Errors are counted.
    fn answer(&self, respond: &mut SendResponse<Bytes>, answer: Result<Bytes, GrpcStatus>) {
        if answer.is_err() {
            self.envoy.gate().metrics().refused_request();
        }
        respond::send(respond, answer);
    }
}

/// Encodes the response with its prefix.
fn encode_response(decided: Result<EnvoyResponse, InvalidRequest>) -> Result<Bytes, GrpcStatus> {
    encode(&decided.map_err(|InvalidRequest(reason)| GrpcStatus::invalid(reason))?)
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
