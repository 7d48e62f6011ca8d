//! `/livez`, `/readyz`, `/healthcheck`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::Wire;

/// Whether to send work, and what is not as it should be.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct Readiness {
    /// Whether the server takes work.
    ready: bool,
    /// What is not as it should be. A server that is degraded still decides.
    degraded: Vec<Condition>,
}

/// A part of the server that is not as it should be.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct Condition {
    /// Which: `rules`, `data`, …
    part: String,
    /// Why.
    reason: String,
}

/// Does the process answer?
#[utoipa::path(method(get, head), path = "/livez", operation_id = "livez", responses((status = 200, body = String)))]
pub(super) async fn livez() -> &'static str {
    "OK"
}

/// Does the server take work?
#[utoipa::path(
    method(get, head), path = "/readyz", operation_id = "readyz",
    responses((status = 200, body = Readiness), (status = 503, body = Readiness, description = "It does not"))
)]
pub(super) async fn readyz(State(wire): State<Arc<Wire>>) -> (StatusCode, Json<Readiness>) {
    let ready = wire.health.is_ready();
    let conditions = wire.health.conditions().into_iter();
    let degraded = conditions.map(|(part, reason)| Condition { part: part.to_owned(), reason }).collect();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready, degraded }))
}

/// Does the server take work?
///
/// As envoyproxy/ratelimit answers: 500 if not.
#[utoipa::path(
    method(get, head), path = "/healthcheck", operation_id = "healthcheck",
    responses((status = 200, body = String), (status = 500, body = String, description = "It does not"))
)]
pub(super) async fn healthcheck(State(wire): State<Arc<Wire>>) -> (StatusCode, &'static str) {
    if wire.health.is_ready() { (StatusCode::OK, "OK") } else { (StatusCode::INTERNAL_SERVER_ERROR, "NOT READY") }
}
