//! `/livez`, `/readyz`, `/healthcheck`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::StatusCode;

use super::Wire;
use crate::health::pages::{self, Reader, Readiness};

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
    pages::readiness(&wire.health, Reader::Caller)
}

/// Does the server take work?
///
/// As envoyproxy/ratelimit answers: 500 if not.
#[utoipa::path(
    method(get, head), path = "/healthcheck", operation_id = "healthcheck",
    responses((status = 200, body = String), (status = 500, body = String, description = "It does not"))
)]
pub(super) async fn healthcheck(State(wire): State<Arc<Wire>>) -> (StatusCode, &'static str) {
    pages::healthcheck(&wire.health)
}
