//! Plans: what a change would do to recent traffic.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::Span;
use tollgate_observe::{MAX_SAMPLED_TIME, SAMPLED_TIME, TrafficStatus};
use tollgate_plan::{NameForm, report_json};
use tollgate_records::Rfc3339;
use utoipa::IntoParams;

use super::{AdminState, keys_for};
use crate::api::body::{self, RequestBody};
use crate::api::extract::Query;
use crate::api::{ApiProblem, ApiResult, RequestContext};
use crate::observe::KeyVisibility;
use crate::plan::{PlannedChange, TrafficPlan, TriedStage};
use crate::scopes::AccessScope;

/// Selects the traffic of a plan.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PlanQuery {
    /// Requests of the last so many minutes.
    #[param(minimum = 1, maximum = 60, default = 15)]
    minutes: Option<u64>,
}

/// The body: rule files, and records.
const MAX_PLAN_BYTES: usize = 32 << 20;

const MINUTE: Span = Span::from_secs(60);

/// Try a change of rules, quotas, switches or emergencies on the recorded traffic. Nothing is changed
///
/// The requests of the last minutes are replayed by the rules in force and by those after the change. `files` are the rule files
/// after it, by default those in force; `records` are the records that it writes, each with `kind`, `domain`, `name` and `document`.
/// A quota is tried as it is once it has begun. Without the scope `audit` callers are hashed, and there are no examples.
#[utoipa::path(
    post, path = "/admin/v1/plan", operation_id = "plan", tag = "seeing", params(PlanQuery), request_body = Object,
    responses((status = 200, body = Object), (status = "default", response = crate::api::description::Failed))
)]
pub(crate) async fn try_change(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    Query(query): Query<PlanQuery>,
    body: RequestBody,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let (least, most) = (1, MAX_SAMPLED_TIME.as_micros() / MINUTE.as_micros());
    let minutes = query.minutes.unwrap_or(SAMPLED_TIME.as_micros() / MINUTE.as_micros());
    if !(least..=most).contains(&minutes) {
        let detail = format!("minutes={minutes}: must be between {least} and {most}");
        return Err(ApiProblem::bad_request("bad_query", detail));
    }
    let change: PlannedChange = body::parse(&body.read_up_to(MAX_PLAN_BYTES).await?)?;
    change.check_size()?;
    if !state.observability.observer.traffic().config().on {
        let detail = "this server records no traffic to try changes on; set `traffic_sample: true`";
        return Err(ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "traffic_off", detail));
    }
    let Ok(_planning) = state.planning.clone().try_acquire_owned() else {
        let detail = "another change is being tried; try again in a few seconds";
        return Err(ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail));
    };
    let keys = keys_for(&context);
    let planned = tokio::task::spawn_blocking(move || {
        let observability = &state.observability;
        let since = state.control.now().before(Span::from_micros(minutes * MINUTE.as_micros()));
        let (traffic, privacy) = (observability.observer.traffic(), &observability.key_privacy);
        let plan = change.plan(&state.control, &traffic.excerpt(since), privacy, TriedStage::Last)?;
        Ok(answer(&state, &plan, keys))
    })
    .await;
    let planned = planned.unwrap_or_else(|_| {
        let detail = "the change could not be tried; see the log";
        Err(ApiProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "not_tried", detail))
    });
    Ok(Json(planned?).into_response())
}

/// Show how much of the recent traffic is recorded
#[utoipa::path(
    get, path = "/admin/v1/traffic", operation_id = "traffic", tag = "seeing",
    responses((status = 200, body = Object), (status = "default", response = crate::api::description::Failed))
)]
pub(crate) async fn traffic(State(state): State<Arc<AdminState>>, context: RequestContext) -> ApiResult {
    context.require(AccessScope::Read)?;
    let traffic = state.observability.observer.traffic();
    let TrafficStatus { records, bytes, oldest, callers_bps, busy_callers, lost } = traffic.status();
    Ok(Json(json!({
        "on": traffic.config().on,
        "records": records,
        "bytes": bytes,
        "max_bytes": traffic.config().max_bytes,
        "oldest": oldest.map(Rfc3339),
        "callers_percent": f64::from(callers_bps) / 100.0,
        "busy_callers": busy_callers,
        "lost": lost,
    }))
    .into_response())
}

fn answer(state: &AdminState, plan: &TrafficPlan, keys: KeyVisibility) -> Value {
    let hash = |caller: &str| state.observability.hash_key(caller);
    let names = match keys {
        KeyVisibility::Plain => NameForm::Recorded,
        KeyVisibility::Hashed => NameForm::Hidden(&hash),
    };
    let mut answer = report_json(&plan.report, names);
    answer["complete"] = json!(plan.is_complete);
    answer["omitted"] = json!(plan.omitted);
    answer
}
