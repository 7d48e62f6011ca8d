//! Bodies that are read before they are forwarded, because a cost is in them.

use std::collections::VecDeque;

use bytes::Bytes;
use http_body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::support::{App, Frames, NO_RULES, TestGateway, everything_to, within};

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
