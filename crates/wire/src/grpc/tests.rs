//! Calls, some on a store that waits.

mod calls;
mod hostile;
mod lifetime;
mod reflection;

use bytes::BytesMut;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tollgate::{Counters, Limiter, LoadOptions, MemoryConfig, Ruleset, Span};
use tollgate_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitResponse;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tollgate_rules::{RuleFile, load_sources};

use super::message::{PREFIX_BYTES, put_prefix};
use super::*;
use crate::envoy::ResponseExtras;
use crate::gate::Gate;
use tollgate_net::closing::Closer;
use tollgate_store::conformance::gated::GatedStore;
use tollgate_telemetry::metrics::Metrics;

const RULES: &str = "
domain: d
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 2}}
---
domain: strict
rules:
  - {name: login, key: [user], limit: 2/day, policy: security}
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

/// More than the streams of a connection, whatever the policies of their rules.
const MAX_IN_FLIGHT: usize = 64;

type Client = SendRequest<Full<Bytes>>;

/// A connection to a server on this store; the server ends with the closer.
fn connect(store: &Arc<GatedStore>) -> (UnixStream, Closer) {
    let ServedConnection { ours, closer, .. } = serve(grpc(Counters::Shared(store.clone()), CONFIG));
    (ours, closer)
}

fn grpc(counters: Counters, config: GrpcConfig) -> Grpc {
    let file = RuleFile { name: "rules.yaml".to_owned(), text: RULES.to_owned() };
    let rules = Ruleset::compile(load_sources(&[file], &LoadOptions::default()).unwrap().domains, 1).unwrap();
    let gate = Gate::new(Arc::new(Limiter::new(rules, counters)), false, MAX_IN_FLIGHT, Metrics::new().wire("grpc"));
    let (others, _) = AuxiliaryServices::new().unwrap();
    Grpc::new(Arc::new(Envoy::new(Arc::new(gate), ResponseExtras::default())), others, config)
}

/// The same on counters in memory, which never wait.
fn in_memory(config: GrpcConfig) -> Grpc {
    grpc(Counters::from(MemoryConfig::default().build()), config)
}

/// A served connection.
struct ServedConnection {
    grpc: Arc<Grpc>,
    ours: UnixStream,
    closer: Closer,
    server: JoinHandle<()>,
}

fn serve(grpc: Grpc) -> ServedConnection {
    let grpc = Arc::new(grpc);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (closer, closing) = Closer::new();
    let server = tokio::spawn(grpc.clone().serve(Stream::Unix(theirs), closing, Arc::default()));
    ServedConnection { grpc, ours, closer, server }
}

/// The output of something that takes at least and at most so long.
async fn within<F: Future>(least: Duration, most: Duration, future: F) -> F::Output {
    let mut future = pin!(future);
    assert!(tokio::time::timeout(least, future.as_mut()).await.is_err(), "too early");
    tokio::time::timeout(most.saturating_sub(least), future).await.expect("too late")
}

/// A client of such a server.
async fn client(store: &Arc<GatedStore>) -> (Client, Closer) {
    let (ours, closer) = connect(store);
    let (client, connection) = handshake(TokioExecutor::new(), TokioIo::new(ours)).await.unwrap();
    tokio::spawn(connection);
    (client, closer)
}

/// The message of a call for a user, with its prefix.
fn message_for(user: &[u8]) -> Bytes {
    let entry = Entry { key: "user".to_owned(), value: Bytes::copy_from_slice(user) };
    let descriptors = vec![RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() }];
    let request = RateLimitRequest { domain: "d".to_owned(), descriptors, hits_addend: 0 };
    let mut bytes = BytesMut::new();
    put_prefix(&mut bytes, request.encoded_len());
    request.encode(&mut bytes).unwrap();
    bytes.freeze()
}

/// Calls for a user who waits so long.
async fn call(client: Client, timeout: &'static str) -> Code {
    call_for(client, b"u", timeout).await
}

