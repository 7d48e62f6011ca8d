//! Calls on a store that makes wait.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use http_body_util::Full;
use hyper::client::conn::http2::{SendRequest, handshake};
use tokio::net::UnixStream;
use tollgate::{LoadOptions, Ruleset, Span};
use tollgate_rules::{Source, load_sources};

use super::*;
use crate::counters::held::Held;
use crate::gate::Gate;
use crate::net::closing::Closer;
use crate::observe::metrics::Metrics;
use crate::wire::envoy::Extras;

const RULES: &str = "
domain: d
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 2}}
";

const CONFIG: GrpcConfig = GrpcConfig {
    max_message: 1024,
    max_streams: 16,
    max_age: None,
    age_grace: Duration::from_secs(1),
    keepalive: Duration::from_secs(60),
    keepalive_timeout: Duration::from_secs(60),
    body_timeout: Duration::from_secs(60),
};

type Client = SendRequest<Full<Bytes>>;

/// A client of a server on this store; the server ends with the closer.
async fn client(held: &Arc<Held>) -> (Client, Closer) {
    let file = Source { name: "rules.yaml".to_owned(), text: RULES.to_owned() };
    let rules = Ruleset::compile(load_sources(&[file], &LoadOptions::default()).unwrap().domains, 1).unwrap();
    let gate = Gate::new(held.limiter(rules), false, 16, Metrics::new().wire("grpc"));
    let (others, _) = Others::new().unwrap();
    let grpc = Grpc::new(Arc::new(Envoy::new(Arc::new(gate), Extras::default())), others, CONFIG);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (closer, closing) = Closer::new();
    tokio::spawn(Arc::new(grpc).serve(Stream::Unix(theirs), closing));
    let (client, connection) = handshake(TokioExecutor::new(), TokioIo::new(ours)).await.unwrap();
    tokio::spawn(connection);
    (client, closer)
}

/// Calls for a user who waits so long.
async fn call(mut client: Client, timeout: &'static str) -> Code {
    let entry = Entry { key: "user".to_owned(), value: "u".to_owned() };
    let descriptors = vec![RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() }];
    let request = RateLimitRequest { domain: "d".to_owned(), descriptors, hits_addend: 0 };
    let mut bytes = BytesMut::new();
    body::put_prefix(&mut bytes, request.encoded_len());
    request.encode(&mut bytes).unwrap();
    let request = Request::post(format!("http://t{SHOULD_RATE_LIMIT}"))
        .header("content-type", "application/grpc")
        .header("grpc-timeout", timeout)
        .body(Full::new(bytes.freeze()))
        .unwrap();
    let answer = client.send_request(request).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(answer.trailers().unwrap()["grpc-status"], "0");
    RateLimitResponse::decode(answer.to_bytes().split_off(PREFIX)).unwrap().overall_code()
}

#[tokio::test]
async fn calls_are_answered_when_the_store_is_and_say_how_long_they_wait() {
    let held = Held::new();
    let (client, _closer) = client(&held).await;
    let mut calls = Vec::new();
    for (count, timeout) in ["20m", "soon", "1500u"].into_iter().enumerate() {
        calls.push(tokio::spawn(call(client.clone(), timeout)));
        held.asked(count + 1).await;
    }
    let patience = [Some(Span::from_micros(20_000)), None, Some(Span::from_micros(1_500))];
    assert_eq!(held.asked(3).await, patience);
    assert!(calls.iter().all(|call| !call.is_finished()));
    held.open();
    let mut codes = Vec::new();
    for call in calls {
        codes.push(call.await.unwrap());
    }
    codes.sort_by_key(|code| *code as i32);
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit]);
}
