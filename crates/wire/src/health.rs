//! Health endpoints, for any HTTP listener.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use tollgate_telemetry::Health;

/// The readers of health reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthAudience {
    /// Operators get the reasons of degraded conditions.
    Operator,
    /// Callers get only the names of degraded parts.
    Caller,
}

/// Readiness of the server, with its degraded parts.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub struct Readiness {
    /// Whether the server is ready for requests.
    ready: bool,
    /// The degraded parts. A degraded server still decides.
    degraded: Vec<Condition>,
}

/// A degraded part of the server.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub struct Condition {
    /// The name of the part: `rules`, `snapshots`, …
    part: String,
    /// The reason; on the admin listener only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The maximum length of a reason, in characters.
const MAX_REASON_CHARS: usize = 1_000;

/// The routes: `/livez`: the process responds. `/readyz`: readiness and degraded parts. `/healthcheck`: compatible with
/// envoyproxy/ratelimit.
pub fn routes(health: Arc<Health>, audience: HealthAudience) -> Router {
    Router::new()
        .route("/livez", get(async || "OK"))
        .route("/readyz", get(async move |State(health): State<Arc<Health>>| readiness(&health, audience)))
        .route("/healthcheck", get(async |State(health): State<Arc<Health>>| healthcheck(&health)))
        .with_state(health)
}

/// 200 if the server is ready, else 503. A degraded server is ready.
pub fn readiness(health: &Health, audience: HealthAudience) -> (StatusCode, Json<Readiness>) {
    let ready = health.is_ready();
    let reason = |reason: String| {
        (audience == HealthAudience::Operator).then(|| reason.chars().take(MAX_REASON_CHARS).collect())
    };
    let conditions = health.conditions().into_iter();
    let degraded = conditions.map(|(part, why)| Condition { part: part.to_owned(), reason: reason(why) }).collect();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready, degraded }))
}

/// 200 if the server is ready, else 500, as in envoyproxy/ratelimit.
pub fn healthcheck(health: &Health) -> (StatusCode, &'static str) {
    if health.is_ready() { (StatusCode::OK, "OK") } else { (StatusCode::INTERNAL_SERVER_ERROR, "NOT READY") }
}
