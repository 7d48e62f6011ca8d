//! A gateway on a free port, upstreams that a test scripts, and a client that writes raw bytes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tollgate::{Counters, Limiter, MemoryConfig, Ruleset};
use tollgate_gateway::model::GatewayConfig;
use tollgate_gateway::{Gateway, GatewayParts, GatewayPlan};
use tollgate_http::request_target::PathNormalization;
use tollgate_http::response::ResponseStyle;
use tollgate_net::Address;
use tollgate_net::closing::Closer;
use tollgate_net::listener::Listener;
use tollgate_net::workers::{BusyTimes, Endpoint};
use tollgate_telemetry::metrics::Metrics;
use tollgate_wire::Gate;

/// No rule applies.
pub(crate) const NO_RULES: &str = "domain: api\nrules:\n  - {name: none, key: [nobody], limit: 1/s}\n";

/// The longest wait of a test for what should happen at once.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A running gateway.
pub(crate) struct TestGateway {
    pub(crate) address: SocketAddr,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) limiter: Arc<Limiter<Counters>>,
    closer: Closer,
    ended: mpsc::Receiver<()>,
}

impl TestGateway {
    /// Starts a gateway with this configuration, and rules of the domain `api`.
    pub(crate) async fn start(config: &str, rules: &str) -> TestGateway {
        let (rules, _) = Ruleset::from_text(rules, 1).unwrap();
        let limiter = Arc::new(Limiter::new(rules, Counters::Memory(MemoryConfig::default().build())));
        let gate = Gate::new(limiter.clone(), false, 10_000, Metrics::new().wire("gateway"));
        let style = ResponseStyle::default();
        let (normalization, workers) = (PathNormalization::default(), BusyTimes::default());
        let parts = GatewayParts { gate: Arc::new(gate), style, normalization, workers };
        let plan = plan(config, None);
        plan.load_keys().await;
        let gateway = Arc::new(Gateway::new(parts, plan));
        tokio::spawn(gateway.clone().run());
        let listener = Listener::bind(&"127.0.0.1:0".parse::<Address>().unwrap()).unwrap().unwrap();
        let address = listener.to_string().parse().unwrap();
        let endpoint = Endpoint {
            listener,
            wire: gateway.clone(),
            tls: None,
            max_connections: 20_000,
            share: None,
            metrics: Metrics::new().listener("gateway"),
        };
        let (closer, closing) = Closer::new();
        let (alive, ended) = mpsc::channel(1);
        tokio::spawn(endpoint.run(None, closing, alive));
        TestGateway { address, gateway, limiter, closer, ended }
    }

    /// A gateway that forwards everything to these servers.
    pub(crate) async fn to(servers: &[SocketAddr]) -> TestGateway {
        TestGateway::start(&everything_to(servers), NO_RULES).await
    }

    /// Puts another configuration in force.
    pub(crate) async fn reload(&self, config: &str) {
        let plan = plan(config, Some(&self.gateway.plan()));
        plan.load_keys().await;
        self.gateway.install(plan);
    }

    /// Stops accepting, and waits for all connections.
    pub(crate) async fn stop(mut self) {
        self.closer.close();
        within(self.ended.recv()).await;
    }

    pub(crate) async fn connect(&self) -> Raw {
        Raw(TcpStream::connect(self.address).await.unwrap())
    }

    /// The response to one request on a connection of its own, as text.
    pub(crate) async fn request(&self, request: &str) -> String {
        let mut raw = self.connect().await;
        raw.send(request).await;
        raw.response().await
    }

    /// The same for a GET.
    pub(crate) async fn get(&self, path: &str) -> String {
        self.request(&format!("GET {path} HTTP/1.1\r\nHost: api\r\n\r\n")).await
    }
}

/// A configuration with one route.
pub(crate) fn everything_to(servers: &[SocketAddr]) -> String {
    let servers = servers.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "listen: [{{address: 127.0.0.1:8000}}]\nupstreams:\n  app: {{servers: [{servers}]}}\nroutes:\n  - {{name: all, match: {{path: /*}}, upstream: app}}\n"
    )
}

