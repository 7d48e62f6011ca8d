//! A client's connection over HTTP/1.1: when it is used again, how responses are framed, and what it does not wait for.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{App, NO_RULES, TestGateway, everything_to, read_message, scripted, within};

/// A gateway in front of a server that answers every request with these bytes.
async fn answering(response: &'static str) -> TestGateway {
    let upstream = scripted(move |mut stream, _| async move {
        while !read_message(&mut stream).await.is_empty() {
            if stream.write_all(response.as_bytes()).await.is_err() {
                return;
            }
        }
    })
    .await;
    TestGateway::to(&[upstream]).await
}

const CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n";

#[tokio::test]
async fn requests_in_one_write_are_answered_in_order() {
    let gateway = TestGateway::to(&[App::start().await.address]).await;
    let mut client = gateway.connect().await;
    let post = "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";
    client.send(&format!("GET /a HTTP/1.1\r\nHost: x\r\n\r\n{post}GET /c HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    for line in ["GET /a ", "POST /b ", "GET /c "] {
        let response = client.response().await;
        assert!(response.contains(line), "{response}");
    }
}

#[tokio::test]
async fn a_head_may_come_byte_by_byte() {
    let gateway = TestGateway::to(&[App::start().await.address]).await;
    let mut client = gateway.connect().await;
    client.0.set_nodelay(true).unwrap();
    for byte in b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n" {
        client.0.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert!(client.response().await.contains("GET /slow "));
}

#[tokio::test]
async fn old_clients_keep_their_connection_if_they_request_it() {
    let gateway = answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let mut client = gateway.connect().await;
    for _ in 0..2 {
        client.send("GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n").await;
        let response = client.response().await;
        assert!(response.contains("connection: keep-alive\r\n") && response.ends_with("\r\n\r\nok"), "{response}");
    }
    client.send("GET / HTTP/1.0\r\nHost: x\r\n\r\n").await;
    assert!(client.rest().await.contains("connection: close\r\n"));
}

#[tokio::test]
async fn trailers_reach_clients_that_accept_them() {
    let gateway = answering(CHUNKS).await;
    for (te, end) in [("TE: trailers\r\n", "0\r\nx-sum: 7\r\n\r\n"), ("", "2\r\nok\r\n0\r\n\r\n")] {
        let mut client = gateway.connect().await;
        client.send(&format!("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{te}\r\n")).await;
        let response = client.rest().await;
        assert!(response.ends_with(end), "{response}");
    }
}

#[tokio::test]
async fn a_response_says_when_it_was_sent() {
    let gateway = answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    assert!(gateway.get("/").await.contains("\r\ndate: "));
    let date = "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 2\r\n\r\nok";
    let response = answering(date).await.get("/").await;
    assert_eq!(response.matches("date: ").count(), 1, "{response}");
    assert!(response.contains("date: Sun, 06 Nov 1994"), "{response}");
}

/// Nobody has a credential, so all requests are refused.
async fn refusing() -> TestGateway {
    let app = App::start().await;
    let config = everything_to(&[app.address])
        .replace("routes:", "attributes: {api_key: {header: X-Api-Key}}\nroutes:")
        .replace("upstream: app}", "upstream: app, require: api_key}");
    TestGateway::start(&config, NO_RULES).await
}

#[tokio::test]
async fn a_refused_request_with_a_body_that_came_leaves_its_connection_open() {
    let gateway = refusing().await;
    let mut client = gateway.connect().await;
    for body in ["Content-Length: 3\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"] {
        client.send(&format!("POST / HTTP/1.1\r\nHost: x\r\n{body}")).await;
        let response = client.response().await;
        assert!(response.starts_with("HTTP/1.1 401 ") && !response.contains("connection: close"), "{response}");
    }
}

#[tokio::test]
async fn a_refused_request_whose_body_did_not_come_ends_its_connection() {
    let gateway = refusing().await;
    let mut client = gateway.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n").await;
    let response = client.rest().await;
    assert!(response.starts_with("HTTP/1.1 401 ") && response.contains("connection: close"), "{response}");
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_it_once() {
    let gateway = TestGateway::to(&[App::start().await.address]).await;
    let mut client = gateway.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
    let mut interim = [0; 25];
    within(client.0.read_exact(&mut interim)).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    for part in ["ab", "cd"] {
        client.send(part).await;
        tokio::task::yield_now().await;
    }
    let response = client.response().await;
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("abcd"), "{response}");
}

#[tokio::test]
async fn errors_in_heads_are_problem_documents() {
    let gateway = TestGateway::to(&[App::start().await.address]).await;
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(150));
    for (request, status, code) in [
        ("GET\r\n\r\n", "400", "malformed_head"),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", "400", "ambiguous_body"),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", "400", "broken_body"),
        (&many, "431", "head_too_large"),
    ] {
        let mut client = gateway.connect().await;
        client.send(request).await;
        let response = client.rest().await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")) && response.contains(code), "{response}");
        assert!(response.contains("connection: close\r\n"), "{response}");
    }
}

#[tokio::test]
async fn a_response_that_is_shorter_or_longer_than_it_says_ends_the_connection() {
    let gateway = answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok, and more").await;
    let mut client = gateway.connect().await;
    // What is more than the length is not forwarded, and the server's connection not used again.
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let response = client.response().await;
        assert!(response.ends_with("\r\n\r\nok"), "{response}");
    }
    let short = scripted(|mut stream, _| async move {
        read_message(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok").await;
    })
    .await;
    let gateway = TestGateway::to(&[short]).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let response = client.rest().await;
    assert!(response.contains("content-length: 9\r\n") && response.ends_with("ok"), "{response}");
}

#[tokio::test]
async fn an_upload_reaches_an_http2_server_in_its_parts() {
    let app = App::start().await;
    let config = everything_to(&[app.address]).replace("servers:", "protocol: http2, servers:");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let mut client = gateway.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    for part in ["2\r\nab\r\n", "2\r\nc", "d\r\n", "0\r\n\r\n"] {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        client.send(part).await;
    }
    let response = client.response().await;
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("abcd"), "{response}");
}
