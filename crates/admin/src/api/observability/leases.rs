//! The keys of which this server leases units.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_store::leased::{HotKey, LeaseCounts, LeaseStatus};
use utoipa::IntoParams;

use super::{AdminState, hundredths, key_count, keys_for};
use crate::api::extract::Query;
use crate::api::{ApiResult, RequestContext};
use crate::observe::KeyVisibility;
use crate::scopes::AccessScope;

/// Selects keys.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LeaseQuery {
    /// The number of keys.
    #[param(minimum = 1, maximum = 200, default = 20)]
    limit: Option<usize>,
}

/// List the hot keys of this server
///
/// Keys in Redis of which this server takes units ahead of requests, the busiest first, and what became of the units since
/// the start. Without the scope `audit` keys are hashed. `available` is false with counters in memory, which need no leases.
#[utoipa::path(
    get, path = "/admin/v1/leases", operation_id = "leases", tag = "seeing", params(LeaseQuery),
    responses((status = 200, body = Object), (status = "default", response = crate::api::description::Failed))
)]
pub(crate) async fn show(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    Query(query): Query<LeaseQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let limit = key_count(query.limit)?;
    let keys = keys_for(&context);
    let store = state.limiter().store().shared();
    let LeaseStatus { is_enabled, keys: leased, held, counts, hot_keys, .. } =
        store.map(|store| store.leases(limit)).unwrap_or_default();
    let hot_keys: Vec<Value> = hot_keys.iter().map(|key| key_json(&state, key, keys)).collect();
    let LeaseCounts { taken, spent, returned, expired, lost, unanswered, impossible, advanced, .. } = counts;
    let LeaseCounts { refused, misses, ahead, back, debits, .. } = counts;
    Ok(Json(json!({
        "server": state.observability.name,
        "available": store.is_some(),
        "enabled": is_enabled,
        "leased_keys": leased,
        "units_held": held,
        "units": {
            "taken": taken, "spent": spent, "returned": returned, "expired": expired + lost, "unanswered": unanswered,
            "impossible": impossible, "advanced": advanced,
        },
        "calls": {"miss": misses, "ahead": ahead, "back": back, "debit": debits},
        "refusals": refused,
        "keys_shown": keys == KeyVisibility::Plain,
        "keys": hot_keys,
    }))
    .into_response())
}

fn key_json(state: &AdminState, hot: &HotKey, keys: KeyVisibility) -> Value {
    let name = state.observability.observer.heavy_hitters().name_of(&hot.key.key());
    json!({
        "domain": name.domain(),
        "rule": name.rule(),
        "key": state.observability.display_key(&name, keys),
        "caller": state.observability.display_caller(&name, keys),
        "units_per_second": hundredths(hot.rate),
        "chunk": hot.chunk,
        "units_held": hot.held,
        "local_share": hundredths(hot.local),
    })
}
