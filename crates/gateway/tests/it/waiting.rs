//! Requests that wait for a connection to a server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};

use crate::support::{NO_RULES, TestGateway, everything_to, within};

/// The most requests at the same time on a connection of HTTP/2.
const MAX_STREAMS: usize = 100;

/// A server of HTTP/2 that reports each request and answers it when it gets a permit.
struct Http2Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    arrivals: mpsc::UnboundedReceiver<()>,
    permits: Arc<Semaphore>,
}

impl Http2Server {
    async fn start() -> Http2Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let (permits, connections) = (Arc::new(Semaphore::new(0)), Arc::<AtomicUsize>::default());
        let (granted, counted) = (permits.clone(), connections.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let (arrived, granted) = (arrived.clone(), granted.clone());
                let service = service_fn(move |_: Request<Incoming>| {
                    let (arrived, granted) = (arrived.clone(), granted.clone());
                    async move {
                        arrived.send(()).unwrap();
                        granted.acquire().await.unwrap().forget();
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok"))))
                    }
                });
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
            }
        });
        Http2Server { address, connections, arrivals, permits }
    }
}

/// With one connection, and time to wait for it.
async fn one_connection(server: &Http2Server) -> Arc<TestGateway> {
    let config = everything_to(&[server.address])
        .replace("servers:", "protocol: http2, connections: {most: 1}, servers:")
        .replace("upstream: app}", "upstream: app, timeouts: {connect: 60s, response: 60s}}");
    Arc::new(TestGateway::start(&config, NO_RULES).await)
}

fn send(gateway: &Arc<TestGateway>) -> tokio::task::JoinHandle<String> {
    let gateway = gateway.clone();
    tokio::spawn(async move {
        let mut raw = gateway.connect().await;
        raw.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        crate::support::read_message(&mut raw.0).await
    })
}

#[tokio::test]
async fn a_stream_that_ends_is_used_by_the_next_request() {
    let mut server = Http2Server::start().await;
    let gateway = one_connection(&server).await;
    let requests: Vec<_> = (0..MAX_STREAMS + 10).map(|_| send(&gateway)).collect();
    for _ in 0..MAX_STREAMS {
        within(server.arrivals.recv()).await.unwrap();
    }
    // Each response makes room for one request.
    for _ in 0..10 {
        assert!(server.arrivals.try_recv().is_err());
        server.permits.add_permits(1);
        within(server.arrivals.recv()).await.unwrap();
    }
    server.permits.add_permits(MAX_STREAMS);
    for request in requests {
        assert!(within(request).await.unwrap().starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_workers_use_the_only_connection() {
    let mut server = Http2Server::start().await;
    let gateway = one_connection(&server).await;
    let requests: Vec<_> = (0..50).map(|_| send(&gateway)).collect();
    for _ in 0..50 {
        within(server.arrivals.recv()).await.unwrap();
    }
    server.permits.add_permits(50);
    for request in requests {
        assert!(within(request).await.unwrap().starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn clients_that_do_not_read_delay_no_others_on_a_connection() {
    const SLOW: usize = 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let sent = Arc::<AtomicUsize>::default();
    let counted = sent.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let counted = counted.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let left = if request.uri().path() == "/slow" { usize::MAX } else { 1 };
                let body = Parts { left, sent: counted.clone() };
                async move { Ok::<_, Infallible>(Response::new(body)) }
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
        }
    });
    let config = everything_to(&[address]).replace("servers:", "protocol: http2, connections: {most: 1}, servers:");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let mut slow = Vec::new();
    for _ in 0..SLOW {
        let mut client = gateway.connect().await;
        client.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
        slow.push(client);
    }
    // Until all buffers are full, and nothing moves any more.
    let (mut last, mut same) = (0, 0);
    while same < 10 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let now = sent.load(Ordering::Relaxed);
        same = if now == last && now > 0 { same + 1 } else { 0 };
        last = now;
    }
    for _ in 0..5 {
        let response = gateway.get("/").await;
        assert!(response.starts_with("HTTP/1.1 200 ") && response.contains("xxx"), "{response}");
    }
    drop(slow);
}

/// A body of so many parts.
struct Parts {
    left: usize,
    sent: Arc<AtomicUsize>,
}

impl http_body::Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        static PART: [u8; 16 * 1024] = [b'x'; 16 * 1024];
        let this = self.get_mut();
        let part = (this.left > 0).then(|| http_body::Frame::data(Bytes::from_static(&PART)));
        this.left = this.left.saturating_sub(1);
        this.sent.fetch_add(1, Ordering::Relaxed);
        std::task::Poll::Ready(part.map(Ok))
    }
}
