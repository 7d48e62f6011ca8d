//! Requests that are sent again: when, how often, and at whose cost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tollgate_store::{Clock as _, SystemClock};

use crate::support::{App, NO_RULES, TestGateway, everything_to, read_message, scripted};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const UNAVAILABLE: &str = "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n";

/// A server that answers the first requests with one response, and all others with another. Returns the number of requests.
async fn first_then(count: usize, first: &'static str, then: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let requests = Arc::<AtomicUsize>::default();
    let counted = requests.clone();
    let address = scripted(move |mut stream, _| {
        let counted = counted.clone();
        async move {
            while !read_message(&mut stream).await.is_empty() {
                let response = if counted.fetch_add(1, Ordering::Relaxed) < count { first } else { then };
                if stream.write_all(response.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    })
    .await;
    (address, requests)
}

fn with_retries(servers: &[SocketAddr], retries: &str) -> String {
    everything_to(servers).replace("upstream: app}", &format!("upstream: app, retries: {retries}}}"))
}

const RULES: &str = "
domain: api
rules:
  - {name: all, key: [host], limit: 10/hour, algorithm: sliding_log}
";

#[tokio::test]
async fn a_status_is_retried_by_choice_and_charged_once() {
    let (address, requests) = first_then(1, UNAVAILABLE, OK).await;
    let gateway = TestGateway::start(&with_retries(&[address], "{on: [503]}"), RULES).await;
    let response = gateway.get("/").await;
    assert!(response.starts_with("HTTP/1.1 200 ") && response.contains("x-ratelimit-remaining: 9"), "{response}");
    assert_eq!(requests.load(Ordering::Relaxed), 2);
    let second = gateway.get("/").await;
    assert!(second.contains("x-ratelimit-remaining: 8"), "{second}");
    assert_eq!(gateway.gateway.status().upstreams[0].retries, 1);

    // Not what has an effect, and not without choice.
    for (retries, request) in [
        ("{on: [503]}", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"),
        ("{on: [502]}", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("on", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("off", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    ] {
        let (address, requests) = first_then(1, UNAVAILABLE, OK).await;
        let gateway = TestGateway::start(&with_retries(&[address], retries), RULES).await;
        let response = gateway.request(request).await;
        assert!(response.starts_with("HTTP/1.1 503 "), "{retries}: {response}");
        assert_eq!(requests.load(Ordering::Relaxed), 1, "{retries}");
    }
}

#[tokio::test]
async fn other_idempotent_methods_are_retried_by_choice() {
    for (method, retries, is_retried) in [
        ("PUT", "{on: [503], methods: [PUT, DELETE]}", true),
        ("DELETE", "{on: [503], methods: [PUT, DELETE]}", true),
        ("DELETE", "{on: [503], methods: [PUT]}", false),
        ("PUT", "{on: [503]}", false),
    ] {
        let (address, requests) = first_then(1, UNAVAILABLE, OK).await;
        let gateway = TestGateway::start(&with_retries(&[address], retries), NO_RULES).await;
        let response = gateway.request(&format!("{method} / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab")).await;
        let (status, count) = if is_retried { ("200", 2) } else { ("503", 1) };
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{method}, {retries}: {response}");
        assert_eq!(requests.load(Ordering::Relaxed), count, "{method}, {retries}");
    }
}

#[tokio::test]
async fn a_server_that_protects_itself_gets_no_second_request() {
    let shed = "HTTP/1.1 503 No\r\nX-Tollgate-Shed: adaptive\r\nContent-Length: 0\r\n\r\n";
    let (address, requests) = first_then(1, shed, OK).await;
    let gateway = TestGateway::start(&with_retries(&[address], "{on: [503]}"), NO_RULES).await;
    let response = gateway.get("/").await;
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn retries_are_a_part_of_the_requests() {
    let (address, requests) = first_then(usize::MAX, UNAVAILABLE, OK).await;
    let gateway = TestGateway::start(&with_retries(&[address], "{on: [503]}"), NO_RULES).await;
    let mut client = gateway.connect().await;
    let clock = SystemClock::default();
    let begun = clock.steady();
    for _ in 0..200 {
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(client.response().await.starts_with("HTTP/1.1 503 "));
    }
    // A fifth, and three in every second.
    let seconds = (clock.steady().since(begun).as_micros() / 1_000_000) as usize + 2;
    let retries = requests.load(Ordering::Relaxed) - 200;
    assert!((40..=40 + 3 * seconds).contains(&retries), "{retries} retries in {seconds} s");
    assert_eq!(gateway.gateway.status().upstreams[0].retries, retries as u64);
}

const SETTLED: &str = "
domain: api
rules:
  - {name: tokens, key: [host], limit: 100/hour, cost: tokens, settle: true, algorithm: sliding_log}
";

#[tokio::test]
async fn a_request_that_was_not_sent_costs_nothing() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let with_cost = |config: String| config.replace("upstream: app", "cost: {tokens: 10}, upstream: app");
    let unreachable = with_cost(with_retries(&[closed], "off"));
    let gateway = TestGateway::start(&unreachable, SETTLED).await;
    for _ in 0..3 {
        let response = gateway.get("/").await;
        assert!(response.starts_with("HTTP/1.1 502 ") && response.contains("connect_failed"), "{response}");
    }
    let app = App::start().await;
    gateway.reload(&with_cost(with_retries(&[app.address], "off"))).await;
    let served = gateway.get("/").await;
    assert!(served.contains("x-ratelimit-remaining: 90"), "only this one: {served}");

    // No server at all.
    let empty = with_cost(everything_to(&[]).replace("servers: []", "servers: {file: /nowhere/servers}"));
    gateway.reload(&empty).await;
    let response = gateway.get("/").await;
    assert!(response.starts_with("HTTP/1.1 503 ") && response.contains("no_server"), "{response}");
    gateway.reload(&with_cost(with_retries(&[app.address], "off"))).await;
    let served = gateway.get("/").await;
    assert!(served.contains("x-ratelimit-remaining: 80"), "{served}");

    // One that was sent may have had an effect.
    let reads_and_closes = scripted(|mut stream, _| async move {
        read_message(&mut stream).await;
    })
    .await;
    gateway.reload(&with_cost(with_retries(&[reads_and_closes], "off"))).await;
    let broken = gateway.get("/").await;
    assert!(broken.starts_with("HTTP/1.1 502 ") && broken.contains("upstream_broken"), "{broken}");
    gateway.reload(&with_cost(with_retries(&[app.address], "off"))).await;
    let served = gateway.get("/").await;
    assert!(served.contains("x-ratelimit-remaining: 60"), "{served}");
}
