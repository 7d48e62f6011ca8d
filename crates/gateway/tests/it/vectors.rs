//! Raw requests that proxies read differently: refused, or forwarded in one way; and what nginx and Envoy make of them.

use std::collections::BTreeMap;

use crate::probe::{HASTY, Lane, Outcome, PATIENT};
use crate::support::{App, TestGateway};

/// A raw request.
struct Vector {
    name: &'static str,
    fate: Fate,
    bytes: Vec<u8>,
}

/// What becomes of a request.
enum Fate {
    /// The status of the response; the upstream sees nothing.
    Refused(&'static str),
    /// What the upstream sees contains this, and is one request.
    Forwarded(&'static str),
}

const VECTORS: &str = include_str!("../vectors.tsv");

fn vectors() -> Vec<Vector> {
    let lines = VECTORS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let vectors: Vec<Vector> = lines
        .map(|line| {
            let [name, fate, text] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let fate = fate.strip_prefix("> ").map_or(Fate::Refused(fate), Fate::Forwarded);
            Vector { name, fate, bytes: unescape(text) }
        })
        .collect();
    assert!(vectors.len() >= 34, "{} vectors", vectors.len());
    vectors
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match (byte, byte == b'\\') {
            (byte, false) => byte,
            (..) => match rest.next().unwrap() {
                b'r' => b'\r',
                b'n' => b'\n',
                b't' => b'\t',
                b'0' => 0,
                b'x' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                other => other,
            },
        });
    }
    bytes
}

#[tokio::test]
async fn every_vector_is_refused_or_forwarded_in_one_way() {
    let mut wrong = Vec::new();
    for Vector { name, fate, bytes } in vectors() {
        let app = App::start().await;
        let gateway = TestGateway::to(&[app.address]).await;
        let mut client = gateway.connect().await;
        tokio::io::AsyncWriteExt::write_all(&mut client.0, &bytes).await.unwrap();
        let response = client.response().await;
        let seen = app.seen();
        let is_right = match fate {
            Fate::Refused(status) => response.get(9..12) == Some(status) && seen.is_empty(),
            Fate::Forwarded(text) => response.contains(" 200 ") && seen.len() == 1 && seen[0].contains(text),
        };
        if !is_right {
            wrong.push(format!("{name}: {:?} {seen:?}", response.lines().next()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn no_vector_passes_that_nginx_and_envoy_both_refuse() {
    let (ours, _gateway) = Lane::ours().await;
    let (nginx, _nginx) = Lane::nginx(1).await;
    let (envoy, _envoy) = Lane::envoy(1).await;
    let (mut wrong, mut stricter) = (Vec::new(), BTreeMap::<String, Vec<&str>>::new());
    for Vector { name, bytes, .. } in vectors() {
        let parts = [&bytes[..]];
        let sent = async |patience| {
            tokio::join!(ours.send(&parts, patience), nginx[0].send(&parts, patience), envoy[0].send(&parts, patience))
        };
        let is_right =
            |(ours, nginx, envoy): &(Outcome, Outcome, Outcome)| ours.is_within(nginx) || ours.is_within(envoy);
        let mut outcomes = sent(HASTY).await;
        if !is_right(&outcomes) {
            outcomes = sent(PATIENT).await;
        }
        if !is_right(&outcomes) {
            wrong.push(format!("{name}: {outcomes:?}"));
        }
        let (ours, nginx, envoy) = &outcomes;
        if ours.recorded.len() < nginx.recorded.len().min(envoy.recorded.len()) {
            let status = ours.statuses.first().cloned().unwrap_or_default();
            stricter.entry(status).or_default().push(name);
        }
    }
    println!("refused here, forwarded by nginx and Envoy: {stricter:#?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn what_follows_an_ambiguous_request_is_not_a_request() {
    let app = App::start().await;
    let gateway = TestGateway::to(&[app.address]).await;
    let mut client = gateway.connect().await;
    let ambiguous = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    client.send(&format!("{ambiguous}GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    let responses = client.rest().await;
    assert_eq!(responses.matches("HTTP/1.1 ").count(), 1, "{responses}");
    assert!(app.seen().is_empty(), "{:?}", app.seen());
}

#[tokio::test]
async fn heads_have_bounds() {
    let app = App::start().await;
    let gateway = TestGateway::to(&[app.address]).await;
    let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX-A: {}\r\n\r\n", "a".repeat(70_000));
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "X-A: 1\r\n".repeat(150));
    for request in [long, many] {
        let mut client = gateway.connect().await;
        // The connection may be closed while it is written.
        let _ = tokio::io::AsyncWriteExt::write_all(&mut client.0, request.as_bytes()).await;
        let response = client.response().await;
        assert!(response.starts_with("HTTP/1.1 431 ") || response.is_empty(), "{response}");
    }
    assert!(app.seen().is_empty());
}
