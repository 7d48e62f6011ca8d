//! Raised signals: many distinct values of one attribute behind one value of another.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_observe::RaisedSignal;
use tollgate_records::Rfc3339;
use utoipa::IntoParams;

use super::{AdminState, key_count, keys_for, seconds};
use crate::api::extract::Query;
use crate::api::{ApiResult, RequestContext};
use crate::observe::KeyVisibility;
use crate::scopes::AccessScope;

/// Selects raised signals.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SignalQuery {
    /// Only this domain.
    domain: Option<String>,
    /// Only this signal.
    signal: Option<String>,
    /// The number of raised signals.
    #[param(minimum = 1, maximum = 200, default = 20)]
    limit: Option<usize>,
}

/// List the signals that are raised
///
/// Those with the most distinct values first, counted on all servers that share a store of record in PostgreSQL. Counts are exact up
/// to 128 values, and estimates beyond (standard error 1.6 %). Without the scope `audit` keys are hashed, and there are no examples.
/// `signals` has all signals of the rules in force.
#[utoipa::path(
    get, path = "/admin/v1/signals", operation_id = "signals", tag = "seeing", params(SignalQuery),
    responses((status = 200, body = Object), (status = "default", response = crate::api::description::Failed))
)]
pub(crate) async fn list(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    Query(query): Query<SignalQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let (limit, keys) = (key_count(query.limit)?, keys_for(&context));
    let is_selected = |domain: &str, signal: &str| {
        query.domain.as_deref().is_none_or(|only| only == domain)
            && query.signal.as_deref().is_none_or(|only| only == signal)
    };
    let board = state.observability.observer.signals();
    let (signals, omitted) = board.status();
    let signals = signals.iter().filter(|one| is_selected(&one.domain, &one.signal)).map(|one| {
        json!({
            "domain": one.domain, "signal": one.signal, "raised": one.raised,
            "keys": one.keys, "bytes": one.bytes, "displaced": one.displaced,
        })
    });
    let raised = board.raised();
    let raised = raised.iter().filter(|one| is_selected(one.name.domain(), one.name.rule()));
    let items: Vec<Value> = raised.take(limit).map(|one| raised_json(&state, one, keys)).collect();
    Ok(Json(json!({
        "at": Rfc3339(state.control.now()),
        "keys_shown": keys == KeyVisibility::Plain,
        "signals": signals.collect::<Vec<_>>(),
        "items": items,
        "omitted": omitted,
    }))
    .into_response())
}

fn raised_json(state: &AdminState, one: &RaisedSignal, keys: KeyVisibility) -> Value {
    let examples = if keys == KeyVisibility::Plain { one.examples.as_slice() } else { &[] };
    json!({
        "domain": one.name.domain(),
        "signal": one.name.rule(),
        "per": one.per,
        "key": state.observability.display_key(&one.name, keys),
        "distinct": one.distinct,
        "count": one.count,
        "threshold": one.threshold,
        "window_seconds": seconds(one.window),
        "since": Rfc3339(one.since),
        "last": Rfc3339(one.last),
        "examples": examples,
    })
}
