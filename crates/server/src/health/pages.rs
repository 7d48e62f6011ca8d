//! Health as HTTP answers, for whichever listener has them.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::Health;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// They are told what is degraded and why.
    Operator,
    /// They are told what is degraded: why is nobody's business who may only ask for decisions.
    Caller,
}

/// Whether to send work, and what is not as it should be.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(crate) struct Readiness {
    /// Whether the server takes work.
    ready: bool,
    /// What is not as it should be. A server that is degraded still decides.
    degraded: Vec<Condition>,
}

/// A part of the server that is not as it should be.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(crate) struct Condition {
    /// Which: `rules`, `snapshots`, …
    part: String,
    /// Why; told on the admin listener alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The most characters of a reason that are shown.
const LONGEST_REASON: usize = 1_000;

/// `/livez`: the process answers. `/readyz`: whether it takes work, and what is degraded. `/healthcheck`: as
/// envoyproxy/ratelimit answers.
pub(crate) fn pages(health: Arc<Health>, reader: Reader) -> Router {
    Router::new()
        .route("/livez", get(async || "OK"))
        .route("/readyz", get(async move |State(health): State<Arc<Health>>| readiness(&health, reader)))
        .route("/healthcheck", get(async |State(health): State<Arc<Health>>| healthcheck(&health)))
        .with_state(health)
}

/// 200 if the server takes work, else 503. Degraded is not unready.
pub(crate) fn readiness(health: &Health, reader: Reader) -> (StatusCode, Json<Readiness>) {
    let ready = health.is_ready();
    let reason = |reason: String| (reader == Reader::Operator).then(|| reason.chars().take(LONGEST_REASON).collect());
    let conditions = health.conditions().into_iter();
    let degraded = conditions.map(|(part, why)| Condition { part: part.to_owned(), reason: reason(why) }).collect();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready, degraded }))
}

/// 200 if the server takes work, else 500: what envoyproxy/ratelimit's users have probes on.
pub(crate) fn healthcheck(health: &Health) -> (StatusCode, &'static str) {
    if health.is_ready() { (StatusCode::OK, "OK") } else { (StatusCode::INTERNAL_SERVER_ERROR, "NOT READY") }
}
