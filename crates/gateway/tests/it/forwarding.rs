//! What upstreams and clients get to see.

use crate::support::{App, NO_RULES, TestGateway, everything_to, read_message, scripted, within};
use tokio::io::AsyncWriteExt as _;

#[tokio::test]
async fn a_request_arrives_as_it_was_sent() {
    let app = App::start().await;
    let gateway = TestGateway::to(&[app.address]).await;
    let request =
        "POST /orders/7?x=%2F&y HTTP/1.1\r\nHost: Shop.example:81\r\nX-Own: 1\r\nContent-Length: 5\r\n\r\nhello";
    let response = gateway.request(request).await;
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    let seen = &app.seen()[0];
    assert!(seen.starts_with("POST /orders/7?x=%2F&y HTTP/1.1\n"), "{seen}");
    assert!(
        seen.contains("\nhost: Shop.example:81\n") && seen.contains("\nx-own: 1") && seen.ends_with("\n\nhello"),
        "{seen}"
    );
    assert!(seen.contains("\nx-forwarded-for: 127.0.0.1\n") && seen.contains("\nx-forwarded-proto: http\n"), "{seen}");
    assert!(seen.contains("\nx-forwarded-host: Shop.example:81\n") && seen.contains("\nx-request-id: "), "{seen}");
}

#[tokio::test]
async fn fields_of_the_connection_and_of_the_gateway_are_not_forwarded() {
    let app = App::start().await;
    let gateway = TestGateway::to(&[app.address]).await;
    let request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: X-Secret, keep-alive\r\nX-Secret: 1\r\nKeep-Alive: 5\r\nProxy-Authorization: y\r\n\
                   TE: gzip\r\nUpgrade: h2c\r\nX-Tollgate-Caller: root\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n\r\n";
    gateway.request(request).await;
    let seen = &app.seen()[0];
    for name in
        ["x-secret", "keep-alive", "proxy-authorization", "te:", "upgrade", "x-tollgate", "6.6.6.6", "connection"]
    {
        assert!(!seen.contains(name), "{name}: {seen}");
    }
}

#[tokio::test]
async fn one_spelling_of_a_path_arrives() {
    let app = App::start().await;
    let gateway = TestGateway::to(&[app.address]).await;
    for (sent, arrives) in [("/%6frders", "/orders"), ("/a/../orders", "/orders"), ("/./a%c3%a9", "/a%C3%A9")] {
        gateway.get(sent).await;
        assert!(app.seen().last().unwrap().starts_with(&format!("GET {arrives} ")), "{sent}");
    }
    for odd in ["/a%2fb", "/a//b", "/a%5cb", "/..%2f..", "/a%00", "/../x"] {
        let before = app.seen().len();
        let response = gateway.get(odd).await;
        assert!(response.starts_with("HTTP/1.1 400 ") && app.seen().len() == before, "{odd}: {response}");
    }
}

#[tokio::test]
async fn a_prefix_can_be_removed_and_unknown_paths_are_404() {
    let app = App::start().await;
    let config = everything_to(&[app.address])
        .replace("{name: all, match: {path: /*}", "{name: all, match: {path: /v1/*}, strip_prefix: /v1");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    gateway.get("/v1/orders?a").await;
    assert!(app.seen()[0].starts_with("GET /orders?a "), "{:?}", app.seen());
    let response = gateway.get("/v2/orders").await;
    assert!(response.starts_with("HTTP/1.1 404 ") && response.contains(r#""by":"gateway""#), "{response}");
}

#[tokio::test]
async fn methods_of_a_route_are_listed_in_405() {
    let app = App::start().await;
    let config = everything_to(&[app.address]).replace("{path: /*}", "{path: /*, methods: [GET, POST]}");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let response = gateway.request("DELETE / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 405 ") && response.contains("allow: GET, POST"), "{response}");
}

#[tokio::test]
async fn methods_that_no_path_accepts_are_405_with_those_that_may_be() {
    let app = App::start().await;
    let gateway = TestGateway::to(&[app.address]).await;
    for request in ["TRACE / HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n\r\n"] {
        let response = gateway.request(request).await;
        assert!(response.starts_with("HTTP/1.1 405 ") && response.contains("\r\nallow: GET, HEAD, POST"), "{response}");
    }
    assert!(app.seen().is_empty());
}

#[tokio::test]
async fn http2_arrives_as_http1_and_the_other_way_round() {
    let app = App::start().await;
    let gateway = TestGateway::to(&[app.address]).await;
    let http2 =
        TestGateway::start(&everything_to(&[app.address]).replace("servers:", "protocol: http2, servers:"), NO_RULES)
            .await;
    for (gateway, version) in [(&gateway, "HTTP/1.1"), (&http2, "HTTP/2.0")] {
        let stream = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let executor = hyper_util::rt::TokioExecutor::new();
        let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
        tokio::spawn(connection);
        let body = http_body_util::Full::new(bytes::Bytes::from_static(b"hello"));
        let request = http::Request::post("http://shop.example/orders").body(body).unwrap();
        let response = within(sender.send_request(request)).await.unwrap();
        assert_eq!(response.status(), 200);
        let seen = app.seen().last().unwrap().clone();
        assert!(seen.lines().next().unwrap().ends_with(version) && seen.ends_with("hello"), "{seen}");
        assert!(seen.contains("shop.example"), "{seen}");
    }
    let response = http2.get("/x").await;
    assert!(response.starts_with("HTTP/1.1 200 ") && app.seen().last().unwrap().contains("HTTP/2.0"), "{response}");
}

#[tokio::test]
async fn responses_arrive_without_the_fields_of_their_connection() {
    let upstream = scripted(async |mut stream, _| {
        read_message(&mut stream).await;
        let response = "HTTP/1.1 201 Made\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nX-Own: 2\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 2\r\n\r\nok";
        stream.write_all(response.as_bytes()).await.unwrap();
    })
    .await;
    let response = TestGateway::to(&[upstream]).await.get("/").await;
    assert!(response.starts_with("HTTP/1.1 201 ") && response.ends_with("\r\n\r\nok"), "{response}");
    assert!(response.contains("x-own: 2") && response.contains("set-cookie: a\r\nset-cookie: b"), "{response}");
    assert!(!response.contains("x-hop") && !response.contains("keep-alive"), "{response}");
}

#[tokio::test]
async fn a_body_beyond_the_bound_is_413() {
    let app = App::start().await;
    let config = everything_to(&[app.address]).replace("upstream: app}", "upstream: app, max_body: 10}");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let known = gateway.request("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nhello world").await;
    assert!(known.starts_with("HTTP/1.1 413 "), "{known}");
    let chunks = "6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n";
    let unknown =
        gateway.request(&format!("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}")).await;
    assert!(unknown.starts_with("HTTP/1.1 413 "), "{unknown}");
    let fits = gateway.request("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello worl").await;
    assert!(fits.starts_with("HTTP/1.1 200 "), "{fits}");
}
