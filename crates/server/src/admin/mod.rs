//! The operators' listener: metrics, health, the rules in force, the admin API, the dashboard.

mod api;
pub(crate) mod auth;
mod dashboard;
mod rules;
pub(crate) mod who;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::body::Incoming;
use hyper::service::service_fn;
use tower::ServiceExt as _;
use tracing::debug;

use crate::control::Control;
use crate::health::Health;
use crate::health::pages::{Reader, pages};
use crate::net::http1::{Http1Settings, serve_http1};
use crate::net::{Closing, Stream};
use crate::observe::Sight;
use crate::observe::metrics::{Exposition, Metrics};
use api::see::See;
use auth::{Auth, Peer};

/// What answers on the admin listener.
#[derive(Debug)]
pub(crate) struct Admin {
    router: Router,
}

/// The text that names the pages.
const PAGES: &str = "\
Tollgate

/                  the dashboard, for browsers
/pages             this list
/metrics           what is counted, for Prometheus
/livez             whether the process answers
/readyz            whether it wants work, and what is degraded
/healthcheck       the same
/admin/v1/domains  the domains in force, as JSON (?offset=0&limit=100)
/admin/v1/rules    the rules in force, as JSON (?domain=NAME&offset=0&limit=100)
/rlconfig          the limits in force, as text
/admin/openapi.json  what the admin API takes and answers
";

/// Few connect here, and scrapers come every minute or so.
const SETTINGS: Http1Settings = Http1Settings {
    head_within: Duration::from_secs(120),
    most_head: 16 * 1024,
    oldest: Duration::from_secs(60 * 60),
    end_within: Duration::from_secs(5),
};

impl Admin {
    /// What scrapers and probes ask is open to whoever can reach the listener; for all else `auth` says who asks.
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        health: Arc<Health>,
        control: Arc<Control>,
        auth: Arc<Auth>,
        sight: Arc<Sight>,
    ) -> Arc<Admin> {
        let limiter = control.limiter().clone();
        let see = See::new(sight, metrics.clone(), health.clone(), control.clone(), auth.clone());
        let guarded = rules::routes(limiter)
            .layer(from_fn(auth::reading))
            .merge(api::tokens::routes(control.clone(), auth.clone()))
            .merge(api::routes(control))
            .merge(api::see::routes(see))
            .layer(from_fn_with_state(auth, auth::known));
        let router = Router::new()
            .merge(dashboard::routes())
            .route("/pages", get(PAGES))
            .route("/metrics", get(scrape).with_state(metrics))
            .merge(pages(health, Reader::Operator))
            .merge(guarded)
            .fallback((StatusCode::NOT_FOUND, "there is no such page: /pages names those that there are\n"));
        Arc::new(Admin { router })
    }

    /// Serves one connection to its end.
    pub(crate) async fn serve(self: Arc<Admin>, stream: Stream, closing: Closing) {
        let peer = Peer::of(&stream);
        self.serve_peer(stream, closing, peer).await;
    }

    async fn serve_peer(self: Arc<Admin>, stream: Stream, closing: Closing, peer: Peer) {
        let ended = closing.clone();
        let service = service_fn(|mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            // So that an answer without end ends when the server is about to stop.
            request.extensions_mut().insert(ended.clone());
            self.router.clone().oneshot(request)
        });
        if let Err(error) = serve_http1(stream, closing, &SETTINGS, service).await {
            debug!(%error, "a connection to the admin listener ended");
        }
    }
}

async fn scrape(State(metrics): State<Arc<Metrics>>, request: Request) -> Response {
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let exposition = Exposition::accepted(accept);
    // It reads files and takes the store's locks, while this thread has checks to answer.
    match tokio::task::spawn_blocking(move || metrics.text(exposition)).await {
        Ok(Ok(text)) => ([(CONTENT_TYPE, exposition.content_type())], text).into_response(),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "the metrics can't be written\n").into_response(),
    }
}

#[cfg(test)]
mod tests;

impl crate::net::workers::Wire for Admin {
    fn serve(self: Arc<Self>, stream: Stream, closing: Closing) -> crate::net::workers::Serving {
        Box::pin(Admin::serve(self, stream, closing))
    }
}
