//! Health as HTTP pages, for whichever listener has them.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::Health;

/// Who may read a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// They are told what is degraded and why.
    Operator,
    /// They are told whether to send work.
    Caller,
}

/// The most characters of a reason that are shown.
const LONGEST_REASON: usize = 1_000;

/// `/livez`: the process answers. `/readyz` and `/healthcheck` (envoyproxy/ratelimit's name for it): 200 if it wants work, else
/// 503. Degraded is not unready.
pub(crate) fn pages(health: Arc<Health>, reader: Reader) -> Router {
    let report = async move |State(health): State<Arc<Health>>| report(&health, reader);
    Router::new()
        .route("/livez", get(async || page(StatusCode::OK, "OK\n".to_owned())))
        .route("/readyz", get(report))
        .route("/healthcheck", get(report))
        .with_state(health)
}

fn report(health: &Health, reader: Reader) -> Response {
    let (status, mut text) = match health.is_ready() {
        true => (StatusCode::OK, "OK\n".to_owned()),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n".to_owned()),
    };
    if reader == Reader::Operator {
        for (part, reason) in health.conditions() {
            let end = reason.char_indices().nth(LONGEST_REASON).map_or(reason.len(), |(at, _)| at);
            // Writing to a String can't fail.
            let _ = writeln!(text, "degraded: {part}: {}", &reason[..end]);
        }
    }
    page(status, text)
}

fn page(status: StatusCode, text: String) -> Response {
    (status, [(CACHE_CONTROL, "no-store")], text).into_response()
}
