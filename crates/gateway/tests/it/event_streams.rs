//! Many streams of events at the same time, and streams whose client leaves.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::support::{NO_RULES, TestGateway, everything_to, read_message, scripted, within};

const STREAMS: usize = 1_000;
const EVENTS: usize = 3;

/// An upstream that sends event `n` of each stream when `n` events are allowed.
struct EventSource {
    address: SocketAddr,
    allowed: watch::Sender<usize>,
}

/// The body of a stream.
struct Events(mpsc::Receiver<Bytes>);

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.get_mut().0.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

impl EventSource {
    async fn start() -> EventSource {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (allowed, receiver) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let receiver = receiver.clone();
                let service = service_fn(move |_: Request<Incoming>| {
                    let body = events(receiver.clone());
                    let response = Response::builder().header("content-type", "text/event-stream").body(body);
                    async move { Ok::<_, Infallible>(response.unwrap()) }
                });
                tokio::spawn(async move {
                    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    builder.http2().max_concurrent_streams(1_000);
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        EventSource { address, allowed }
    }
}

fn events(mut allowed: watch::Receiver<usize>) -> Events {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        for number in 1..=EVENTS {
            let is_allowed = allowed.wait_for(|allowed| *allowed >= number).await.is_ok();
            if !is_allowed || sender.send(format!("data: {number}\n\n").into()).await.is_err() {
                return;
            }
        }
    });
    Events(receiver)
}

/// Opens the streams, and reads event after event: the next is sent when all have the one before.
async fn read_all(source: EventSource, mut streams: Vec<Incoming>) {
    for number in 1..=EVENTS {
        source.allowed.send(number).unwrap();
        let expected = format!("data: {number}\n\n");
        for stream in &mut streams {
            // A batch would have nothing yet, or more than one event.
            let frame = within(stream.frame()).await.unwrap().unwrap();
            assert_eq!(frame.data_ref().map(|data| &data[..]), Some(expected.as_bytes()));
        }
    }
    for stream in streams {
        assert!(within(stream.collect()).await.unwrap().to_bytes().is_empty());
    }
}

#[tokio::test]
async fn a_thousand_streams_get_each_event_when_it_is_sent() {
    let source = EventSource::start().await;
    let config = everything_to(&[source.address]).replace("servers:", "protocol: http2, servers:");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let mut streams = Vec::new();
    // Few connections, so that few descriptors are needed: 100 streams on each.
    for _ in 0..STREAMS / 100 {
        let io = TokioIo::new(TcpStream::connect(gateway.address).await.unwrap());
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..100 {
            let request = Request::get("http://x/events").body(Empty::<Bytes>::new()).unwrap();
            let response = within(sender.clone().send_request(request)).await.unwrap();
            assert_eq!(response.status(), 200);
            streams.push(response.into_body());
        }
    }
    read_all(source, streams).await;
}

#[tokio::test]
#[ignore = "needs 4,000 descriptors (ulimit -n); `make test-long` runs it"]
async fn a_thousand_streams_on_connections_of_their_own() {
    let source = EventSource::start().await;
    let config = everything_to(&[source.address]).replace("servers:", "connections: {most: 2000}, servers:");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let io = TokioIo::new(TcpStream::connect(gateway.address).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get("/events").header("host", "x").body(Empty::<Bytes>::new()).unwrap();
        streams.push(within(sender.send_request(request)).await.unwrap().into_body());
    }
    read_all(source, streams).await;
}

const TOKENS: &str = "
domain: api
entity: api_key
rules:
  - {name: tokens, key: [api_key], limit: 1000/year, cost: tokens, settle: true, hold: 10m, algorithm: token_bucket}
";

#[tokio::test]
async fn a_client_that_leaves_a_stream_pays_once_for_what_it_saw() {
    let closed = Arc::<AtomicUsize>::default();
    let counted = closed.clone();
    let upstream = scripted(move |mut stream, _| {
        let counted = counted.clone();
        async move {
            read_message(&mut stream).await;
            let event = "data: {\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":30,\"total_tokens\":50}}\n\n";
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
            let chunk = format!("{head}{:x}\r\n{event}\r\n", event.len());
            stream.write_all(chunk.as_bytes()).await.unwrap();
            // Ends when the gateway closes the connection.
            assert!(matches!(stream.read(&mut [0; 1]).await, Ok(0) | Err(_)));
            counted.fetch_add(1, Ordering::Relaxed);
        }
    })
    .await;
    let cost = "cost: {tokens: {reserve: \"header:X-Max\", else: 1, settle: llm}}";
    let config = everything_to(&[upstream])
        .replace("upstreams:", "attributes:\n  api_key: {header: X-Api-Key}\nupstreams:")
        .replace("upstream: app}", &format!("upstream: app, {cost}}}"));
    let gateway = TestGateway::start(&config, TOKENS).await;
    let mut client = gateway.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: x\r\nX-Api-Key: k\r\nX-Max: 400\r\nContent-Length: 0\r\n\r\n").await;
    let mut text = String::new();
    while !text.contains("total_tokens") {
        let mut buffer = [0; 4096];
        let read = within(client.0.read(&mut buffer)).await.unwrap();
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    drop(client);
    within(async {
        while closed.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // The end of the stream is settled soon, and once.
    let is_settled = async || {
        let counters = gateway.limiter.peek(None, None, "k", &[]).await.unwrap().unwrap().counters;
        counters[0].1.reading.remaining == 950
    };
    within(async {
        while !is_settled().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for _ in 0..20 {
        assert!(is_settled().await);
    }
}
