//! Changes that wait for the store of record.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde_json::{Value, json};

#[cfg(test)]
use super::description;
use super::extract::{EmptyQuery, Query};
use super::{Api, ApiResult, RequestContext};
use crate::scopes::AccessScope;
use crate::store_of_record::PendingChange;

/// List the blocks, switches and emergencies that are in force on this server and wait for the store of record
#[utoipa::path(
    get, path = "/admin/v1/pending", operation_id = "pending_list", tag = "pending",
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn list(
    State(api): State<Api>,
    context: RequestContext,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let items: Vec<Value> = api.pending_changes().into_iter().map(to_json).collect();
    Ok(Json(json!({"items": items})).into_response())
}

fn to_json(change: PendingChange) -> Value {
    // It was JSON when it was accepted.
    let document: Option<Value> = change.document.and_then(|text| serde_json::from_str(&text).ok());
    json!({
        "id": change.id,
        "at": change.at,
        "by": change.by,
        "from": change.from,
        "action": change.action,
        "kind": change.kind,
        "domain": change.domain,
        "name": change.name,
        "document": document,
        "reason": change.reason,
    })
}
