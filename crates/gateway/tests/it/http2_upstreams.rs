//! Upstreams of HTTP/2: connections that many requests share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::support::{NO_RULES, TestGateway, everything_to, within};

/// A server whose answers a test releases.
struct Held {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    arrived: Arc<Semaphore>,
    answers: Arc<Semaphore>,
}

impl Held {
    /// It allows so many requests at the same time on a connection.
    async fn start(streams: u32) -> Held {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let held = Held {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            open: Arc::default(),
            arrived: Arc::new(Semaphore::new(0)),
            answers: Arc::new(Semaphore::new(0)),
        };
        let (connections, open) = (held.connections.clone(), held.open.clone());
        let (arrived, answers) = (held.arrived.clone(), held.answers.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                open.fetch_add(1, Ordering::Relaxed);
                let (arrived, answers, open) = (arrived.clone(), answers.clone(), open.clone());
                let service = service_fn(move |_: Request<Incoming>| {
                    let (arrived, answers) = (arrived.clone(), answers.clone());
                    async move {
                        arrived.add_permits(1);
                        answers.acquire().await.unwrap().forget();
                        Ok::<_, std::convert::Infallible>(Response::new(Empty::<Bytes>::new()))
                    }
                });
                tokio::spawn(async move {
                    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    builder.max_concurrent_streams(streams);
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        held
    }

    /// Waits until so many further requests have arrived.
    async fn arrived(&self, requests: u32) {
        within(self.arrived.acquire_many(requests)).await.unwrap().forget();
    }

    fn answer(&self, requests: usize) {
        self.answers.add_permits(requests);
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

async fn gateway_to(held: &Held, more: &str) -> Arc<TestGateway> {
    let config = everything_to(&[held.address]).replace("servers:", &format!("protocol: http2, {more}servers:"));
    Arc::new(TestGateway::start(&config, NO_RULES).await)
}

/// Requests at the same time.
fn burst(gateway: &Arc<TestGateway>, requests: usize) -> Vec<tokio::task::JoinHandle<String>> {
    let send = |_| {
        let gateway = gateway.clone();
        tokio::spawn(async move { gateway.get("/").await })
    };
    (0..requests).map(send).collect()
}

async fn all_served(requests: Vec<tokio::task::JoinHandle<String>>) {
    for request in requests {
        let response = within(request).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    }
}

#[tokio::test]
async fn a_cold_burst_shares_one_connection() {
    let held = Held::start(100).await;
    let gateway = gateway_to(&held, "").await;
    let requests = burst(&gateway, 50);
    held.arrived(50).await;
    assert_eq!(held.connections(), 1);
    held.answer(50);
    all_served(requests).await;
}

#[tokio::test]
async fn a_connection_has_as_many_requests_as_its_server_allows() {
    let held = Held::start(4).await;
    let gateway = gateway_to(&held, "").await;
    // The server's settings arrive with the first one.
    let first = burst(&gateway, 1);
    held.arrived(1).await;
    let others = burst(&gateway, 9);
    held.arrived(9).await;
    assert_eq!(held.connections(), 3, "4, 4 and 2 of 10 requests");
    held.answer(10);
    all_served(first).await;
    all_served(others).await;
}

#[tokio::test]
async fn at_the_bound_on_connections_requests_wait_for_streams() {
    let held = Held::start(2).await;
    let gateway = gateway_to(&held, "connections: {most: 1, waiting: 10}, ").await;
    let first = burst(&gateway, 1);
    held.arrived(1).await;
    let others = burst(&gateway, 5);
    held.arrived(1).await;
    held.answer(6);
    all_served(first).await;
    all_served(others).await;
    assert_eq!(held.connections(), 1);
}

#[tokio::test]
async fn an_unused_connection_is_closed() {
    let held = Held::start(100).await;
    let gateway = gateway_to(&held, "connections: {idle: 100ms}, ").await;
    let requests = burst(&gateway, 3);
    held.arrived(3).await;
    // It is used for longer than that.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(held.open.load(Ordering::Relaxed), 1);
    held.answer(3);
    all_served(requests).await;
    for _ in 0..500 {
        if held.open.load(Ordering::Relaxed) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it stays open");
}

#[tokio::test]
async fn a_server_that_refuses_connections_is_tried_by_each_request_once() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let config = everything_to(&[closed])
        .replace("servers:", "protocol: http2, servers:")
        .replace("upstream: app}", "upstream: app, retries: off}");
    let gateway = Arc::new(TestGateway::start(&config, NO_RULES).await);
    for request in burst(&gateway, 20) {
        let response = within(request).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 502 ") && response.contains("connect_failed"), "{response}");
    }
}
