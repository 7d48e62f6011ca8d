//! HTTP/1.1 with JSON: checks and settlements, checks by headers for proxies, explanations, the status of a caller,
//! health.
//!
//! Plain checks are read and answered here (`plain`). Of everything else, the three hot paths are served on hyper
//! directly; axum routes the others, and rejects other methods on the hot paths.

mod authorize;
mod browsers;
mod check;
mod check_request;
#[cfg(test)]
mod description;
pub mod explain;
mod health;
mod json_body;
mod once;
#[cfg(any(test, feature = "openapi"))]
mod openapi;
mod plain;
mod prepared;
mod problem;
mod settings;
mod settle;
mod status;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::routing::{get, post};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tollgate_http::problem::Problem;
use tollgate_http::request_target::PathNormalization;
use tollgate_http::response::ResponseStyle;
use tower::ServiceExt;

use crate::access::AccessControl;
use crate::gate::Gate;
use crate::receipts::Receipts;
pub use browsers::HostSettings;
use plain::{PlainConnection, PlainEnd, Rewound};
use problem::ProblemResponse;
pub use settings::{AttributeSource, AuthorizeAttribute, AuthorizeSettings, HttpTimeouts};
pub use status::caller_limits;
use tollgate_net::{Closing, Slot, Stream};
use tollgate_store::SystemClock;
use tollgate_telemetry::Health;

/// The parts of the HTTP wire.
pub struct HttpConfig {
    pub gate: Arc<Gate>,
    pub receipts: Arc<Receipts>,
    pub health: Arc<Health>,
    pub style: ResponseStyle,
    pub authorize: AuthorizeSettings,
    /// Which spellings of paths and methods are the same to rules.
    pub normalization: PathNormalization,
    pub timeouts: HttpTimeouts,
    /// The hosts that web pages can't imitate.
    pub hosts: HostSettings,
    /// Decides who may check; `None`: every client of the listener.
    pub access: Option<Arc<dyn AccessControl>>,
    /// Additional routes.
    pub extra: Option<Router>,
}

/// Serves HTTP connections.
#[derive(Debug)]
pub struct Http {
    state: Arc<HttpState>,
    hosts: HostSettings,
    access: Option<Arc<dyn AccessControl>>,
    router: Router,
}

/// The state that endpoints share.
#[derive(Debug)]
struct HttpState {
    gate: Arc<Gate>,
    receipts: Arc<Receipts>,
    health: Arc<Health>,
    style: ResponseStyle,
    authorize: AuthorizeSettings,
    normalization: PathNormalization,
    timeouts: HttpTimeouts,
    /// For `Date`.
    clock: SystemClock,
}

type HttpResponse = Response<Either<Full<Bytes>, axum::body::Body>>;

const CHECK: &str = "/v1/ratelimit/check";
const SETTLE: &str = "/v1/ratelimit/settle";
const AUTHORIZE: &str = "/v1/ratelimit/authorize";

/// The paths that never require a token: probes have none, and the description is public.
const PUBLIC_PATHS: [&str; 4] = ["/healthcheck", "/livez", "/readyz", "/openapi.json"];

/// The maximum length of a request's head; longer ones get 431. Proxies forward the heads of their clients: nginx 32 KiB
/// by default, Envoy 60 KiB.
const MAX_HEAD_BYTES: usize = 128 * 1024;
/// The maximum number of headers; more get 431.
const MAX_HEADERS: usize = 1_024;
/// The largest part of a request that a connection buffers.
const MAX_BUFFER_BYTES: usize = 128 * 1024;

impl HttpConfig {
    pub fn build(self) -> Arc<Http> {
        let HttpConfig { gate, receipts, health, style, authorize, normalization, timeouts, hosts, access, extra } =
            self;
        let clock = SystemClock::default();
        let state = Arc::new(HttpState { gate, receipts, health, style, authorize, normalization, timeouts, clock });
        let mut router = Router::new()
            .route(CHECK, post(check::handle))
            .route(SETTLE, post(settle::handle))
            .route("/v1/ratelimit/explain", post(explain::handle))
            .route("/v1/ratelimit/status/{entity}", get(status::handle))
            .route(AUTHORIZE, get(authorize::handle).post(authorize::handle))
            .route("/healthcheck", get(health::healthcheck))
            .route("/livez", get(health::livez))
            .route("/readyz", get(health::readyz))
            .with_state(Arc::clone(&state));
        #[cfg(any(test, feature = "openapi"))]
        {
            let document = Bytes::from(openapi::document(access.is_some()));
            let document = get(async move || ([(http::header::CONTENT_TYPE, "application/json")], document.clone()));
            router = router.route("/openapi.json", document);
        }
        if let Some(extra) = extra {
            router = router.merge(extra);
        }
        let router = router.method_not_allowed_fallback(wrong_method).fallback(unknown_path);
        Arc::new(Http { state, hosts, access, router })
    }
}

