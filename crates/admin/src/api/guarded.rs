//! Writes that guardrails hold: judged before they are made, confirmed by the id of their plan.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::json;
use tollgate_control::{Change, Db, Precondition, RecordFilter, RecordName, StoredRecord, WriteError};
use tollgate_records::documents::{SwitchDocument, SwitchMode};
use tollgate_records::{RecordKind, Rfc3339};
use tollgate_telemetry::metrics::GuardedWrite;

use super::{Api, ApiProblem, RequestContext};
use crate::guardrails::{Guardrails, HeldPlan, HeldReport, Judgement, PLAN_LIFETIME, PlanNeed, plan_id};
use crate::plan::PlannedRecord;
use crate::scopes::AccessScope;
use crate::store_of_record::{ControlWriteError, deletion, is_expired};

/// Says of a write that was made why nothing was known of what it would do.
pub(super) static GUARDRAIL: HeaderName = HeaderName::from_static("tollgate-guardrail");

/// The plans that are held at a time.
pub(super) const MAX_PLANS: usize = 256;

/// How long the answer to an emergency waits for a warning.
const WARNING_TIMEOUT: Duration = Duration::from_secs(5);

/// The name of callers who need no token, since the server has none.
const LOOPBACK: &str = "loopback";

/// A write that may be made.
#[derive(Clone, Default)]
pub(super) struct Passage {
    /// The plan that confirms it, which is used up in the same transaction.
    pub(super) plan: Option<Change>,
    /// Why nothing is known of what it does.
    note: Option<HeaderValue>,
}

/// A write to be judged.
pub(super) struct JudgedWrite<'a> {
    pub(super) context: &'a RequestContext,
    /// The record that it is named by.
    pub(super) name: RecordName,
    pub(super) action: &'a str,
    pub(super) reason: &'a str,
    /// Of the request.
    pub(super) digest: String,
}

impl Passage {
    /// Of a write that could not be judged, for this reason.
    pub(super) fn unjudged(why: &str) -> Passage {
        Passage::default().with_note(why)
    }

    /// Adds what is to be said to the response.
    pub(super) fn annotate(self, response: &mut axum::response::Response) {
        if let Some(note) = self.note {
            response.headers_mut().insert(&GUARDRAIL, note);
        }
    }

    fn with_note(self, note: &str) -> Passage {
        // Names of rules may have any characters.
        let visible = note.chars().map(|c| if c.is_ascii() && !c.is_ascii_control() { c } else { '?' });
        Passage { note: HeaderValue::try_from(visible.collect::<String>()).ok(), ..self }
    }
}

/// Whether a write of this record can refuse anything, so that it is judged. Blocks are meant to, and emergencies do not wait.
pub(super) fn may_refuse(kind: RecordKind, document: Option<&str>) -> bool {
    match kind {
        RecordKind::Rule | RecordKind::Quota => true,
        RecordKind::Switch => {
            let switch = document.and_then(|text| serde_json::from_str::<SwitchDocument>(text).ok());
            switch.is_none_or(|switch| switch.mode == SwitchMode::Enforce)
        }
        _ => false,
    }
}

