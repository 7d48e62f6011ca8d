//! Decisions over time: ten minutes, two hours or a day.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate::Timestamp;
use tollgate_observe::{DecisionOutcome, HistoryLine, HistoryPoint, HistoryRange, Quantiles};
use tollgate_records::Rfc3339;
use utoipa::IntoParams;

use super::top::parse_choice;
use super::{AdminState, hundredths, seconds};
use crate::api::extract::Query;
use crate::api::{ApiProblem, ApiResult, RequestContext};
use crate::scopes::AccessScope;

/// Selects a range.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryQuery {
    /// `10m` (the default; a point each second), `2h` (ten seconds) or `24h` (a minute).
    range: Option<String>,
}

/// Show decisions over time
///
/// Decisions per second by outcome, and quantiles of their latency, in seconds. Each point has the decisions of its own step; the
/// newest may cover less. `null` in all lists is a time in which the server did not run; `null` in the quantiles alone, a step without
/// timed decisions. The history survives a restart if there is a data directory.
#[utoipa::path(
    get, path = "/admin/v1/history", operation_id = "history", tag = "seeing", params(HistoryQuery),
    responses((status = 200, body = Object), (status = "default", response = crate::api::description::Failed))
)]
pub(crate) async fn show(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    Query(query): Query<HistoryQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let range = parse_range(query.range.as_deref())?;
    let (line, at) = {
        let history = state.observability.sampler.history();
        (history.line(range), history.at())
    };
    let mut body = line_json(&line, at);
    body["range"] = json!(range.name());
    Ok(Json(body).into_response())
}

pub(super) fn parse_range(text: Option<&str>) -> Result<HistoryRange, ApiProblem> {
    parse_choice("range", text, HistoryRange::TenMinutes, &HistoryRange::ALL, HistoryRange::name)
}

/// A line as lists of numbers.
pub(super) fn line_json(line: &HistoryLine, to: Timestamp) -> Value {
    let points = || line.points.iter();
    let rates = |outcome: DecisionOutcome| -> Value {
        points().map(|point| point.map(|point| hundredths(point.rates[outcome as usize]))).collect()
    };
    let latency = |of: fn(Quantiles) -> u64| -> Value {
        points().map(|point| point.and_then(|point| point.took).map(|took| nanos_to_seconds(of(took)))).collect()
    };
    let mut series: Map<String, Value> =
        DecisionOutcome::ALL.into_iter().map(|outcome| (outcome.name().to_owned(), rates(outcome))).collect();
    series.insert("p50".to_owned(), latency(|took| took.p50));
    series.insert("p99".to_owned(), latency(|took| took.p99));
    series.insert("p999".to_owned(), latency(|took| took.p999));
    series.insert("step_seconds".to_owned(), seconds(line.step).into());
    series.insert("from".to_owned(), json!(Rfc3339(line.from)));
    series.insert("to".to_owned(), json!(Rfc3339(to)));
    series.into()
}

/// The newest second, in the form of the lists.
pub(super) fn second_json(second: Option<(Timestamp, HistoryPoint)>) -> Value {
    let Some((at, point)) = second else { return Value::Null };
    let mut members: Map<String, Value> = DecisionOutcome::ALL
        .into_iter()
        .map(|outcome| (outcome.name().to_owned(), hundredths(point.rates[outcome as usize]).into()))
        .collect();
    let took = |of: fn(Quantiles) -> u64| json!(point.took.map(|took| nanos_to_seconds(of(took))));
    members.insert("p50".to_owned(), took(|took| took.p50));
    members.insert("p99".to_owned(), took(|took| took.p99));
    members.insert("p999".to_owned(), took(|took| took.p999));
    members.insert("at".to_owned(), json!(Rfc3339(at)));
    members.into()
}

/// Nanoseconds as seconds.
pub(super) fn nanos_to_seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
