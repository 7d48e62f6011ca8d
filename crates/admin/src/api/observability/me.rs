//! The authenticated caller.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde_json::json;

use super::AdminState;
use crate::api::{ApiResult, RequestContext};
use crate::scopes::AccessScope;

/// Show the authenticated caller and its scopes, and whether this server has a gateway and knows other regions
#[utoipa::path(
    get, path = "/admin/v1/me", operation_id = "me", tag = "seeing",
    responses((status = 200, body = Object), (status = "default", response = crate::api::description::Failed))
)]
pub(crate) async fn show(State(state): State<Arc<AdminState>>, context: RequestContext) -> ApiResult {
    let scopes: Vec<_> = AccessScope::ALL
        .into_iter()
        .filter(|scope| context.principal.scopes.contains(*scope))
        .map(AccessScope::name)
        .collect();
    Ok(Json(json!({
        "name": context.principal.name,
        "scopes": scopes,
        "open": !state.auth.is_configured(),
        "gateway": state.gateway.is_some(),
        "regions": has_regions(&state),
    }))
    .into_response())
}

/// Whether this server knows other regions.
fn has_regions(state: &AdminState) -> bool {
    state.limiter().store().shared().is_some_and(|store| !store.status().debits.is_empty())
}
