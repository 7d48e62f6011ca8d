//! Servers of HTTP/2 that do not process a request, and say so: it is sent again, whatever its method.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use http::{Request, Response};
use http_body::Frame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::support::{Frames, NO_RULES, TestGateway, everything_to, http2, scripted, within};

const REQUESTS: usize = 60;

/// How often each request was handled, by its path.
#[derive(Clone, Default)]
struct Handled(Arc<Mutex<HashMap<String, usize>>>);

impl Handled {
    /// Counts a request, and returns how often it has come.
    fn count(&self, path: &str) -> usize {
        let mut handled = self.0.lock().unwrap();
        let count = handled.entry(path.to_owned()).or_default();
        *count += 1;
        *count
    }

    fn assert_each_once(&self) {
        let handled = self.0.lock().unwrap();
        assert_eq!(handled.len(), REQUESTS);
        assert!(handled.values().all(|count| *count == 1), "{handled:?}");
    }
}

/// A gateway that ejects a server at its first failure.
async fn gateway_to(server: SocketAddr) -> TestGateway {
    let strict = "protocol: http2, eject: {failures: 1, for: 60s, most: 100%}, servers:";
    TestGateway::start(&everything_to(&[server]).replace("servers:", strict), NO_RULES).await
}

fn answer(mut respond: SendResponse<Bytes>) {
    respond.send_response(Response::new(()), true).unwrap();
}

/// Sends POSTs with bodies over either version, which all succeed, and calls `between` after each.
async fn all_are_served(gateway: &TestGateway, between: impl AsyncFn()) {
    let mut sender = http2(gateway).await;
    for number in 0..REQUESTS {
        if number % 2 == 0 {
            let request = format!("POST /{number} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab");
            let response = gateway.request(&request).await;
            assert!(response.starts_with("HTTP/1.1 200 "), "{number}: {response}");
        } else {
            let body = Frames(VecDeque::from([Frame::data(Bytes::from_static(b"ab"))]));
            let request = Request::post(format!("http://x/{number}")).body(body).unwrap();
            let response = within(sender.send_request(request)).await.unwrap();
            assert_eq!(response.status(), 200, "{number}: {response:?}");
        }
        between().await;
    }
    let status = gateway.gateway.status();
    assert!(!status.upstreams[0].servers[0].is_ejected, "it has not failed");
}

#[tokio::test]
async fn a_refused_stream_is_sent_again() {
    let (refused, handled) = (Handled::default(), Handled::default());
    let (before, counted) = (refused.clone(), handled.clone());
    let server = scripted(move |stream, _| {
        let (before, counted) = (before.clone(), counted.clone());
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                match before.count(request.uri().path()) {
                    1 => respond.send_reset(Reason::REFUSED_STREAM),
                    _ => {
                        counted.count(request.uri().path());
                        answer(respond);
                    }
                }
            }
        }
    })
    .await;
    all_are_served(&gateway_to(server).await, async || {}).await;
    handled.assert_each_once();
}

#[tokio::test]
async fn a_server_that_refuses_every_stream_gets_a_request_a_few_times() {
    let refused = Handled::default();
    let counted = refused.clone();
    let server = scripted(move |stream, _| {
        let counted = counted.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                counted.count(request.uri().path());
                respond.send_reset(Reason::REFUSED_STREAM);
            }
        }
    })
    .await;
    let response = gateway_to(server).await.request("POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 503 ") && response.contains("no_server"), "{response}");
    assert_eq!(refused.count("/1"), 6, "five, and this");
}

#[tokio::test]
async fn a_stream_after_the_last_of_a_goaway_is_sent_again() {
    let handled = Handled::default();
    let counted = handled.clone();
    // Every other connection says that it has processed nothing.
    let server = scripted(move |stream, number| {
        let counted = counted.clone();
        async move {
            if number % 2 == 0 {
                return go_away(stream).await;
            }
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, respond))) = connection.accept().await {
                counted.count(request.uri().path());
                answer(respond);
                connection.graceful_shutdown();
            }
        }
    })
    .await;
    all_are_served(&gateway_to(server).await, async || {}).await;
    handled.assert_each_once();
}

/// Reads up to the head of a request, and answers with GOAWAY and stream 0 as the last.
async fn go_away(mut stream: TcpStream) {
    const HEADERS: u8 = 1;
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    stream.write_all(&settings).await.unwrap();
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let [high, middle, low, kind, ..] = head;
        let mut payload = vec![0; usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low)];
        stream.read_exact(&mut payload).await.unwrap();
        if kind == HEADERS {
            break;
        }
    }
    let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    stream.write_all(&goaway).await.unwrap();
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

#[tokio::test]
async fn a_request_that_finds_its_connection_closed_is_sent_on_another() {
    let handled = Handled::default();
    let (close, closed) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (counted, end, ended) = (handled.clone(), close.clone(), closed.clone());
    // It closes without a word, once it is not used.
    let server = scripted(move |stream, _| {
        let (counted, end, ended) = (counted.clone(), end.clone(), ended.clone());
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            loop {
                tokio::select! {
                    accepted = connection.accept() => {
                        let Some(Ok((request, respond))) = accepted else { return };
                        counted.count(request.uri().path());
                        answer(respond);
                    }
                    used = end.acquire() => {
                        used.unwrap().forget();
                        break;
                    }
                }
            }
            drop(connection);
            ended.add_permits(1);
        }
    })
    .await;
    let gateway = gateway_to(server).await;
    let between = async || {
        close.add_permits(1);
        within(closed.acquire()).await.unwrap().forget();
    };
    all_are_served(&gateway, between).await;
    handled.assert_each_once();
}
