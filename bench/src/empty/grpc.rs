//! `ShouldRateLimit` with the same answer for everybody: by tonic, and on hyper without looking at the message.

use std::convert::Infallible;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use prost_types::Duration;
use tokio::net::TcpListener;
use tollgate_proto::envoy::config::core::v3::HeaderValue as HeaderValueMessage;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use tollgate_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tonic::codegen::tokio_stream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

struct Empty {
    /// Whether responses have the headers for clients.
    has_headers: bool,
}

#[tonic::async_trait]
impl RateLimitService for Empty {
    async fn should_rate_limit(&self, _: Request<RateLimitRequest>) -> Result<Response<RateLimitResponse>, Status> {
        let mut answer = answer();
        if self.has_headers {
            answer.response_headers_to_add = HEADERS.iter().map(|(key, value)| header(key, value)).collect();
        }
        Ok(Response::new(answer))
    }
}

/// The headers for clients that Tollgate adds to these answers.
const HEADERS: [(&str, &str); 6] = [
    ("ratelimit-policy", "\"per-user\";q=1000000;w=3600;pk=:dXNlci0xMjM0NTY=:"),
    ("ratelimit", "\"per-user\";r=999999;t=3600;pk=:dXNlci0xMjM0NTY=:"),
    ("x-ratelimit-limit", "1000000, 1000000;w=3600;name=\"per-user\""),
    ("x-ratelimit-remaining", "999999"),
    ("x-ratelimit-reset", "3600"),
    ("x-ratelimit-used", "1"),
];

fn header(key: &str, value: &str) -> HeaderValueMessage {
    HeaderValueMessage { key: key.to_owned(), value: value.to_owned(), ..HeaderValueMessage::default() }
}

/// An answer of the shape, and nearly the size, that Tollgate gives to these requests.
fn answer() -> RateLimitResponse {
    let status = DescriptorStatus {
        code: Code::Ok.into(),
        current_limit: Some(RateLimit {
            name: "per-user".to_owned(),
            requests_per_unit: 1_000_000,
            unit: Unit::Hour.into(),
        }),
        limit_remaining: 999_999,
        duration_until_reset: Some(Duration { seconds: 3_600, nanos: 0 }),
        quota: None,
    };
    RateLimitResponse { overall_code: Code::Ok.into(), statuses: vec![status], ..RateLimitResponse::default() }
}

pub async fn tonic(listener: TcpListener, has_headers: bool) {
    let connections = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder().add_service(RateLimitServiceServer::new(Empty { has_headers }));
    server.serve_with_incoming(connections).await.expect("tonic serves");
}

pub async fn hyper(listener: TcpListener) {
    let message = framed(&answer());
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let message = message.clone();
        let service = service_fn(move |request| respond(request, message.clone()));
        let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}

async fn respond(
    request: http::Request<Incoming>,
    message: Bytes,
) -> Result<http::Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let _ = request.into_body().collect().await;
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    // As a stream, which has no length header: gRPC's responses have none.
    let message = StreamBody::new(tokio_stream::once(Ok::<_, Infallible>(Frame::data(message))));
    let mut response = http::Response::new(message.with_trailers(async { Some(Ok(trailers)) }));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

/// A message as it is sent: not compressed, its length, itself.
fn framed(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(message.encoded_len() as u32);
    message.encode(&mut bytes).expect("room");
    bytes.freeze()
}
