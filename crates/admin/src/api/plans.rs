//! Plans that guardrails hold: shown, approved, dropped.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_control::{Change, Precondition, RecordFilter, WriteError};
use tollgate_records::documents::FieldFaults;
use tollgate_records::{RecordKind, Rfc3339};

use super::body::{self, RequestBody};
#[cfg(test)]
use super::description;
use super::extract::{EmptyQuery, PathParams, Query};
use super::guarded::{self, MAX_PLANS, plan_json, plan_name};
use super::{Api, ApiProblem, ApiResult, RequestContext, expiry, records};
use crate::guardrails::{Approval, Guardrails};
use crate::scopes::AccessScope;
use crate::store_of_record::ControlWriteError;

/// An approval.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ApproveBody {
    /// Why the write may be made.
    #[serde(default)]
    reason: String,
}

/// Attempts of an approval, while others approve the same plan.
const MAX_ATTEMPTS: usize = 10;
/// The approvals of a plan.
const MAX_APPROVALS: usize = 16;

/// List the plans that wait for a confirmation or an approval
#[utoipa::path(
    get, path = "/admin/v1/plans", operation_id = "plans_list", tag = "plans",
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn list(
    State(api): State<Api>,
    context: RequestContext,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let guardrails = guardrails(&context)?;
    let stored = records::db(&api)?.list(&RecordFilter::new(RecordKind::Plan), None, MAX_PLANS).await?;
    let mut items = Vec::new();
    for one in &stored {
        let plan = guarded::parse(one)?;
        if plan.is_live(api.now()) {
            items.push(plan_json(&one.name.name, &plan, &context, guardrails));
        }
    }
    items.sort_by_key(|item| std::cmp::Reverse(item["held_at"].as_str().unwrap_or_default().to_owned()));
    Ok(Json(json!({"items": items})).into_response())
}

/// Show a plan
#[utoipa::path(
    get, path = "/admin/v1/plans/{id}", operation_id = "plans_show", tag = "plans",
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn show(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(id): PathParams<String>,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let (_, plan) = guarded::find(&api, &id).await?.ok_or_else(|| missing(&id))?;
    Ok(Json(plan_json(&id, &plan, &context, guardrails(&context)?)).into_response())
}

/// Approve a plan of somebody else. The write is made when it is sent again with the id of the plan
#[utoipa::path(
    post, path = "/admin/v1/plans/{id}/approve", operation_id = "plans_approve", tag = "plans", request_body = ApproveBody,
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn approve(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(id): PathParams<String>,
    Query(EmptyQuery {}): Query<EmptyQuery>,
    sent: RequestBody,
) -> ApiResult {
    let ApproveBody { reason } = body::parse(&sent.read().await?)?;
    let mut faults = FieldFaults::default();
    expiry::check_reason(&reason, &mut faults);
    faults.into_result(()).map_err(ApiProblem::invalid)?;
    let by = &context.principal.name;
    for _ in 0..MAX_ATTEMPTS {
        let (stored, mut plan) = guarded::find(&api, &id).await?.ok_or_else(|| missing(&id))?;
        context.require(scope(plan.kind))?;
        if plan.by == *by {
            let detail = format!("{by} sent the change; it needs the approval of somebody else");
            return Err(ApiProblem::new(StatusCode::FORBIDDEN, "same_identity", detail));
        }
        if plan.approvals.iter().all(|approval| approval.by != *by) {
            records::check_capacity(plan.approvals.len(), MAX_APPROVALS, "approvals of this plan")?;
            let at = Rfc3339(api.now());
            plan.approvals.push(Approval { by: by.clone(), at, reason: reason.clone() });
            let change = Change {
                name: stored.name,
                expect: Precondition::Generation(stored.generation),
                document: Some(records::to_text(&plan)),
                action: "plan.approve".to_owned(),
                reason: reason.clone(),
            };
            match api.write(&context.principal.author(), vec![change], None).await {
                Ok(_) => {}
                // Somebody else approved or used it.
                Err(ControlWriteError::Refused(WriteError::PreconditionFailed { .. })) => continue,
                Err(why) => return Err(why.into()),
            }
        }
        return Ok(Json(plan_json(&id, &plan, &context, guardrails(&context)?)).into_response());
    }
    let detail = "the plan is being changed by others; try again";
    Err(ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail))
}

/// Drop a plan: its write can't be confirmed any more
#[utoipa::path(
    delete, path = "/admin/v1/plans/{id}", operation_id = "plans_drop", tag = "plans",
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn drop_plan(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(id): PathParams<String>,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> ApiResult {
    let (_, plan) = guarded::find(&api, &id).await?.ok_or_else(|| missing(&id))?;
    context.require(scope(plan.kind))?;
    let answer = json!({"id": id, "dropped": true});
    let change = Change {
        name: plan_name(&id),
        expect: Precondition::Present,
        document: None,
        action: "plan.drop".to_owned(),
        reason: String::new(),
    };
    match api.write(&context.principal.author(), vec![change], None).await {
        Ok(_) => Ok(Json::<Value>(answer).into_response()),
        Err(ControlWriteError::Refused(WriteError::PreconditionFailed { .. })) => Err(missing(&id)),
        Err(why) => Err(why.into()),
    }
}

/// The scope that a write of this kind needs, and so its approval.
fn scope(kind: RecordKind) -> AccessScope {
    match kind {
        RecordKind::Quota => AccessScope::Quota,
        _ => AccessScope::Rules,
    }
}

fn missing(id: &str) -> ApiProblem {
    ApiProblem::not_found("not_found", format!("there is no plan {id}: it was used, was dropped, or has expired"))
}

fn guardrails(context: &RequestContext) -> Result<&Arc<Guardrails>, ApiProblem> {
    context.guardrails().ok_or_else(|| ApiProblem::not_found("guardrails_off", "guardrails are off on this server"))
}