impl Http {
    /// Serves one connection until it ends, is idle for too long, or the server stops.
    pub async fn serve(self: Arc<Http>, mut stream: Stream, mut closing: Closing, slot: Arc<Slot>) {
        let requests = AtomicU64::new(0);
        let begin = || {
            if requests.fetch_add(1, Ordering::Relaxed) == 0 {
                slot.begin();
            }
        };
        let mut idle = pin!(idle_timeout(&requests, self.state.timeouts));
        let mut before = Bytes::new();
        // On a store that waits, hyper notices clients that go away meanwhile.
        if !self.state.gate.waits() {
            let plain = PlainConnection::new(&self);
            match plain.serve(&mut stream, &mut closing, idle.as_mut(), begin).await {
                PlainEnd::Closed => return,
                PlainEnd::Other(received) => before = received,
            }
        }
        // Boxed, so that connections with plain requests only take less memory.
        Box::pin(self.serve_any(Rewound::new(before, stream), closing, idle, begin)).await;
    }

    /// Serves all kinds of requests until the connection ends, is idle for too long, or the server stops.
    async fn serve_any(
        &self,
        stream: Rewound,
        mut closing: Closing,
        mut idle: Pin<&mut impl Future<Output = ()>>,
        begin: impl Fn(),
    ) {
        let service = service_fn(|request| {
            begin();
            async move { Ok::<_, Infallible>(self.respond(request).await) }
        });
        let mut connection = pin!(
            http1::Builder::new()
                // Idle connections are detected below: a timer per request would cost more than a check.
                .header_read_timeout(None)
                .max_header_size(MAX_HEAD_BYTES)
                .max_headers(MAX_HEADERS)
                .max_buf_size(MAX_BUFFER_BYTES)
                // Responses are short: one buffer is cheaper than two.
                .writev(false)
                .serve_connection(TokioIo::new(stream), service)
        );
        let mut stopping = false;
        loop {
            tokio::select! {
                biased;
                // Before the connection, so that the pending response announces that it is the last.
                () = closing.begun(), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                // A connection that fails is the client's problem.
                _ = connection.as_mut() => return,
                () = idle.as_mut() => return,
            }
        }
    }

    /// The response to a client that may not send this request.
    fn refuse_client(&self, path: &str, headers: &HeaderMap) -> Option<Response<Full<Bytes>>> {
        let problem = match &self.access {
            Some(access) if !is_authorized(&**access, path, headers) => problem::no_token(),
            _ if self.hosts.refuses(path, headers) => problem::web_page(),
            _ => return None,
        };
        self.state.gate.metrics().refused_request();
        Some(problem.into_response())
    }

    async fn respond(&self, request: Request<Incoming>) -> HttpResponse {
        if let Some(refusal) = self.refuse_client(request.uri().path(), request.headers()) {
            return refusal.map(Either::Left);
        }
        match (request.method(), request.uri().path()) {
            (&Method::POST, CHECK) => {
                let (head, body) = request.into_parts();
                check::serve(&self.state, &head.headers, body).await.map(Either::Left)
            }
            (&Method::POST, SETTLE) => {
                let (head, body) = request.into_parts();
                settle::serve(&self.state, &head.headers, body).await.map(Either::Left)
            }
            (&Method::GET | &Method::HEAD | &Method::POST, AUTHORIZE) => {
                authorize::serve(&self.state, request.headers()).await.map(Either::Left)
            }
            _ => match self.router.clone().oneshot(request).await {
                Ok(mut response) => {
                    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
                    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
                    response.map(Either::Right)
                }
                Err(never) => match never {},
            },
        }
    }
}

/// Whether a request may be served, if tokens are required.
fn is_authorized(access: &dyn AccessControl, path: &str, headers: &HeaderMap) -> bool {
    match path {
        path if PUBLIC_PATHS.contains(&path) => true,
        // Its headers, including `Authorization`, are those of the original request.
        AUTHORIZE => access.may_check_by_own_header(headers),
        _ => access.may_check(headers),
    }
}

/// Ends when no request has begun for a whole period. So incomplete heads, unread responses and idle connections have
/// one bound.
async fn idle_timeout(requests: &AtomicU64, timeouts: HttpTimeouts) {
    let mut last = None;
    loop {
        let count = requests.load(Ordering::Relaxed);
        if last == Some(count) {
            return;
        }
        last = Some(count);
        tokio::time::sleep(timeouts.idle).await;
    }
}

async fn wrong_method(method: Method, uri: http::Uri) -> ProblemResponse {
    let detail = format!("{} does not accept {method}; the Allow header lists the methods", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", detail).into()
}

async fn unknown_path(uri: http::Uri) -> ProblemResponse {
    let path = tollgate_http::response::truncate(uri.path(), 256);
    let detail = format!("there is nothing at {path}; /openapi.json lists the paths");
    Problem::new(StatusCode::NOT_FOUND, "unknown_path", detail).into()
}

impl tollgate_net::workers::Wire for Http {
    fn serve(
        self: Arc<Self>,
        stream: Stream,
        closing: Closing,
        slot: Arc<Slot>,
    ) -> tollgate_net::workers::ConnectionFuture {
        Box::pin(Http::serve(self, stream, closing, slot))
    }
}
