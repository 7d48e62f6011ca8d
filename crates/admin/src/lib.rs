//! The control plane of a server: the admin API and the dashboard, access control, rule sources, the follower of the store of record,
//! the decision log, and what a server observes of its own decisions.

#![allow(missing_docs, reason = "internal to the server")]

// The annotations of handlers and bodies describe them in the OpenAPI document, which only tests generate.
#[cfg(not(test))]
extern crate tollgate_openapi_stub as utoipa;

mod api;
pub mod auth;
pub mod bans;
mod dashboard;
pub mod data_dir;
pub mod decisions;
pub mod events;
pub mod gateway;
pub mod guardrails;
pub mod metrics;
pub mod observe;
mod plan;
mod problem;
pub mod rule_source;
mod rules;
pub mod scopes;
pub mod store_of_record;
pub mod tokens;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::StatusCode;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::body::Incoming;
use hyper::service::service_fn;
use tower::ServiceExt as _;
use tracing::debug;

use crate::guardrails::Guardrails;
use crate::observe::Observability;
use crate::store_of_record::ControlPlane;
use api::observability::AdminState;
use auth::{Auth, ClientPeer};
use tollgate_events::Subscriptions;
use tollgate_gateway::Gateway;
use tollgate_net::http1::{Http1Settings, serve_http1};
use tollgate_net::{Closing, Slot, Stream};
use tollgate_telemetry::Health;
use tollgate_telemetry::metrics::{Exposition, Metrics};
use tollgate_wire::health::{self, HealthAudience};

/// The service of the admin listener.
#[derive(Debug)]
pub struct Admin {
    router: Router,
}

/// What the admin listener shows and changes.
pub struct AdminParts {
    pub metrics: Arc<Metrics>,
    pub health: Arc<Health>,
    pub control: Arc<ControlPlane>,
    pub auth: Arc<Auth>,
    pub observability: Arc<Observability>,
    pub gateway: Option<Arc<Gateway>>,
    /// Where events are sent.
    pub sinks: Arc<Subscriptions>,
    pub guardrails: Arc<Guardrails>,
}

/// Whether the dashboard is in this binary.
pub fn has_dashboard() -> bool {
    dashboard::is_built()
}

/// The list of pages.
const PAGES: &str = "\
Tollgate

/                  the dashboard, for browsers
/pages             this list
/metrics           metrics for Prometheus
/livez             liveness
/readyz            readiness, and what is degraded
/healthcheck       the same as /readyz
/admin/v1/domains  the domains in force, as JSON (?offset=0&limit=100)
/admin/v1/rules    the rules in force, as JSON (?domain=NAME&offset=0&limit=100)
/rlconfig          the limits in force, as text
";
const OPENAPI_PAGE: &str = "/admin/openapi.json  the OpenAPI document of the admin API\n";

/// Few clients connect here, and scrapers come every minute or so.
const SETTINGS: Http1Settings = Http1Settings {
    first_head_timeout: Duration::from_secs(10),
    head_timeout: Duration::from_secs(120),
    max_head_bytes: 16 * 1024,
    max_age: Duration::from_secs(60 * 60),
    drain_timeout: Duration::from_secs(5),
};

impl Admin {
    /// Pages for scrapers and probes are open to everyone who can reach the listener; `auth` guards the others.
    pub fn new(parts: AdminParts) -> Arc<Admin> {
        let AdminParts { metrics, health, control, auth, observability, gateway, sinks, guardrails } = parts;
        let limiter = control.limiter().clone();
        let (scraped, checked) = (metrics.clone(), health.clone());
        let state = AdminState::new(observability, scraped, checked, control.clone(), auth.clone(), sinks);
        let state = state.with_gateway(gateway);
        let guarded = rules::routes(limiter)
            .layer(from_fn(auth::require_read))
            .merge(api::tokens::routes(control.clone(), auth.clone()))
            .merge(api::routes(control))
            .merge(api::observability::routes(state))
            .layer(Extension(guardrails))
            .layer(from_fn_with_state(auth.clone(), auth::authenticate));
        let open = Router::new()
            .route("/metrics", get(scrape).with_state(metrics))
            .merge(health::routes(health, HealthAudience::Operator))
            .layer(from_fn_with_state(auth, auth::guard_page));
        let router = Router::new()
            .merge(dashboard::routes())
            .route("/pages", get(pages))
            .merge(open)
            .merge(guarded)
            .fallback((StatusCode::NOT_FOUND, "not found; /pages lists all pages\n"))
            .layer(map_response(with_headers));
        Arc::new(Admin { router })
    }

    /// Serves one connection to its end.
    pub async fn serve(self: Arc<Admin>, stream: Stream, closing: Closing, slot: Arc<Slot>) {
        let peer = ClientPeer::from_stream(&stream);
        self.serve_peer(stream, closing, slot, peer).await;
    }

    async fn serve_peer(self: Arc<Admin>, stream: Stream, closing: Closing, slot: Arc<Slot>, peer: ClientPeer) {
        let ended = closing.clone();
        let service = service_fn(|mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            // Endless responses end when the server is about to stop.
            request.extensions_mut().insert(ended.clone());
            self.router.clone().oneshot(request)
        });
        if let Err(error) = serve_http1(stream, closing, slot, &SETTINGS, service).await {
            debug!(%error, "a connection to the admin listener ended");
        }
    }
}

/// Nothing is cached by browsers and proxies, except for what says so itself, and nothing is taken for another type than it is.
async fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn pages() -> String {
    [PAGES, if cfg!(any(test, feature = "openapi")) { OPENAPI_PAGE } else { "" }].concat()
}

async fn scrape(State(metrics): State<Arc<Metrics>>, request: Request) -> Response {
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let exposition = Exposition::negotiate(accept);
    // It reads files and takes the store's locks: not on a thread that serves checks.
    match tokio::task::spawn_blocking(move || metrics.text(exposition)).await {
        Ok(Ok(text)) => ([(CONTENT_TYPE, exposition.content_type())], text).into_response(),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "the metrics can't be encoded\n").into_response(),
    }
}

#[cfg(test)]
mod tests;

impl tollgate_net::workers::Wire for Admin {
    fn serve(
        self: Arc<Self>,
        stream: Stream,
        closing: Closing,
        slot: Arc<Slot>,
    ) -> tollgate_net::workers::ConnectionFuture {
        Box::pin(Admin::serve(self, stream, closing, slot))
    }
}
