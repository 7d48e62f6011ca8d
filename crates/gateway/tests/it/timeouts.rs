//! Timeouts: each phase has its own, and the whole request has one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{App, NO_RULES, TestGateway, everything_to, read_message, scripted, within};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const POST: &str = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n";
/// A time that no test reaches.
const NEVER: &str = "connect: 60s, request_idle: 60s, response: 60s, idle: 60s";

fn with_timeouts(servers: &[SocketAddr], timeouts: &str) -> String {
    everything_to(servers).replace("upstream: app}", &format!("upstream: app, timeouts: {{{timeouts}}}}}"))
}

/// An upstream that reads requests, and answers none.
async fn silent() -> SocketAddr {
    scripted(async |mut stream, _| {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await
}

#[tokio::test]
async fn the_whole_timeout_includes_waiting_for_a_connection() {
    // Its only connection is in use.
    let config = with_timeouts(&[silent().await], &format!("{NEVER}, whole: 500ms"))
        .replace("servers:", "connections: {most: 1}, servers:");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let mut first = gateway.connect().await;
    first.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await;
    let second = gateway.get("/").await;
    assert!(second.starts_with("HTTP/1.1 504 ") && second.contains("whole_timeout"), "{second}");
    assert!(first.response().await.contains("whole_timeout"));
}

#[tokio::test]
async fn the_whole_timeout_includes_the_clients_body() {
    for more in ["", r#", cost: {tokens: {reserve: "json:/n"}}"#] {
        let config = with_timeouts(&[silent().await], &format!("{NEVER}, whole: 300ms"))
            .replace("upstream: app", &format!("upstream: app{more}"))
            .replace("servers:", "eject: {failures: 1, for: 60s, most: 100%}, servers:");
        let gateway = TestGateway::start(&config, NO_RULES).await;
        let mut client = gateway.connect().await;
        client.send(POST).await;
        // A drop at a time, so that it is never idle for long.
        let (mut from, mut to) = client.0.split();
        let drops = async {
            while to.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let mut answer = [0; 12];
        within(async {
            tokio::select! {
                read = from.read_exact(&mut answer) => { read.unwrap(); }
                () = drops => panic!("the connection failed"),
            }
        })
        .await;
        assert_eq!(answer, *b"HTTP/1.1 408", "{more}");
        let status = gateway.gateway.status();
        assert!(!status.upstreams[0].servers[0].is_ejected, "it is not the server's fault");
    }
}

const SPACED: &str = "
domain: api
rules:
  - {name: spaced, key: [host], limit: 10/minute, algorithm: leaky_bucket, burst: 10}
";

#[tokio::test]
async fn a_request_that_would_be_delayed_for_longer_is_not_forwarded() {
    let app = App::start().await;
    let gateway = TestGateway::start(&with_timeouts(&[app.address], "whole: 1s"), SPACED).await;
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 200 "));
    // It would leave six seconds later.
    let delayed = gateway.get("/").await;
    assert!(delayed.starts_with("HTTP/1.1 504 ") && delayed.contains("whole_timeout"), "{delayed}");
    assert_eq!(app.seen().len(), 1);
}

#[tokio::test]
async fn the_whole_timeout_ends_a_response_that_never_pauses() {
    let upstream = scripted(async |mut stream, _| {
        read_message(&mut stream).await;
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        let mut sent = stream.write_all(head.as_bytes()).await;
        while sent.is_ok() {
            sent = stream.write_all(chunk.as_bytes()).await;
        }
    })
    .await;
    let gateway = TestGateway::start(&with_timeouts(&[upstream], "whole: 300ms"), NO_RULES).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut buffer = vec![0; 1 << 20];
    within(async { while client.0.read(&mut buffer).await.is_ok_and(|read| read > 0) {} }).await;
}

#[tokio::test]
async fn the_response_timeout_begins_when_the_body_has_been_sent() {
    for protocol in ["http1", "http2"] {
        let app = hyper_silent().await;
        let config = with_timeouts(&[app], "response: 1s, request_idle: 60s")
            .replace("servers:", &format!("protocol: {protocol}, servers:"));
        let gateway = TestGateway::start(&config, NO_RULES).await;
        let mut client = gateway.connect().await;
        client.send(POST).await;
        // Its body takes longer than a response may.
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(150)).await;
            client.send("x").await;
        }
        let early = tokio::time::timeout(Duration::from_millis(900), read_message(&mut client.0)).await;
        assert!(early.is_err(), "{protocol}: {early:?}");
        let answer = client.response().await;
        assert!(answer.starts_with("HTTP/1.1 504 ") && answer.contains("response_timeout"), "{protocol}: {answer}");
    }
}

/// An application that reads requests of either version, and answers none.
async fn hyper_silent() -> SocketAddr {
    use http_body_util::{BodyExt as _, Empty};
    use hyper_util::rt::{TokioExecutor, TokioIo};

    scripted(async |stream: TcpStream, _| {
        let service = hyper::service::service_fn(async |request: http::Request<hyper::body::Incoming>| {
            let _ = request.into_body().collect().await;
            std::future::pending::<Result<http::Response<Empty<bytes::Bytes>>, std::convert::Infallible>>().await
        });
        let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    })
    .await
}

#[tokio::test]
async fn a_server_that_does_not_take_an_upload_is_504() {
    let deaf = scripted(async |stream, _| {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let config = with_timeouts(&[deaf], "request_idle: 300ms, response: 60s").replace("}}", "}, max_body: 1GiB}");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let mut client = gateway.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500000000\r\n\r\n").await;
    let (mut from, mut to) = client.0.split();
    let upload = async {
        let part = vec![0; 1 << 20];
        while to.write_all(&part).await.is_ok() {}
        std::future::pending::<()>().await
    };
    let mut answer = [0; 12];
    within(async {
        tokio::select! {
            read = from.read_exact(&mut answer) => { read.unwrap(); }
            () = upload => {}
        }
    })
    .await;
    assert_eq!(answer, *b"HTTP/1.1 504");
}

#[tokio::test]
async fn a_slow_client_is_not_taken_for_a_server_that_does_not_read() {
    let requests = Arc::<AtomicUsize>::default();
    let counted = requests.clone();
    let upstream = scripted(move |mut stream, _| {
        let counted = counted.clone();
        async move {
            read_message(&mut stream).await;
            counted.fetch_add(1, Ordering::Relaxed);
            let _ = stream.write_all(OK).await;
        }
    })
    .await;
    // Each pause is shorter than the timeout, all together are longer.
    let gateway = TestGateway::start(&with_timeouts(&[upstream], "request_idle: 2s, response: 60s"), NO_RULES).await;
    let mut client = gateway.connect().await;
    client.send(POST).await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(250)).await;
        client.send("x").await;
    }
    assert!(client.response().await.starts_with("HTTP/1.1 200 "));
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}