async fn call_for(mut client: Client, user: &'static [u8], timeout: &'static str) -> Code {
    let request = Request::post(format!("http://t{SHOULD_RATE_LIMIT}"))
        .header("content-type", "application/grpc")
        .header("grpc-timeout", timeout)
        .body(Full::new(message_for(user)))
        .unwrap();
    let answer = client.send_request(request).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(answer.trailers().unwrap()["grpc-status"], "0");
    RateLimitResponse::decode(answer.to_bytes().split_off(PREFIX_BYTES)).unwrap().overall_code()
}

#[tokio::test]
async fn calls_are_answered_when_the_store_is_and_say_how_long_they_wait() {
    let store = GatedStore::new();
    let (client, _closer) = client(&store).await;
    let mut calls = Vec::new();
    for (count, timeout) in ["20m", "soon", "1500u"].into_iter().enumerate() {
        calls.push(tokio::spawn(call(client.clone(), timeout)));
        store.timeouts(count + 1).await;
    }
    let patience = [Some(Span::from_micros(20_000)), None, Some(Span::from_micros(1_500))];
    assert_eq!(store.timeouts(3).await, patience);
    assert!(calls.iter().all(|call| !call.is_finished()));
    store.open();
    let mut codes = Vec::new();
    for call in calls {
        codes.push(call.await.unwrap());
    }
    codes.sort_by_key(|code| *code as i32);
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit]);
}

#[tokio::test]
async fn a_value_may_be_any_bytes() {
    let store = GatedStore::new();
    store.open();
    let (client, _closer) = client(&store).await;
    // The last one is text, and no other value's.
    for user in [&b"\xff"[..], b"caf\xe9", b"caf\xc3", br"\xff"] {
        for expected in [Code::Ok, Code::Ok, Code::OverLimit] {
            assert_eq!(call_for(client.clone(), user, "1S").await, expected, "{user:?}");
        }
    }
}

/// The overall code of a call with these bytes as its message.
async fn send(mut client: Client, message: Bytes) -> Code {
    let mut bytes = BytesMut::new();
    put_prefix(&mut bytes, message.len());
    bytes.extend_from_slice(&message);
    let request = Request::post(format!("http://t{SHOULD_RATE_LIMIT}"))
        .header("content-type", "application/grpc")
        .body(Full::new(bytes.freeze()))
        .unwrap();
    let answer = client.send_request(request).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(answer.trailers().unwrap()["grpc-status"], "0");
    RateLimitResponse::decode(answer.to_bytes().split_off(PREFIX_BYTES)).unwrap().overall_code()
}

#[tokio::test]
async fn a_message_that_is_too_large_is_answered_by_policy() {
    let store = GatedStore::new();
    store.open();
    let (client, _closer) = client(&store).await;
    let message = |domain: &str, length: usize| {
        let entry = Entry { key: "user".to_owned(), value: Bytes::from(vec![b'x'; length]) };
        let descriptors = vec![RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() }];
        Bytes::from(RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }.encode_to_vec())
    };
    for (domain, length, expected) in [
        ("d", 900, Code::Ok),
        ("d", 200_000, Code::Ok),
        ("strict", 200_000, Code::OverLimit),
        ("elsewhere", 200_000, Code::Ok),
        // The message does not begin with its domain, as far as it was read.
        (&"x".repeat(100_000), 1, Code::OverLimit),
    ] {
        assert_eq!(send(client.clone(), message(domain, length)).await, expected, "{length}");
    }
    // The connection goes on.
    assert_eq!(call(client, "1S").await, Code::Ok);
}

#[tokio::test]
async fn a_call_may_have_long_headers() {
    let store = GatedStore::new();
    store.open();
    let (mut client, _closer) = client(&store).await;
    let request = Request::post(format!("http://t{SHOULD_RATE_LIMIT}"))
        .header("content-type", "application/grpc")
        .header("tracestate", "x".repeat(60_000))
        .body(Full::new(Bytes::from_static(&[0, 0, 0, 0, 0])))
        .unwrap();
    let answer = client.send_request(request).await.unwrap();
    assert_eq!(answer.headers()["grpc-message"], "rate limit domain must not be empty");
}
