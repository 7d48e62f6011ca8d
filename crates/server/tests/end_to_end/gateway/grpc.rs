//! gRPC over HTTP/2 from end to end: the upstream is a server of this build, with its health and reflection services.

use std::time::Duration;

use tokio_stream::StreamExt as _;
use tollgate_testing::Server;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

use super::{everything_to, with_gateway};
use crate::new_server;

fn servers() -> (Server, Server) {
    let upstream = new_server().listen(&["grpc"]).start();
    let file = everything_to(&[upstream.address("grpc")]).replace("servers:", "protocol: http2, servers:");
    let gateway = with_gateway(&file).start();
    (upstream, gateway)
}

async fn channel(gateway: &Server) -> Channel {
    Endpoint::from_shared(gateway.url("gateway", "")).unwrap().connect().await.unwrap()
}

fn check(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

#[tokio::test]
async fn calls_streams_and_trailers_pass() {
    let (_upstream, gateway) = servers();
    let channel = channel(&gateway).await;
    let mut health = HealthClient::new(channel.clone());
    let answer = health.check(check("")).await.unwrap().into_inner();
    assert_eq!(answer.status, i32::from(ServingStatus::Serving));

    // The status of a call is in its trailers.
    let unknown = health.check(check("no such service")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound, "{unknown:?}");

    // The first message arrives while the stream is open.
    let mut watched = health.watch(check("")).await.unwrap().into_inner();
    assert_eq!(watched.next().await.unwrap().unwrap().status, i32::from(ServingStatus::Serving));
    drop(watched);

    // Both directions: the second request is sent when the first is answered.
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let mut reflection = ServerReflectionClient::new(channel);
    let list = || {
        let message_request = Some(MessageRequest::ListServices(String::new()));
        ServerReflectionRequest { host: String::new(), message_request }
    };
    sender.send(list()).await.unwrap();
    let requests = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut answers = reflection.server_reflection_info(requests).await.unwrap().into_inner();
    assert!(answers.next().await.unwrap().is_ok());
    sender.send(list()).await.unwrap();
    assert!(answers.next().await.unwrap().is_ok());
    drop(sender);
    assert!(answers.next().await.is_none(), "the stream ends with OK");
}

#[tokio::test]
async fn a_refused_call_has_a_status() {
    let (_upstream, gateway) = servers();
    let mut health = HealthClient::new(channel(&gateway).await);
    let mut codes = Vec::new();
    for _ in 0..3 {
        let mut request = Request::new(check(""));
        request.metadata_mut().insert("x-api-key", "ada".parse().unwrap());
        codes.push(health.check(request).await.map_or_else(|status| status.code(), |_| Code::Ok));
    }
    assert_eq!(codes[..2], [Code::Ok, Code::Ok]);
    assert!(matches!(codes[2], Code::ResourceExhausted | Code::Unavailable), "{codes:?}");
}

#[tokio::test]
async fn a_deadline_ends_a_call() {
    let (upstream, gateway) = servers();
    let mut health = HealthClient::new(channel(&gateway).await);
    health.check(check("")).await.unwrap();
    upstream.signal("STOP");
    let mut request = Request::new(check(""));
    request.set_timeout(Duration::from_millis(200));
    let late = health.check(request).await.unwrap_err();
    assert!(matches!(late.code(), Code::DeadlineExceeded | Code::Cancelled), "{late:?}");
    upstream.signal("CONT");
    assert!(health.check(check("")).await.is_ok());
}
