//! Switches: they override the mode of rules. `off` is the kill switch.

use std::collections::BTreeMap;

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::Timestamp;
use tollgate_control::{RecordFilter, RecordName, StoredRecord};
use tollgate_records::RecordKind;
use tollgate_records::Rfc3339;
use tollgate_records::documents::{FieldFaults, SwitchDocument, SwitchMode};
use tollgate_rules::Switch;

use super::body::{self, RequestBody};
#[cfg(test)]
use super::description;
use super::expiry::Expiry;
use super::extract::{EmptyQuery, PageQuery, PathParams, Query};
use super::records::{self, PreparedWrite, RecordWrite};
use super::{Api, ApiProblem, ApiResult, RequestContext, WriteResult, names};
use crate::scopes::AccessScope;

/// The setting of a switch.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SwitchBody {
    /// `off`, `shadow`, `soft` or `enforce`.
    #[schema(value_type = String)]
    mode: SwitchMode,
    reason: Option<String>,
    /// When the switch ends; never by default.
    #[schema(value_type = Option<String>)]
    expires_at: Option<Rfc3339>,
    /// Or how long it lasts: `1h`.
    r#for: Option<String>,
}

/// List switches
#[utoipa::path(
    get, path = "/admin/v1/switches", operation_id = "switches_list", tag = "switches", params(description::Listing),
    responses((status = 200, body = description::ListBody), (status = "default", response = description::Failed))
)]
pub(super) async fn list(State(api): State<Api>, context: RequestContext, Query(query): Query<PageQuery>) -> ApiResult {
    context.require(AccessScope::Read)?;
    let filter = RecordFilter { domain: query.domain, ..RecordFilter::new(RecordKind::Switch) };
    records::list(&api, &filter, query.after.as_deref(), query.limit, to_json).await
}

/// The target of a switch, from the path: everything, a domain, or a rule.
pub(super) type SwitchPath = BTreeMap<String, String>;

/// Set a switch
#[utoipa::path(
    put, path = "/admin/v1/switches/everything", operation_id = "switches_put", tag = "switches",
    params(description::Conditions), request_body = SwitchBody,
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn put(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(path): PathParams<SwitchPath>,
    Query(EmptyQuery {}): Query<EmptyQuery>,
    body: RequestBody,
) -> WriteResult {
    require_rules_or_emergency(&context)?;
    let body = body.read_new(&api, &context).await?;
    let switch: SwitchBody = body::parse(&body)?;
    if switch.mode == SwitchMode::Off {
        context.require_emergency("it is needed to switch rules off")?;
    }
    let name = name(&path);
    // A kill switch for a missing target would have no effect.
    if !name.domain.is_empty() {
        let rules = api.limiter().rules();
        let domain = names::domain(&rules, Some(&name.domain))?;
        if !name.name.is_empty() {
            names::rule(domain, &name.name)?;
        }
    }
    let document = switch.document(api.now())?;
    let writing =
        RecordWrite { context: &context, name, action: "switch.put", reason: document.reason.clone(), body: &body };
    let answer = to_json(&writing.name, &document, api.now());
    let target = writing.name.clone();
    let prepare = |stored: Option<&StoredRecord>| {
        check_replaced(&api, &context, &target, stored)?;
        Ok(PreparedWrite::new(&document, answer.clone()))
    };
    records::write(&api, writing, prepare).await.map_err(Into::into)
}

/// Show a switch
#[utoipa::path(
    get, path = "/admin/v1/switches/everything", operation_id = "switches_show", tag = "switches",
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn show(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(path): PathParams<SwitchPath>,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    records::show(&api, &name(&path), to_json).await
}

/// Delete a switch: the rule files apply again
#[utoipa::path(
    delete, path = "/admin/v1/switches/everything", operation_id = "switches_delete", tag = "switches",
    params(description::Conditions),
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn delete(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(path): PathParams<SwitchPath>,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> ApiResult {
    require_rules_or_emergency(&context)?;
    let name = name(&path);
    let mut answer = target_json(&name);
    answer["deleted"] = json!(true);
    let target = name.clone();
    let prepare = |stored: Option<&StoredRecord>| {
        check_replaced(&api, &context, &target, stored)?;
        Ok(PreparedWrite::deleted(answer.clone()))
    };
    records::delete_checked(&api, &context, name, "switch.delete", prepare).await
}

/// Fails if the write would end a kill switch, and the caller could not set one. The switches in force count too: while the store of
/// record is unavailable, it is not known what it has.
fn check_replaced(
    api: &Api,
    context: &RequestContext,
    name: &RecordName,
    stored: Option<&StoredRecord>,
) -> Result<(), ApiProblem> {
    let before = stored.map(records::parse_document::<SwitchDocument>).transpose()?;
    let is_stored = before
        .is_some_and(|before| before.mode == SwitchMode::Off && before.expires_at.is_none_or(|end| end.0 > api.now()));
    let is_target = |switch: &Switch| {
        switch.domain.as_deref().unwrap_or_default() == name.domain
            && switch.rule.as_deref().unwrap_or_default() == name.name
    };
    let is_off = |switch: &Switch| switch.mode == SwitchMode::Off.mode() && is_target(switch);
    if is_stored || api.current_layer().switches.iter().any(is_off) {
        context.require_emergency("it is needed to end a kill switch")?;
    }
    Ok(())
}

/// Requires the scope `rules` or `emergency`.
fn require_rules_or_emergency(context: &RequestContext) -> Result<(), ApiProblem> {
    context.require(AccessScope::Rules).or_else(|_| context.require(AccessScope::Emergency))
}

fn name(path: &SwitchPath) -> RecordName {
    let part = |part: &str| path.get(part).cloned().unwrap_or_default();
    RecordName::new(RecordKind::Switch, part("domain"), part("rule"))
}

fn target_json(name: &RecordName) -> Value {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let (domain, rule) = (some(&name.domain), some(&name.name));
    let what = match (&domain, &rule) {
        (_, Some(_)) => "rule",
        (Some(_), None) => "domain",
        (None, None) => "everything",
    };
    json!({"what": what, "domain": domain, "rule": rule})
}

fn to_json(name: &RecordName, document: &SwitchDocument, now: Timestamp) -> Value {
    let mut to_json = target_json(name);
    to_json["mode"] = json!(document.mode);
    to_json["reason"] = json!(document.reason);
    to_json["expires_at"] = json!(document.expires_at);
    to_json["in_force"] = json!(document.expires_at.is_none_or(|end| end.0 > now));
    to_json
}

impl SwitchBody {
    fn document(self, now: Timestamp) -> Result<SwitchDocument, ApiProblem> {
        let mut faults = FieldFaults::default();
        let expires_at = Expiry { expires_at: self.expires_at, lasts: self.r#for.as_deref() }.moment(now, &mut faults);
        let document = SwitchDocument { mode: self.mode, expires_at, reason: self.reason.unwrap_or_default() };
        document.check(&mut faults);
        faults.into_result(document).map_err(ApiProblem::invalid)
    }
}
