//! Envoy's protocol, with a tonic client.

use tollgate_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tollgate_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tollgate_testing::Server;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::new_server;

pub(crate) const RULES: &str = "
domain: d
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 3}}
";

pub(crate) type Client = RateLimitServiceClient<Channel>;

pub(crate) async fn client(server: &Server) -> Client {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address("grpc"))).unwrap();
    RateLimitServiceClient::new(endpoint.connect().await.unwrap())
}

pub(crate) fn request(user: &str) -> RateLimitRequest {
    RateLimitRequest {
        domain: "d".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![Entry { key: "user".to_owned(), value: user.to_owned().into() }],
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    }
}

/// Whether a user's request is allowed, and the remaining units.
pub(crate) async fn check(client: &mut Client, user: &str) -> (bool, u32) {
    outcome(&client.should_rate_limit(request(user)).await.unwrap().into_inner())
}

fn outcome(response: &RateLimitResponse) -> (bool, u32) {
    (response.overall_code == i32::from(Code::Ok), response.statuses[0].limit_remaining)
}

#[tokio::test]
async fn requests_are_counted() {
    let server = new_server().rules(RULES).listen(&["grpc"]).start();
    let mut client = client(&server).await;
    for expected in [(true, 2), (true, 1), (true, 0), (false, 0)] {
        assert_eq!(check(&mut client, "u").await, expected);
    }
    assert_eq!(check(&mut client, "v").await, (true, 2));
}

#[tokio::test]
async fn concurrent_calls_share_one_connection() {
    let rules = RULES.replace("requests_per_unit: 3", "requests_per_unit: 1000");
    let server = new_server().rules(&rules).listen(&["grpc"]).start();
    let client = client(&server).await;
    let calls: Vec<_> = (0..1500)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move { check(&mut client, "u").await.0 })
        })
        .collect();
    let mut passed = 0;
    for call in calls {
        passed += usize::from(call.await.unwrap());
    }
    assert_eq!(passed, 1000);
}

#[tokio::test]
async fn invalid_requests_are_refused_with_a_reason() {
    let server = new_server().rules(RULES).listen(&["grpc"]).args(&["--grpc-max-message", "4KiB"]).start();
    let mut client = client(&server).await;
    let empty = client.should_rate_limit(RateLimitRequest::default()).await.unwrap_err();
    assert_eq!(empty.code(), tonic::Code::InvalidArgument);
    assert_eq!(empty.message(), "rate limit domain must not be empty");
    // A message that is too large is no error, but answered by policy: no rule refuses what it can't count.
    let large = client.should_rate_limit(request(&"x".repeat(5000))).await.unwrap().into_inner();
    assert_eq!((large.overall_code(), large.statuses.len()), (Code::Ok, 0));
    // The connection stays usable.
    assert_eq!(check(&mut client, "u").await, (true, 2));
}

/// A typing error in a gateway's configuration.
#[tokio::test]
async fn a_domain_without_rules_does_not_go_unnoticed() {
    let server = new_server().rules(RULES).listen(&["admin", "grpc"]).start();
    let unknown = RateLimitRequest { domain: "dd".to_owned(), ..request("u") };
    let passed = client(&server).await.should_rate_limit(unknown).await.unwrap().into_inner();
    assert_eq!(passed.overall_code(), Code::Ok);
    let pages = |page: &str| crate::http::get(&server.url("admin", page)).body;
    tollgate_testing::until("the server is degraded", || pages("/readyz").contains("checks name domain `dd`"));
    let metrics = pages("/metrics");
    assert!(metrics.contains("tollgate_unknown_domain_checks_total{wire=\"grpc\"} 1"), "{metrics}");
    server.wait_for_log("checks name a domain that has no rules");
}

#[tokio::test]
async fn health_and_reflection_are_served() {
    let server = new_server().rules(RULES).listen(&["grpc"]).start();
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address("grpc"))).unwrap();
    let channel = endpoint.connect().await.unwrap();
    for service in ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let health = HealthClient::new(channel.clone()).check(request).await.unwrap().into_inner();
        assert_eq!(health.status(), ServingStatus::Serving, "{service}");
    }
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(
            "envoy.service.ratelimit.v3.RateLimitService".to_owned(),
        )),
    };
    let mut responses = ServerReflectionClient::new(channel)
        .server_reflection_info(tokio_stream::once(request))
        .await
        .unwrap()
        .into_inner();
    let response = responses.message().await.unwrap().unwrap().message_response;
    assert!(matches!(response, Some(MessageResponse::FileDescriptorResponse(_))), "{response:?}");
}

#[tokio::test]
async fn a_unix_socket_is_served() {
    let builder = new_server().rules(RULES);
    let path = builder.home().join("grpc.sock");
    let server = builder.args(&["--grpc", &format!("unix:{}", path.display())]).start();
    let channel = Endpoint::from_shared(format!("unix:{}", path.display())).unwrap().connect().await.unwrap();
    assert_eq!(check(&mut RateLimitServiceClient::new(channel), "u").await, (true, 2));
    drop(server);
}

#[tokio::test]
async fn an_old_connection_is_closed_and_the_client_reconnects() {
    let args = ["--grpc-max-connection-age", "1s"];
    let server = new_server().rules(RULES).listen(&["grpc", "admin"]).args(&args).start();
    let mut client = client(&server).await;
    let accepted = || {
        let metrics = crate::http::get(&server.url("admin", "/metrics")).body;
        let line =
            metrics.lines().find(|line| line.starts_with("tollgate_connections_accepted_total{listener=\"grpc\"}"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap()
    };
    assert_eq!(accepted(), 1.0);
    for _ in 0..1_000 {
        // The client cancels a call that it had not sent when the connection ended. The server never received it.
        if let Err(status) = client.should_rate_limit(request("u")).await {
            assert_eq!(status.code(), tonic::Code::Cancelled, "{status}");
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        if accepted() > 1.0 {
            return;
        }
    }
    panic!("the connection was never closed:\n{}", server.log());
}