impl JudgedWrite<'_> {
    /// Lets the write pass, or holds it.
    pub(super) async fn pass(
        &self,
        api: &Api,
        guardrails: &Arc<Guardrails>,
        records: Vec<PlannedRecord>,
    ) -> Result<Passage, ApiProblem> {
        let plan = match &self.context.confirm {
            Some(id) => Some(self.plan(api, id).await?),
            None => None,
        };
        let mut judgement = guardrails.judge(records).await?;
        if let (Judgement::Needs(needs, _), true) = (&mut judgement, self.is_alone()) {
            *needs = PlanNeed::Confirmation;
        }
        let found = plan.as_ref().map(|(_, plan)| plan.needs);
        let (needs, passage) = match &judgement {
            Judgement::Passes => (None, Passage::default()),
            Judgement::Unknown(why) => (None, Passage::unjudged(why)),
            Judgement::Needs(needs, _) => (Some(*needs), Passage::default()),
        };
        if let (Some((stored, plan)), true) = (plan, needs <= found) {
            if plan.needs == PlanNeed::Approval && !plan.is_approved() && !self.is_alone() {
                return Err(held(&stored.name.name, &plan, self.context, guardrails));
            }
            guardrails.count(GuardedWrite::Confirmed);
            let reason = format!("confirmed by its plan: {}", plan.report.sentence());
            let used = Change { action: "plan.confirm".to_owned(), reason, ..deletion(stored) };
            return Ok(Passage { plan: Some(used), ..passage });
        }
        match judgement {
            Judgement::Needs(needs, report) => Err(self.hold(api, guardrails, needs, report).await),
            Judgement::Passes => {
                guardrails.count(GuardedWrite::Passed);
                Ok(passage)
            }
            Judgement::Unknown(_) => {
                guardrails.count(GuardedWrite::Unknown);
                Ok(passage)
            }
        }
    }

    /// Whether there is nobody else to approve anything.
    fn is_alone(&self) -> bool {
        self.context.principal.name == LOOPBACK
    }

    /// The plan that is to confirm the request.
    async fn plan(&self, api: &Api, id: &str) -> Result<(StoredRecord, HeldPlan), ApiProblem> {
        let (stored, plan) = find(api, id).await?.ok_or_else(|| used_up(id))?;
        if plan.digest != self.digest {
            let detail =
                format!("the plan {id} is of another request; confirm the same request, or send this one without it");
            return Err(ApiProblem::new(StatusCode::CONFLICT, "other_plan", detail));
        }
        Ok((stored, plan))
    }

    /// Stores a plan for the write. The same request of the same sender has one.
    async fn hold(&self, api: &Api, guardrails: &Guardrails, needs: PlanNeed, report: HeldReport) -> ApiProblem {
        match self.try_hold(api, needs, report).await {
            Ok((id, plan)) => {
                guardrails.count(GuardedWrite::Held);
                held(&id, &plan, self.context, guardrails)
            }
            Err(problem) => problem,
        }
    }

    async fn try_hold(&self, api: &Api, needs: PlanNeed, report: HeldReport) -> Result<(String, HeldPlan), ApiProblem> {
        let (by, now) = (&self.context.principal.name, api.now());
        let stored = db(api)?.list(&RecordFilter::new(RecordKind::Plan), None, MAX_PLANS).await?;
        let mut live = 0;
        for one in &stored {
            let Ok(plan) = parse(one) else { continue };
            if !plan.is_live(now) {
                continue;
            }
            if plan.digest == self.digest && plan.by == *by && plan.needs == needs {
                return Ok((one.name.name.clone(), plan));
            }
            live += 1;
        }
        if live == MAX_PLANS {
            let detail = format!("the change has to be held, and {MAX_PLANS} others wait already; drop some of them");
            return Err(ApiProblem::new(StatusCode::UNPROCESSABLE_ENTITY, "too_many", detail));
        }
        // There may be as many that expired.
        let expired = stored.into_iter().filter(|one| is_expired(one, now)).map(deletion);
        let plan = HeldPlan {
            digest: self.digest.clone(),
            action: self.action.to_owned(),
            kind: self.name.kind,
            domain: self.name.domain.clone(),
            name: self.name.name.clone(),
            by: by.clone(),
            reason: self.reason.to_owned(),
            needs,
            approvals: Vec::new(),
            held_at: Rfc3339(now),
            expires_at: Rfc3339(now.after(PLAN_LIFETIME)),
            report,
        };
        let id = plan_id(&plan.digest, by, needs, now);
        let change = Change {
            name: plan_name(&id),
            expect: Precondition::Absent,
            document: Some(json!(plan).to_string()),
            action: "plan.hold".to_owned(),
            reason: plan.report.sentence(),
        };
        let changes = std::iter::once(change).chain(expired).collect();
        match api.write(&self.context.principal.author(), changes, None).await {
            Ok(_) => Ok((id, plan)),
            // Another server held the same request, or deleted the plans that expired.
            Err(ControlWriteError::Refused(WriteError::PreconditionFailed { .. })) => {
                let found = find(api, &id).await?.map(|(_, plan)| (id, plan));
                found.ok_or_else(|| {
                    let detail = "the change has to be held, and other plans are being changed; try again";
                    ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
                })
            }
            Err(why) => Err(why.into()),
        }
    }
}

