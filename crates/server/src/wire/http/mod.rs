//! HTTP/1.1 with JSON: checks and how they ended, what proxies ask with a request's headers, explanations, how a caller stands,
//! health.
//!
//! The three paths that every request of somebody's traffic takes are served on hyper itself; axum routes the others.

mod asked;
mod authorize;
mod body;
mod check;
pub(crate) mod explain;
mod health;
mod once;
mod openapi;
mod problem;
mod settings;
mod settle;
mod status;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::routing::{get, post};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tollgate::told::Told;
use tower::ServiceExt;

use crate::gate::Gate;
use crate::health::Health;
use crate::net::{Closing, Stream};
use crate::receipts::Receipts;
use crate::tokens::Keys;
use problem::Problem;
pub(crate) use settings::{AttributeSource, AuthorizeAttribute, AuthorizeSettings, Times};

/// What this wire is made of.
pub(crate) struct HttpConfig {
    pub(crate) gate: Arc<Gate>,
    pub(crate) receipts: Arc<Receipts>,
    pub(crate) health: Arc<Health>,
    pub(crate) told: Told,
    pub(crate) authorize: AuthorizeSettings,
    pub(crate) times: Times,
    /// Who may check; `None`: whoever can reach the listener.
    pub(crate) keys: Option<Arc<Keys>>,
    /// Routes that others bring.
    pub(crate) extra: Option<Router>,
    /// What those say in `/openapi.json`.
    pub(crate) extra_docs: Option<utoipa::openapi::OpenApi>,
}

/// Serves HTTP connections.
#[derive(Debug)]
pub(crate) struct Http {
    wire: Arc<Wire>,
    keys: Option<Arc<Keys>>,
    router: Router,
}

/// What every endpoint may need.
#[derive(Debug)]
struct Wire {
    gate: Arc<Gate>,
    receipts: Arc<Receipts>,
    health: Arc<Health>,
    told: Told,
    authorize: AuthorizeSettings,
    times: Times,
}

type Answer = Response<Either<Full<Bytes>, axum::body::Body>>;

const CHECK: &str = "/v1/ratelimit/check";
const SETTLE: &str = "/v1/ratelimit/settle";
const AUTHORIZE: &str = "/v1/ratelimit/authorize";

/// What needs no token, whatever the others need: probes have none, and the description says nothing of anybody.
const OPEN: [&str; 4] = ["/healthcheck", "/livez", "/readyz", "/openapi.json"];

/// The longest head of a request; past it the client is told so (431). Of headers there may be a hundred, hyper's own bound.
const MOST_HEAD_BYTES: usize = 32 * 1024;
/// The most of a request that a connection holds at a time.
const MOST_BUFFERED: usize = 64 * 1024;

impl HttpConfig {
    pub(crate) fn build(self) -> Arc<Http> {
        let HttpConfig { gate, receipts, health, told, authorize, times, keys, extra, extra_docs } = self;
        let wire = Arc::new(Wire { gate, receipts, health, told, authorize, times });
        let document = Bytes::from(openapi::document(extra_docs, keys.is_some()));
        let document = get(async move || ([(header::CONTENT_TYPE, "application/json")], document.clone()));
        let mut router = Router::new()
            .route(CHECK, post(check::handle))
            .route(SETTLE, post(settle::handle))
            .route("/v1/ratelimit/explain", post(explain::handle))
            .route("/v1/ratelimit/status/{entity}", get(status::handle))
            .route("/openapi.json", document)
            .route(AUTHORIZE, get(authorize::handle).post(authorize::handle))
            .route("/healthcheck", get(health::healthcheck))
            .route("/livez", get(health::livez))
            .route("/readyz", get(health::readyz))
            .with_state(Arc::clone(&wire));
        if let Some(extra) = extra {
            router = router.merge(extra);
        }
        let router = router.method_not_allowed_fallback(wrong_method).fallback(unknown_path);
        Arc::new(Http { wire, keys, router })
    }
}

impl Http {
    /// Serves one connection until it ends, the server is about to stop, or nothing comes for too long.
    pub(crate) async fn serve(self: Arc<Http>, stream: Stream, mut closing: Closing) {
        let requests = AtomicU64::new(0);
        let http = &*self;
        let service = service_fn(|request| {
            requests.fetch_add(1, Ordering::Relaxed);
            async move { Ok::<_, Infallible>(http.answer(request).await) }
        });
        let mut connection = pin!(
            http1::Builder::new()
                // Requests are watched as a whole below: a timer for each of them would cost more than a check.
                .header_read_timeout(None)
                .max_header_size(MOST_HEAD_BYTES)
                .max_buf_size(MOST_BUFFERED)
                // Answers are short: one buffer is cheaper than two.
                .writev(false)
                .serve_connection(TokioIo::new(stream), service)
        );
        let mut quiet = pin!(quiet(&requests, http.wire.times));
        let mut stopping = false;
        loop {
            tokio::select! {
                biased;
                // Before the connection, so that the answer that it is about to give says that it is the last.
                () = closing.begun(), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                // A connection that breaks is the client's affair.
                _ = connection.as_mut() => return,
                () = quiet.as_mut() => return,
            }
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if let Some(keys) = &self.keys
            && !is_let_in(keys, request.uri().path(), request.headers())
        {
            self.wire.gate.metrics().refused_request();
            return Problem::no_token().into_answer().map(Either::Left);
        }
        match (request.method(), request.uri().path()) {
            (&Method::POST, CHECK) => {
                let (head, body) = request.into_parts();
                check::answer(&self.wire, &head.headers, body).await.map(Either::Left)
            }
            (&Method::POST, SETTLE) => {
                let (head, body) = request.into_parts();
                settle::answer(&self.wire, &head.headers, body).await.map(Either::Left)
            }
            (&Method::GET | &Method::HEAD | &Method::POST, AUTHORIZE) => {
                authorize::answer(&self.wire, request.headers()).await.map(Either::Left)
            }
            _ => match self.router.clone().oneshot(request).await {
                Ok(response) => response.map(Either::Right),
                Err(never) => match never {},
            },
        }
    }
}

/// Whether a request may be answered where tokens are needed.
fn is_let_in(keys: &Keys, path: &str, headers: &HeaderMap) -> bool {
    match path {
        path if OPEN.contains(&path) => true,
        // Its headers are those of somebody else's request, `Authorization` among them.
        AUTHORIZE => keys.may_check_by_own_header(headers),
        _ => keys.may_check(headers),
    }
}

/// Ends when no request has begun for a whole while. So heads that never end, answers that nobody reads and idle connections
/// have one bound.
async fn quiet(requests: &AtomicU64, times: Times) {
    let mut seen = None;
    loop {
        let count = requests.load(Ordering::Relaxed);
        if seen == Some(count) {
            return;
        }
        seen = Some(count);
        tokio::time::sleep(times.idle).await;
    }
}

async fn wrong_method(method: Method, uri: http::Uri) -> Problem {
    let detail = format!("{} is not asked by {method}; the Allow header says how", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", detail)
}

async fn unknown_path(uri: http::Uri) -> Problem {
    let path = tollgate::told::beginning(uri.path(), 256);
    let detail = format!("there is nothing at {path}; /openapi.json says what there is");
    Problem::new(StatusCode::NOT_FOUND, "unknown_path", detail)
}

impl crate::net::workers::Wire for Http {
    fn serve(self: Arc<Self>, stream: Stream, closing: Closing) -> crate::net::workers::Serving {
        Box::pin(Http::serve(self, stream, closing))
    }
}
