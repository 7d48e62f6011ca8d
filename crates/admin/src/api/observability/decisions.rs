//! Logged decisions about a caller, with explanations.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tollgate_control::DecisionFilter;
use tollgate_events::SinkError;
use tollgate_observe::{SampleRate, truncate};
use tollgate_records::Rfc3339;

use super::AdminState;
#[cfg(test)]
use crate::api::description;
use crate::api::extract::Query;
use crate::api::{ApiProblem, ApiResult, RequestContext, records};
use crate::decisions::{DecisionLine, DecisionLookup};
use crate::scopes::AccessScope;

/// Selects decisions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionQuery {
    caller: Option<String>,
    domain: Option<String>,
    rule: Option<String>,
    from: Option<Rfc3339>,
    to: Option<Rfc3339>,
    limit: Option<usize>,
}

/// A logged decision in a response.
#[derive(Serialize)]
struct DecisionItem {
    #[serde(flatten)]
    line: DecisionLine,
    why: String,
}

/// List decisions about a caller, with explanations: all refusals, and a sample of the rest
#[utoipa::path(
    get, path = "/admin/v1/decisions", operation_id = "decisions", tag = "seeing",
    params(
        ("caller" = String, Query, description = "The value of the domain's `entity`, in clear or as logged"),
        ("domain" = Option<String>, Query), ("rule" = Option<String>, Query, description = "The rule that decided"),
        ("from" = Option<String>, Query, description = "At this time or later"),
        ("to" = Option<String>, Query, description = "Before this time"),
        ("limit" = Option<u64>, Query, description = "The newest entries: 1 to 1000, 100 by default")
    ),
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(crate) async fn list(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    Query(query): Query<DecisionQuery>,
) -> ApiResult {
    context.require(AccessScope::Audit)?;
    let Some(caller) = &query.caller else {
        let detail = "the query has no caller; write for instance /admin/v1/decisions?caller=NAME";
        return Err(ApiProblem::bad_request("bad_query", detail));
    };
    let decisions = &state.observability.decisions;
    let max = records::page_size(query.limit)?;
    let (from, to) = (query.from.map(|at| at.0), query.to.map(|at| at.0));
    if from.zip(to).is_some_and(|(from, to)| from >= to) {
        return Err(ApiProblem::bad_request("bad_query", "from must be before to"));
    }
    let Some(place) = decisions.place() else {
        let detail = "no decisions are logged: this server runs with decision_log: off";
        return Err(ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "decision_log_off", detail));
    };
    let mut found = Vec::new();
    // As logged: in clear, or masked.
    for logged in state.observability.key_privacy.logged_as(caller) {
        let (caller, domain, rule) = (truncate(&logged), query.domain.clone(), query.rule.clone());
        let filter = DecisionFilter { caller, domain, rule, from, to };
        found.extend(decisions.find(&DecisionLookup { filter, max }).await.map_err(lookup_problem)?);
    }
    found.sort_by_key(|line| Reverse(line.at));
    found.truncate(max);
    let items: Vec<_> = found.into_iter().map(|line| DecisionItem { why: line.explain(), line }).collect();
    let (sample, callers) = decisions.sample_rates();
    let ratio = |rate: SampleRate| f64::from(rate.bps()) / f64::from(SampleRate::ALL.bps());
    Ok(Json(json!({
        "caller": caller,
        "dropped": decisions.counts().dropped,
        "log": {
            "place": place,
            "keep_seconds": decisions.keep().as_micros() as f64 / 1e6,
            "sample": ratio(sample),
            "callers": ratio(callers),
        },
        "decisions": items,
    }))
    .into_response())
}

fn lookup_problem(why: SinkError) -> ApiProblem {
    match why {
        SinkError::Permanent(detail) => ApiProblem::bad_request("bad_query", detail),
        error => {
            let detail = format!("the decision log can't be read: {error}");
            ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "decision_log_away", detail)
        }
    }
}