/// Puts what an emergency does to recent traffic into its answer and into the audit log, if that is much. The
/// emergency is in force already.
pub(super) async fn warn_of(api: &Api, context: &RequestContext, name: &RecordName, document: &str) -> Option<String> {
    let guardrails = context.guardrails()?.clone();
    let record = PlannedRecord::new(name.kind, &name.domain, &name.name, Some(document));
    let (api, author, name) = (api.clone(), context.principal.author(), name.clone());
    // In its own task: the audit log has it also if the client is gone.
    let warning = tokio::spawn(async move {
        let Ok(Judgement::Needs(_, report)) = guardrails.judge(vec![record]).await else { return None };
        let warning = report.sentence();
        guardrails.count(GuardedWrite::Warned);
        let note = Change {
            name: RecordName { kind: RecordKind::Plan, ..name },
            expect: Precondition::Any,
            document: None,
            action: "emergency.warn".to_owned(),
            reason: warning.clone(),
        };
        if let Err(why) = api.write(&author, vec![note], None).await {
            let problem = ApiProblem::from(why);
            tracing::warn!("the audit log lacks a warning about an emergency, {warning}: {}", problem.detail);
        }
        Some(warning)
    });
    tokio::time::timeout(WARNING_TIMEOUT, warning).await.ok()?.ok()?
}

pub(super) fn plan_name(id: &str) -> RecordName {
    RecordName::new(RecordKind::Plan, "", id)
}

fn db(api: &Api) -> Result<&Db, ApiProblem> {
    api.db().ok_or_else(ApiProblem::off)
}

/// The plan of a record.
pub(super) fn parse(stored: &StoredRecord) -> Result<HeldPlan, ApiProblem> {
    serde_json::from_str(stored.document.as_deref().unwrap_or_default()).map_err(|error| {
        let detail = format!("the stored plan can't be read, a newer Tollgate may have written it: {error}");
        ApiProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "control_failed", detail)
    })
}

/// A plan that can still be confirmed.
pub(super) async fn find(api: &Api, id: &str) -> Result<Option<(StoredRecord, HeldPlan)>, ApiProblem> {
    let Some(stored) = db(api)?.get(&plan_name(id)).await? else { return Ok(None) };
    let plan = parse(&stored)?;
    Ok(plan.is_live(api.now()).then_some((stored, plan)))
}

/// There is no such plan any more.
pub(super) fn used_up(id: &str) -> ApiProblem {
    let detail = format!(
        "there is no plan {id}: it was used, was dropped, or has expired; send the request without it to have it judged again"
    );
    ApiProblem::new(StatusCode::CONFLICT, "no_plan", detail)
}

/// The answer to a write that is held.
fn held(id: &str, plan: &HeldPlan, context: &RequestContext, guardrails: &Guardrails) -> ApiProblem {
    let next = match plan.needs {
        PlanNeed::Confirmation => "send it again with the header `Tollgate-Confirm` and this id, if that is intended",
        PlanNeed::Approval => {
            "it needs the approval of somebody else; then send it again with the header `Tollgate-Confirm` and this id"
        }
    };
    let detail = format!("the change is held as plan {id}: {}; {next}", plan.report.sentence());
    let members = vec![("plan", plan_json(id, plan, context, guardrails))];
    ApiProblem { members, ..ApiProblem::new(StatusCode::CONFLICT, plan.needs.code(), detail) }
}

/// A plan with its report, as its reader may see it.
pub(super) fn plan_json(
    id: &str,
    plan: &HeldPlan,
    context: &RequestContext,
    guardrails: &Guardrails,
) -> serde_json::Value {
    let hash = |name: &str| guardrails.hash_key(name);
    let sees_all = context.principal.scopes.contains(AccessScope::Audit);
    let report = if sees_all { plan.report.clone() } else { plan.report.hidden(hash) };
    let is_caller = plan.kind == RecordKind::Quota;
    let sees_name = sees_all || !is_caller || context.principal.scopes.contains(AccessScope::Quota);
    json!({
        "id": id,
        "needs": plan.needs,
        "action": plan.action,
        "kind": plan.kind,
        "domain": plan.domain,
        "name": if sees_name { plan.name.clone() } else { hash(&plan.name) },
        "by": plan.by,
        "reason": plan.reason,
        "approvals": plan.approvals,
        "approved": plan.is_approved(),
        "held_at": plan.held_at,
        "expires_at": plan.expires_at,
        "report": report,
    })
}
