//! Who asks.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde_json::json;

use super::See;
use crate::admin::api::{Answer, Asked};
use crate::admin::who::Scope;

/// Who asks, and what they may
#[utoipa::path(
    get, path = "/admin/v1/me", operation_id = "me", tag = "seeing",
    responses((status = 200, body = Object), (status = "default", response = crate::admin::api::openapi::Failed))
)]
pub(crate) async fn show(State(see): State<Arc<See>>, asked: Asked) -> Answer {
    let scopes: Vec<_> = Scope::ALL.into_iter().filter(|scope| asked.who.scopes.has(*scope)).map(Scope::name).collect();
    Ok(Json(json!({ "name": asked.who.name, "scopes": scopes, "open": !see.auth.is_set_up() })).into_response())
}