/// An HTTP/2 connection to a gateway.
pub(crate) async fn http2<B>(gateway: &TestGateway) -> hyper::client::conn::http2::SendRequest<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    sender
}

fn plan(config: &str, before: Option<&GatewayPlan>) -> GatewayPlan {
    let read = GatewayConfig::read("gateway.yaml", config, Path::new("")).unwrap_or_else(|problems| {
        panic!("{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    });
    GatewayPlan::new(read.config, before).unwrap()
}

/// Fails if something takes too long.
#[track_caller]
pub(crate) fn within<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let at = std::panic::Location::caller();
    async move { tokio::time::timeout(SOON, future).await.unwrap_or_else(|_| panic!("{at}: took too long")) }
}

/// A client's connection.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// A response with `Content-Length`, chunks or neither body nor length.
    pub(crate) async fn response(&mut self) -> String {
        within(read_message(&mut self.0)).await
    }

    /// Everything until the connection is closed.
    pub(crate) async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        within(async {
            // A reset ends it as well.
            let _ = self.0.read_to_end(&mut bytes).await;
        })
        .await;
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Reads a request or response with its body. What is incomplete is returned as far as it came.
pub(crate) async fn read_message(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0; 1];
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte).await {
            Ok(1) => bytes.push(byte[0]),
            _ => return String::from_utf8_lossy(&bytes).into_owned(),
        }
    }
    let head = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name).map(str::trim).map(str::to_owned));
    if let Some(length) = field("content-length:").and_then(|length| length.parse::<usize>().ok()) {
        let mut body = vec![0; length];
        let mut read = 0;
        while read < length {
            match stream.read(&mut body[read..]).await {
                Ok(count @ 1..) => read += count,
                _ => break,
            }
        }
        bytes.extend_from_slice(&body[..read]);
    } else if field("transfer-encoding:").is_some() {
        while !bytes.ends_with(b"0\r\n\r\n") {
            match stream.read(&mut byte).await {
                Ok(1) => bytes.push(byte[0]),
                _ => break,
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An upstream that is scripted byte by byte: the function gets each connection and its number.
pub(crate) async fn scripted<F>(script: impl Fn(TcpStream, usize) -> F + Send + Sync + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((stream, _)) = listener.accept().await else { return };
            tokio::spawn(script(stream, number));
        }
    });
    address
}

/// An application that describes each request in its response: the request line, its headers in lower case, sorted, an
/// empty line, and the body.
pub(crate) struct App {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Mutex<Vec<String>>>,
    trailers: Arc<Mutex<Vec<Vec<String>>>>,
}

impl App {
    pub(crate) async fn start() -> App {
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let trailers = Arc::<Mutex<Vec<Vec<String>>>>::default();
        let (requests, ends) = (seen.clone(), trailers.clone());
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (requests, ends) = (requests.clone(), ends.clone());
                let service = service_fn(move |request| describe(requests.clone(), ends.clone(), request));
                tokio::spawn(async move {
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        App { address, seen, trailers }
    }

    /// The names of the trailers of each request that had some.
    pub(crate) fn trailers(&self) -> Vec<Vec<String>> {
        self.trailers.lock().unwrap().clone()
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

async fn describe(
    seen: Arc<Mutex<Vec<String>>>,
    trailers: Arc<Mutex<Vec<Vec<String>>>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = match body.collect().await {
        Ok(body) => {
            let names = body.trailers().map(|fields| fields.keys().map(ToString::to_string).collect());
            trailers.lock().unwrap().extend(names);
            body.to_bytes()
        }
        Err(_) => Bytes::new(),
    };
    let mut lines: Vec<String> = head
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    lines.sort();
    let text = format!(
        "{} {} {:?}\n{}\n\n{}",
        head.method,
        head.uri,
        head.version,
        lines.join("\n"),
        String::from_utf8_lossy(&body)
    );
    seen.lock().unwrap().push(text.clone());
    let status = head.headers.get("x-status").and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(200);
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
    Ok(response)
}

/// A body of these frames.
pub(crate) struct Frames(pub(crate) VecDeque<Frame<Bytes>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.get_mut().0.pop_front().map(Ok))
    }
}
