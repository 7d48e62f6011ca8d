//! Connections: their lifetime, and the bounds of requests.

use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::{RULES, Reply, Server, written};

const CHECK: &str = "POST /v1/ratelimit/check HTTP/1.1\r\nHost: x\r\n";

/// Whether the server has closed the connection.
async fn is_closed(connection: &mut UnixStream) -> bool {
    matches!(connection.read(&mut [0; 1]).await, Ok(0) | Err(_))
}

#[tokio::test]
async fn a_connection_serves_many_requests() {
    let server = Server::new(RULES);
    let mut connection = server.connect();
    let request = written("POST", "/v1/ratelimit/check", &[], r#"{"api_key": "k"}"#);
    for left in [2, 1, 0] {
        connection.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(Reply::read(&mut connection, false).await.json()["remaining"], left);
    }
    // And several at once.
    connection.write_all(format!("{request}{}{request}", written("GET", "/livez", &[], "")).as_bytes()).await.unwrap();
    for status in [429, 200, 429] {
        assert_eq!(Reply::read(&mut connection, false).await.status, status);
    }
}

#[tokio::test]
async fn a_body_may_come_in_pieces() {
    let server = Server::new(RULES);
    let mut connection = server.connect();
    let head = format!("{CHECK}Transfer-Encoding: chunked\r\n\r\n");
    for piece in [head.as_str(), "8\r\n{\"api_ke\r\n", "8\r\ny\": \"k\"}\r\n", "0\r\n\r\n"] {
        connection.write_all(piece.as_bytes()).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(Reply::read(&mut connection, false).await.json()["remaining"], 2);
}

#[tokio::test]
async fn a_client_that_asks_whether_to_go_on_may() {
    let server = Server::new(RULES);
    let mut connection = server.connect();
    connection.write_all(format!("{CHECK}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n").as_bytes()).await.unwrap();
    assert_eq!(Reply::read(&mut connection, false).await.status, 100);
    connection.write_all(b"{}").await.unwrap();
    assert_eq!(Reply::read(&mut connection, false).await.status, 200);
}

#[tokio::test]
async fn a_body_past_the_bound_is_read_and_dropped() {
    const SETTLE: &str = "POST /v1/ratelimit/settle HTTP/1.1\r\nHost: x\r\n";
    let server = Server::new(RULES);
    let chunk = format!("80000\r\n{}\r\n", " ".repeat(0x8_0000));
    let bodies = [
        format!("Content-Length: 524289\r\n\r\n{}", " ".repeat(524_289)),
        format!("Transfer-Encoding: chunked\r\n\r\n{chunk}1\r\n \r\n0\r\n\r\n"),
    ];
    // The connection goes on.
    let mut connection = server.connect();
    for body in &bodies {
        connection.write_all(format!("{SETTLE}{body}").as_bytes()).await.unwrap();
        let reply = Reply::read(&mut connection, false).await;
        reply.assert_problem(413, "body_too_large", "524288 bytes");
        assert_eq!(reply.header("connection"), None);
        connection.write_all(format!("{CHECK}{body}").as_bytes()).await.unwrap();
        assert_eq!(Reply::read(&mut connection, false).await.body, r#"{"allowed":true,"source":"assumed"}"#);
    }
    // At the bound it is accepted.
    let body = format!("{{\"api_key\": \"k\"{}}}", " ".repeat(524_288 - 16));
    assert_eq!((body.len(), server.check(&body).await.json()["remaining"].as_u64()), (524_288, Some(2)));
}

#[tokio::test]
async fn a_body_that_is_not_read_ends_the_connection() {
    let server = Server::new(RULES);
    for path in ["check", "settle", "explain"] {
        let mut connection = server.connect();
        let head = format!("POST /v1/ratelimit/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n");
        connection.write_all(head.as_bytes()).await.unwrap();
        let reply = Reply::read(&mut connection, false).await;
        let status = if path == "check" { 200 } else { 413 };
        assert_eq!((reply.status, reply.header("connection")), (status, Some("close")), "{path}");
        assert!(is_closed(&mut connection).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_is_a_request_timeout() {
    let server = Server::new(RULES);
    for sent in ["", "{"] {
        let mut connection = server.connect();
        connection.write_all(format!("{CHECK}Content-Length: 2\r\n\r\n{sent}").as_bytes()).await.unwrap();
        Reply::read(&mut connection, false).await.assert_problem(408, "slow_body", "within 5s");
        assert!(is_closed(&mut connection).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_connection_is_closed() {
    let server = Server::new(RULES);
    let (shortest, longest) = (Duration::from_secs(59), Duration::from_secs(121));
    for sent in ["", CHECK, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"] {
        let mut connection = server.connect();
        connection.write_all(sent.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let mut reading = pin!(connection.read_to_end(&mut rest));
        assert!(tokio::time::timeout(shortest, reading.as_mut()).await.is_err());
        tokio::time::timeout(longest, reading).await.unwrap().unwrap();
    }
    // An active connection is not closed.
    let mut connection = server.connect();
    for _ in 0..10 {
        connection.write_all(written("GET", "/livez", &[], "").as_bytes()).await.unwrap();
        assert_eq!(Reply::read(&mut connection, false).await.status, 200);
        tokio::time::sleep(Duration::from_secs(50)).await;
    }
}

#[tokio::test]
async fn a_server_that_stops_answers_what_has_begun() {
    let server = Server::new(RULES);
    let (mut idle, mut busy) = (server.connect(), server.connect());
    idle.write_all(written("GET", "/livez", &[], "").as_bytes()).await.unwrap();
    Reply::read(&mut idle, false).await;
    busy.write_all(format!("{CHECK}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n").as_bytes()).await.unwrap();
    assert_eq!(Reply::read(&mut busy, false).await.status, 100);
    server.closer.close();
    assert!(is_closed(&mut idle).await);
    busy.write_all(b"{}").await.unwrap();
    let last = Reply::read(&mut busy, false).await;
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    assert!(is_closed(&mut busy).await);
}

#[tokio::test]
async fn heads_have_a_bound() {
    let server = Server::new(RULES);
    let heads = [
        format!("GET /livez HTTP/1.1\r\nHost: x\r\nX-A: {}\r\n\r\n", "a".repeat(120_000)),
        format!("GET /livez HTTP/1.1\r\nHost: x\r\n{}\r\n", "X-A: a\r\n".repeat(1_000)),
    ];
    for request in heads {
        let mut connection = server.connect();
        connection.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(Reply::read(&mut connection, false).await.status, 200);
    }
    let rows = [
        format!("GET /livez HTTP/1.1\r\nHost: x\r\nX-A: {}\r\n\r\n", "a".repeat(140_000)),
        format!("GET /livez HTTP/1.1\r\nHost: x\r\n{}\r\n", "X-A: a\r\n".repeat(1_025)),
    ];
    for request in rows {
        let mut connection = server.connect();
        connection.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(Reply::read(&mut connection, false).await.status, 431);
    }
    let mut connection = server.connect();
    connection.write_all(b"\x16\x03\x01 nonsense\r\n\r\n").await.unwrap();
    assert_eq!(Reply::read(&mut connection, false).await.status, 400);
}
