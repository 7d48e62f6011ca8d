//! `/livez`, `/readyz`, `/healthcheck`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::StatusCode;

use super::HttpState;
use crate::health::{self as pages, HealthAudience, Readiness};

/// Liveness
#[utoipa::path(method(get, head), path = "/livez", operation_id = "livez", responses((status = 200, body = String)))]
pub(super) async fn livez() -> &'static str {
    "OK"
}

/// Readiness
#[utoipa::path(
    method(get, head), path = "/readyz", operation_id = "readyz",
    responses((status = 200, body = Readiness), (status = 503, body = Readiness, description = "The server is not ready"))
)]
pub(super) async fn readyz(State(state): State<Arc<HttpState>>) -> (StatusCode, Json<Readiness>) {
    pages::readiness(&state.health, HealthAudience::Caller)
}

/// Health check of envoyproxy/ratelimit
///
/// 500 if the server is not ready.
#[utoipa::path(
    method(get, head), path = "/healthcheck", operation_id = "healthcheck",
    responses((status = 200, body = String), (status = 500, body = String, description = "The server is not ready"))
)]
pub(super) async fn healthcheck(State(state): State<Arc<HttpState>>) -> (StatusCode, &'static str) {
    pages::healthcheck(&state.health)
}
