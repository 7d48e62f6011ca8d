//! The heaviest keys.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::control::Moment;
use tollgate_observe::{By, Filter, TopKey, Window};
use utoipa::IntoParams;

use super::{See, keys_for, ratio};
use crate::admin::api::extract::Query;
use crate::admin::api::{Answer, Asked, Problem};
use crate::admin::who::Scope;
use crate::observe::Keys;

/// Which keys, and how many.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TopQuery {
    /// `decisions` (the default), `refusals` or `utilisation`.
    by: Option<String>,
    /// `1m`, `5m` (the default) or `1h`. It begins at a full minute, the hour at a full five minutes.
    window: Option<String>,
    /// Of this domain alone.
    domain: Option<String>,
    /// Of this rule alone; `block` has callers who are blocked.
    rule: Option<String>,
    /// How many.
    #[param(minimum = 1, maximum = 200, default = 20)]
    limit: Option<usize>,
}

/// Keys that are shown where nothing else is said, and at most.
const USUAL: usize = 20;
const MOST: usize = 200;

/// The heaviest keys, of all servers
///
/// By decisions, refusals or utilisation. Counts are never below the truth, and above it by no more than `error`: one in 512 of all that was
/// counted (`total`), on each server. Who lacks the scope `audit` sees keys as hashes.
#[utoipa::path(
    get, path = "/admin/v1/top", operation_id = "top", tag = "seeing", params(TopQuery),
    responses((status = 200, body = Object), (status = "default", response = crate::admin::api::openapi::Failed))
)]
pub(crate) async fn show(State(see): State<Arc<See>>, asked: Asked, Query(query): Query<TopQuery>) -> Answer {
    asked.may(Scope::Read)?;
    let by = word("by", query.by.as_deref(), By::Decisions, &By::ALL, By::name)?;
    let window = word("window", query.window.as_deref(), Window::FiveMinutes, &Window::ALL, Window::name)?;
    let limit = query.limit.unwrap_or(USUAL);
    if !(1..=MOST).contains(&limit) {
        return Err(Problem::bad_request("bad_query", format!("limit={limit}: write 1 to {MOST}")));
    }
    let (keys, now) = (keys_for(&asked), see.control.now());
    // Lists are put together, while this thread has others to answer.
    let listed = tokio::task::spawn_blocking(move || {
        let filter = Filter { domain: query.domain.as_deref(), rule: query.rule.as_deref() };
        let (top, servers) = see.sight.top(by, window, filter, limit, now);
        let listed: Vec<_> = (1..).zip(&top.keys).map(|(rank, key)| listed(&see, rank, key, keys)).collect();
        json!({
            "by": by.name(),
            "window": window.name(),
            "at": Moment(now),
            "total": top.total,
            "error": top.error,
            "servers": servers,
            "keys_shown": keys == Keys::Shown,
            "keys": listed,
        })
    });
    match listed.await {
        Ok(listed) => Ok(Json(listed).into_response()),
        Err(_) => Err(Problem::new(http::StatusCode::INTERNAL_SERVER_ERROR, "failed", "the lists can't be read")),
    }
}

fn listed(see: &See, rank: usize, key: &TopKey, keys: Keys) -> Value {
    let name = &key.name;
    json!({
        "rank": rank,
        "domain": name.domain(),
        "rule": name.rule(),
        "key": see.sight.shown(name.key(), keys),
        "caller": name.caller().map(|caller| see.sight.shown(caller, keys)),
        "decisions": key.decisions,
        "refusals": key.refusals,
        "utilisation": key.used_of_1_000.map(ratio),
        "error": key.error,
    })
}

/// What a word of the query means.
fn word<T: Copy>(
    what: &str,
    said: Option<&str>,
    usual: T,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, Problem> {
    let Some(said) = said else { return Ok(usual) };
    all.iter().copied().find(|one| name(*one) == said).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|one| name(*one)).collect();
        Problem::bad_request("bad_query", format!("{what}={said}: write one of {}", names.join(", ")))
    })
}
