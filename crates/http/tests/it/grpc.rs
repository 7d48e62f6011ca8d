//! On tonic: refusals that gRPC clients understand.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tollgate::{Limiter, MemoryConfig, Source, Store};
use tollgate_core::{Claim, Settlement};
use tollgate_http::response::{Jitter, ResponseStyle};
use tollgate_http::tower::TollgateLayer;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::world::{bare, layer, of, ruleset};

const RULES: &str = "
domain: calls
entity: key
rules:
  - {name: per-key, key: [key], limit: 2/minute, algorithm: sliding_log}
  - {name: login, key: [login], limit: 2/minute, policy: security}
";

/// A health service behind a layer, until the handle is aborted.
async fn serve<St: Store + 'static>(layer: TollgateLayer<St>) -> (HealthClient<Channel>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(health);
    let serving = tokio::spawn(async move { server.serve_with_incoming(TcpIncoming::from(listener)).await.unwrap() });
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    (HealthClient::new(channel), serving)
}

async fn call(client: &mut HealthClient<Channel>, name: &'static str) -> Result<String, Status> {
    let mut request = tonic::Request::new(HealthCheckRequest::default());
    request.metadata_mut().insert(name, "k".parse().unwrap());
    let answer = client.check(request).await?;
    Ok(answer.metadata().get("x-ratelimit-remaining").unwrap().to_str().unwrap().to_owned())
}

#[tokio::test]
async fn calls_pass_with_headers_and_are_refused_by_their_status() {
    let limiter = Arc::new(Limiter::new(ruleset(RULES), MemoryConfig::default().build()));
    let layer = layer(limiter).response_style(ResponseStyle { jitter: Jitter::Off, ..ResponseStyle::default() });
    let (mut client, serving) = serve(layer.clone()).await;
    assert_eq!(call(&mut client, "key").await.unwrap(), "1");
    assert_eq!(call(&mut client, "key").await.unwrap(), "0");
    let refused = call(&mut client, "key").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let metadata = |name| refused.metadata().get(name).map(|value| value.to_str().unwrap().to_owned());
    let seconds: u64 = metadata("retry-after").unwrap().parse().unwrap();
    assert_eq!(refused.message(), format!("rate limit exceeded; retry after {seconds} s"));
    assert_eq!(metadata("grpc-retry-pushback-ms"), Some(format!("{}000", seconds)));
    assert_eq!(metadata("x-ratelimit-denied-by").as_deref(), Some("per-key"));
    assert_eq!(layer.stats().refused, 1);
    serving.abort();
}

/// A store that is unavailable.
struct Away;

impl Store for Away {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        self.assume(claim, Source::Assumed, settlement);
    }
}

#[tokio::test]
async fn what_nobody_can_count_is_unavailable() {
    let (mut client, serving) = serve(layer(Arc::new(Limiter::new(ruleset(RULES), Away)))).await;
    let refused = call(&mut client, "login").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().starts_with("the limiter can't count calls at the moment; retry after "), "{refused}");
    let plain = client.check(HealthCheckRequest::default()).await;
    assert!(plain.is_ok(), "no rule applies: {plain:?}");
    serving.abort();
}

#[tokio::test]
async fn only_calls_of_grpc_are_answered_so() {
    let limiter = Arc::new(Limiter::new(ruleset(RULES), MemoryConfig::default().build()));
    let layer = layer(limiter).idempotency_key();
    let types = [
        ("application/grpc", 200, Some("8")),
        ("application/grpc+proto", 200, Some("8")),
        ("application/grpc;charset=utf-8", 200, Some("8")),
        ("application/grpc-web", 429, None),
        ("application/json", 429, None),
    ];
    for _ in 0..2 {
        crate::world::ask(&layer, bare(of("k"))).await;
    }
    for (content_type, status, code) in types {
        let answer = crate::world::ask(&layer, bare(of("k").header("content-type", content_type))).await;
        assert_eq!((answer.status, answer.header("grpc-status")), (status, code), "{content_type}");
        assert_eq!(answer.body.is_empty(), code.is_some());
        if code.is_some() {
            assert_eq!(answer.header("content-type"), Some("application/grpc"));
        }
    }
    let named = |more: &str| {
        let named = of("other").header("content-type", "application/grpc").header("idempotency-key", "n");
        bare(named.header("more", more))
    };
    crate::world::ask(&layer, named("1")).await;
    let conflict = crate::world::ask(&layer, named("2")).await;
    assert_eq!((conflict.status, conflict.header("grpc-status")), (200, Some("3")));
    assert_eq!(conflict.header("grpc-retry-pushback-ms"), Some("-1"));
}
