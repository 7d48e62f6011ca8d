//! Bodies that are read before they are forwarded, because a cost is in them.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncReadExt as _;

use crate::support::{App, Frames, NO_RULES, TestGateway, everything_to, scripted, within};

/// A route whose cost is in the body.
fn with_cost(config: &str, more: &str) -> String {
    let cost = r#"upstream: app, cost: {tokens: {reserve: "json:/n"}}"#;
    config.replace("upstream: app}", &format!("{cost}{more}}}"))
}

fn chunked(chunks: &[&str], trailers: &str) -> String {
    let chunks: String = chunks.iter().map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len())).collect();
    format!("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n{trailers}\r\n")
}

#[tokio::test]
async fn a_body_beyond_the_bound_is_413() {
    let app = App::start().await;
    let config = with_cost(&everything_to(&[app.address]), ", max_body: 20");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    for beyond in [&[r#"{"n": 1, "a": "bcdef"}"#][..], &[r#"{"n": 1, "#, r#""a": "bcde"}"#], &["123456789 "; 1_000]] {
        let response = gateway.request(&chunked(beyond, "")).await;
        assert!(response.starts_with("HTTP/1.1 413 ") && response.contains("body_too_large"), "{response}");
    }
    assert!(app.seen().is_empty());
    let response = gateway.request(&chunked(&[r#"{"n": 1, "#, r#""a": "bc"}"#], "")).await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    assert!(app.seen()[0].ends_with("\n\n{\"n\": 1, \"a\": \"bc\"}"), "{:?}", app.seen());
}

#[tokio::test]
async fn a_body_that_is_longer_than_what_is_read_ahead_has_the_same_bound() {
    let app = App::start().await;
    let config = with_cost(&everything_to(&[app.address]), ", max_body: 100KiB");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let part = "x".repeat(10 * 1024);
    let fits = gateway.request(&chunked(&[&*part; 10], "")).await;
    assert!(fits.starts_with("HTTP/1.1 200 "), "{}", &fits[..200]);
    assert!(app.seen()[0].ends_with(&part.repeat(10)));
    let beyond = gateway.request(&chunked(&[&*part; 11], "")).await;
    assert!(beyond.starts_with("HTTP/1.1 413 "), "{beyond}");
}

#[tokio::test]
async fn trailers_are_forwarded_but_for_those_of_the_gateway() {
    let app = App::start().await;
    let protocols = ["http1", "http2"].map(|protocol| format!("protocol: {protocol}, servers:"));
    for (number, protocol) in protocols.iter().enumerate() {
        let config = with_cost(&everything_to(&[app.address]).replace("servers:", protocol), "");
        let gateway = TestGateway::start(&config, NO_RULES).await;
        let trailers = "X-Sum: 7\r\nX-Tollgate-Caller: root\r\nX-Real-IP: 6.6.6.6\r\n";
        let response = gateway.request(&chunked(&[r#"{"n": 1}"#], trailers)).await;
        assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("\n\n{\"n\": 1}"), "{response}");
        let io = TokioIo::new(tokio::net::TcpStream::connect(gateway.address).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let fields = [("x-sum", "7"), ("x-tollgate-caller", "root")];
        let trailers = fields.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let frames = [Frame::data(Bytes::from_static(b"{}")), Frame::trailers(trailers.into_iter().collect())];
        let request = http::Request::post("http://x/").body(Frames(VecDeque::from(frames))).unwrap();
        assert_eq!(within(sender.send_request(request)).await.unwrap().status(), 200);
        assert_eq!(app.trailers().len(), 2 * (number + 1), "{protocol}");
    }
    assert!(app.trailers().iter().all(|names| names == &["x-sum"]), "{:?}", app.trailers());
}

#[tokio::test]
async fn a_body_is_not_requested_of_a_client_that_is_refused_without_it() {
    let app = App::start().await;
    let attributes = "attributes:\n  api_key: {header: X-Api-Key}\nupstreams:";
    let config = with_cost(&everything_to(&[app.address]), ", require: [api_key]").replace("upstreams:", attributes);
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let request =
        |key: &str| format!("POST / HTTP/1.1\r\nHost: x\r\n{key}Expect: 100-continue\r\nContent-Length: 8\r\n\r\n");
    for (key, status) in [("", "401"), ("X-Api-Key: a\r\nX-Api-Key: b\r\n", "400")] {
        let answer = gateway.request(&request(key)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "not 100: {answer}");
    }
    let mut client = gateway.connect().await;
    client.send(&request("X-Api-Key: a\r\n")).await;
    assert!(client.response().await.starts_with("HTTP/1.1 100 "));
    client.send(r#"{"n": 1}"#).await;
    assert!(client.response().await.starts_with("HTTP/1.1 200 "));
    assert_eq!(app.seen().len(), 1);
}

#[tokio::test]
async fn a_body_is_not_requested_of_a_client_that_is_shed_without_it() {
    let silent = scripted(async |mut stream, _| {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let config = with_cost(&everything_to(&[silent]), "")
        .replace("servers:", "adaptive: {mode: enforce, min: 1, max: 1}, servers:");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let mut first = gateway.connect().await;
    first.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await;
    within(async {
        while gateway.gateway.status().upstreams[0].requests == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let upload = "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 8\r\n\r\n";
    let answer = gateway.request(upload).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("x-tollgate-shed: adaptive"), "{answer}");
}

const LENGTHS: &str = "
domain: api
rules:
  - {name: sizes, key: [host], limit: 100/hour, cost: size, settle: true, algorithm: sliding_log}
";

#[tokio::test]
async fn a_cost_by_length_is_what_was_sent_if_no_header_says_it() {
    let app = App::start().await;
    let cost = "upstream: app, cost: {size: {length: 1KiB}}";
    let config = everything_to(&[app.address]).replace("upstream: app}", &format!("{cost}}}"));
    let gateway = TestGateway::start(&config, LENGTHS).await;
    // Its end comes later than its head.
    let mut client = gateway.connect().await;
    let part = "x".repeat(5_000);
    client.send(&format!("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1388\r\n{part}\r\n")).await;
    within(async {
        while gateway.gateway.status().upstreams[0].requests == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    client.send("1388\r\n").await;
    client.send(&format!("{part}\r\n0\r\n\r\n")).await;
    assert!(within(client.response()).await.contains("x-ratelimit-remaining: 99"), "as reserved");
    // All of it comes with its head: 2 units, after 10.
    let whole = gateway.request(&chunked(&["x".repeat(1_500).as_str()], "")).await;
    assert!(whole.contains("x-ratelimit-remaining: 88"), "{whole}");
    let known = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n{part}");
    assert!(gateway.request(&known).await.contains("x-ratelimit-remaining: 83"));
}
