//! The heaviest keys.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_observe::{KeyFilter, KeySearch, RankBy, TopKey, Window};
use tollgate_records::Rfc3339;
use utoipa::IntoParams;

use super::{AdminState, key_count, keys_for, ratio};
use crate::api::extract::Query;
use crate::api::{ApiProblem, ApiResult, RequestContext};
use crate::observe::KeyVisibility;
use crate::scopes::AccessScope;

/// Selects keys.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TopQuery {
    /// `decisions` (the default), `refusals` or `utilisation`.
    by: Option<String>,
    /// `1m`, `5m` (the default) or `1h`. It begins at a full minute; the hour at a multiple of five minutes.
    window: Option<String>,
    /// Only this domain.
    domain: Option<String>,
    /// Only this rule; `block` has blocked callers.
    rule: Option<String>,
    /// Part of a key or of the name of a rule, case-insensitive. Without the scope `audit`, of the name of a rule only.
    search: Option<String>,
    /// The number of keys.
    #[param(minimum = 1, maximum = 200, default = 20)]
    limit: Option<usize>,
}

/// List the heaviest keys of all servers
///
/// By decisions, refusals or utilisation. Counts are never below the truth, and above it by at most `error`: one in 512 of all
/// counted decisions (`total`), on each server. Without the scope `audit` keys are hashed.
#[utoipa::path(
    get, path = "/admin/v1/top", operation_id = "top", tag = "seeing", params(TopQuery),
    responses((status = 200, body = Object), (status = "default", response = crate::api::description::Failed))
)]
pub(crate) async fn show(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    Query(query): Query<TopQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let by = parse_choice("by", query.by.as_deref(), RankBy::Decisions, &RankBy::ALL, RankBy::name)?;
    let window = parse_choice("window", query.window.as_deref(), Window::FiveMinutes, &Window::ALL, Window::name)?;
    let limit = key_count(query.limit)?;
    let (keys, now) = (keys_for(&context), state.control.now());
    // Merging lists takes a while: not on an async thread.
    let key_json = tokio::task::spawn_blocking(move || {
        let text = query.search.map(|text| text.to_lowercase());
        let in_keys = keys == KeyVisibility::Plain;
        let search = text.as_deref().map(|text| KeySearch { text, in_keys });
        let filter = KeyFilter { domain: query.domain.as_deref(), rule: query.rule.as_deref(), search };
        let (top, servers) = state.observability.top(by, window, filter, limit, now);
        let key_json: Vec<_> = (1..).zip(&top.keys).map(|(rank, key)| key_json(&state, rank, key, keys)).collect();
        json!({
            "by": by.name(),
            "window": window.name(),
            "at": Rfc3339(now),
            "total": top.total,
            "error": top.error,
            "servers": servers,
            "keys_shown": keys == KeyVisibility::Plain,
            "keys": key_json,
        })
    });
    match key_json.await {
        Ok(key_json) => Ok(Json(key_json).into_response()),
        Err(_) => Err(ApiProblem::new(http::StatusCode::INTERNAL_SERVER_ERROR, "failed", "the ranking can't be read")),
    }
}

fn key_json(state: &AdminState, rank: usize, key: &TopKey, keys: KeyVisibility) -> Value {
    let name = &key.name;
    json!({
        "rank": rank,
        "domain": name.domain(),
        "rule": name.rule(),
        "key": state.observability.display_key(name, keys),
        "caller": state.observability.display_caller(name, keys),
        "decisions": key.decisions,
        "refusals": key.refusals,
        "utilisation": key.used_permille.map(ratio),
        "error": key.error,
    })
}

/// Parses a query parameter with fixed values.
pub(super) fn parse_choice<T: Copy>(
    parameter: &str,
    value: Option<&str>,
    default: T,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, ApiProblem> {
    let Some(value) = value else { return Ok(default) };
    all.iter().copied().find(|one| name(*one) == value).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|one| name(*one)).collect();
        ApiProblem::bad_request("bad_query", format!("{parameter}={value}: must be one of {}", names.join(", ")))
    })
}
