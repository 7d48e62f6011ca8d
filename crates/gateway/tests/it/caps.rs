//! What an upstream's cap counts as in flight, and which latencies it takes into account.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;

use crate::support::{App, NO_RULES, TestGateway, everything_to, read_message, scripted};

/// More than a window needs.
const ENOUGH: usize = 40;
/// At least as long as a window.
const WINDOW: Duration = Duration::from_millis(150);

/// The latency that a cap knows after many of these requests.
async fn sampled(gateway: &TestGateway, request: &str) -> Option<f64> {
    for _ in 0..2 {
        for _ in 0..ENOUGH {
            let response = gateway.request(request).await;
            assert!(response.starts_with("HTTP/1.1 "), "{response}");
        }
        tokio::time::sleep(WINDOW).await;
    }
    gateway.request(request).await;
    gateway.gateway.status().upstreams[0].cap.sample_rtt_ms
}

/// A server that sends this, whatever the request.
async fn answers(response: &'static str) -> std::net::SocketAddr {
    scripted(move |mut stream, _| async move {
        while !read_message(&mut stream).await.is_empty() {
            if stream.write_all(response.as_bytes()).await.is_err() {
                return;
            }
        }
    })
    .await
}

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

#[tokio::test]
async fn only_answers_to_a_first_try_are_samples() {
    let websocket = "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let rows = [
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true),
        (GET, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", true),
        (GET, "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", false),
        // A failure over gRPC that comes at once.
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\ngrpc-status: 14\r\n\r\n", false),
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\ngrpc-status: 5\r\n\r\n", true),
        (websocket, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", false),
    ];
    for (request, response, is_sample) in rows {
        let gateway = TestGateway::to(&[answers(response).await]).await;
        assert_eq!(sampled(&gateway, request).await.is_some(), is_sample, "{response}");
    }
}

#[tokio::test]
async fn a_request_that_was_sent_twice_is_no_sample() {
    let address = scripted(|mut stream, _| async move {
        let mut number = 0;
        while !read_message(&mut stream).await.is_empty() {
            let status = if number % 2 == 0 { "503 No" } else { "200 OK" };
            let response = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            if stream.write_all(response.as_bytes()).await.is_err() {
                return;
            }
            number += 1;
        }
    })
    .await;
    let config =
        everything_to(&[address]).replace("upstream: app}", "upstream: app, retries: {on: [503], budget: 100%}}");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    assert_eq!(sampled(&gateway, GET).await, None);
    assert!(gateway.gateway.status().upstreams[0].retries >= ENOUGH as u64);
}

#[tokio::test]
async fn uploads_that_wait_for_their_clients_leave_room_for_others() {
    let app = App::start().await;
    let config =
        everything_to(&[app.address]).replace("servers:", "adaptive: {mode: enforce, min: 1, max: 1}, servers:");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let mut slow = gateway.connect().await;
    slow.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nha").await;
    let in_flight = || gateway.gateway.status().upstreams[0].cap.in_flight;
    let mut served = 0;
    for _ in 0..500 {
        // Its slot is taken, and given back when it is seen to wait for its client.
        served += usize::from(gateway.get("/").await.starts_with("HTTP/1.1 200 "));
        if served == 5 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((served, in_flight()), (5, 0));
    slow.send("lf").await;
    let response = slow.response().await;
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("half"), "{response}");
    assert_eq!(in_flight(), 0);
}
