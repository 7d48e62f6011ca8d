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
async fn a_body_past_the_bound_is_refused_before_it_is_read() {
    let server = Server::new(RULES);
    let mut connection = server.connect();
    connection.write_all(format!("{CHECK}Content-Length: 65537\r\n\r\n").as_bytes()).await.unwrap();
    Reply::read(&mut connection, false).await.assert_problem(413, "body_too_large", "65536 bytes");

    let mut connection = server.connect();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let head = format!("{CHECK}Transfer-Encoding: chunked\r\n\r\n");
    connection.write_all(head.as_bytes()).await.unwrap();
    let (mut reader, mut writer) = connection.into_split();
    let sending = tokio::spawn(async move {
        writer.write_all(chunk.as_bytes()).await?;
        writer.write_all(b"1\r\n \r\n").await
    });
    let mut answer = String::new();
    reader.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let _ = sending.await;

    // At the bound it is accepted.
    let body = format!("{{\"api_key\": \"k\"{}}}", " ".repeat(65_536 - 16));
    assert_eq!(body.len(), 65_536);
    assert_eq!(server.check(&body).await.status, 200);
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
    let rows = [
        format!("GET /livez HTTP/1.1\r\nHost: x\r\nX-A: {}\r\n\r\n", "a".repeat(40_000)),
        format!("GET /livez HTTP/1.1\r\nHost: x\r\n{}\r\n", "X-A: a\r\n".repeat(101)),
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
