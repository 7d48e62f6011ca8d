//! Rules by API: a layer above the rule files, with versions and states.
//!
//! A rule is a record of kind `rule`; each of its versions is a record of kind `rule-version`, written in the same transaction and
//! retained when the rule is deleted.

pub(super) mod body;
pub(super) mod validate;
pub(super) mod versions;
pub(super) mod write;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollgate_control::{RecordFilter, RecordName, StoredRecord};
use tollgate_records::RecordKind;
use tollgate_records::Rfc3339;
use tollgate_records::documents::{RuleDocument, RuleState};

use super::extract::{DomainQuery, PathParams, Query};
use super::names::{self, ListPage};
use super::records::PreparedWrite;
use super::{Api, ApiProblem, ApiResult, RequestContext, records};
use crate::scopes::AccessScope;

/// Selects rules.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleListQuery {
    domain: Option<String>,
    state: Option<RuleState>,
    after: Option<String>,
    limit: Option<usize>,
}

/// A rule in a list.
#[derive(Serialize)]
struct RuleListItem {
    rule_id: String,
    domain: String,
    status: &'static str,
    version: u64,
    author: String,
    reason: String,
    updated_at: Rfc3339,
    generation: u64,
}

/// A changed value.
#[derive(Serialize)]
pub(super) struct RuleChange {
    path: String,
    before: Option<String>,
    after: Option<String>,
}

/// List rules by API
#[utoipa::path(
    get, path = "/v1/ratelimit/config", operation_id = "rules_list", tag = "rules",
    params(super::description::Listing, ("state" = Option<String>, Query, description = "draft, pending, shadow, active or off")),
    responses((status = 200, body = super::description::ListBody), (status = "default", response = super::description::Failed))
)]
pub(super) async fn list(
    State(api): State<Api>,
    context: RequestContext,
    Query(query): Query<RuleListQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let member = query.state.map(|state| ("state".to_owned(), state.name().to_owned()));
    let filter = RecordFilter { domain: query.domain, member, ..RecordFilter::new(RecordKind::Rule) };
    let (page, next) = records::page(&api, &filter, query.after.as_deref(), query.limit).await?;
    let items = page.into_iter().map(item).collect::<Result<Vec<_>, _>>()?;
    Ok(Json(ListPage { items, next }).into_response())
}

fn item(stored: StoredRecord) -> Result<RuleListItem, ApiProblem> {
    let document: RuleDocument = records::parse_document(&stored)?;
    Ok(RuleListItem {
        rule_id: stored.name.name,
        domain: stored.name.domain,
        status: document.state.name(),
        version: document.version,
        author: document.author,
        reason: document.reason,
        updated_at: Rfc3339(stored.updated_at),
        generation: stored.generation,
    })
}

/// Show a rule by API
#[utoipa::path(
    get, path = "/v1/ratelimit/config/{rule_id}", operation_id = "rules_show", tag = "rules",
    params(super::description::OfDomain),
    responses((status = 200, body = Object), (status = "default", response = super::description::Failed))
)]
pub(super) async fn show(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(rule): PathParams<String>,
    Query(query): Query<DomainQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let stored = records::get(&api, &rule_name(&api, &query, &rule)?).await?;
    let document: RuleDocument = records::parse_document(&stored)?;
    let mut answer = to_json(&stored.name, &document);
    answer["created_at"] = json!(Rfc3339(stored.created_at));
    answer["updated_at"] = json!(Rfc3339(stored.updated_at));
    Ok(records::tagged_response(stored.generation, &answer))
}

/// Delete a rule: the rule of that name in the files, if any, applies again
#[utoipa::path(
    delete, path = "/v1/ratelimit/config/{rule_id}", operation_id = "rules_delete", tag = "rules",
    params(super::description::OfDomain, super::description::Conditions),
    responses((status = 200, body = Object), (status = "default", response = super::description::Failed))
)]
pub(super) async fn delete(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(rule): PathParams<String>,
    Query(query): Query<DomainQuery>,
) -> ApiResult {
    context.require(AccessScope::Rules)?;
    let name = rule_name(&api, &query, &rule)?;
    let answer = json!({"rule_id": rule, "domain": name.domain, "deleted": true});
    let prepare = |stored: Option<&StoredRecord>| {
        let before = stored.map(records::parse_document::<RuleDocument>).transpose()?;
        require_for_off(&context, before.as_ref(), None)?;
        Ok(PreparedWrite::deleted(answer.clone()))
    };
    records::delete_checked(&api, &context, name, "rule.delete", prepare).await
}

/// Fails if the write puts a rule out of force, or in force again, and the caller could not set a kill switch.
fn require_for_off(
    context: &RequestContext,
    before: Option<&RuleDocument>,
    after: Option<&RuleDocument>,
) -> Result<(), ApiProblem> {
    match (after.is_some_and(RuleDocument::is_off), before.is_some_and(RuleDocument::is_off)) {
        (true, _) => context.require_emergency("it is needed to put a rule out of force"),
        (false, true) => context.require_emergency("it is needed to put a rule in force that is off"),
        (false, false) => Ok(()),
    }
}

/// The name of a rule's record. Its domain need not exist any more.
fn rule_name(api: &Api, query: &DomainQuery, rule: &str) -> Result<RecordName, ApiProblem> {
    let domain = match &query.domain {
        Some(domain) => domain.clone(),
        None => names::any_domain(&api.limiter().rules(), None)?.name().to_owned(),
    };
    Ok(RecordName::new(RecordKind::Rule, domain, rule))
}

/// The JSON form of a version.
fn to_json(name: &RecordName, document: &RuleDocument) -> Value {
    json!({
        "rule_id": name.name,
        "domain": name.domain,
        "status": document.state.name(),
        "version": document.version,
        "rule": document.rule,
        "author": document.author,
        "reason": document.reason,
    })
}

/// The differences between two versions.
fn changes(before: Option<&RuleDocument>, after: &RuleDocument) -> Vec<RuleChange> {
    let text = before.map(|before| before.rule.get()).unwrap_or_default();
    let mut changes: Vec<RuleChange> = tollgate_rules::difference(text, after.rule.get())
        .into_iter()
        .map(|changed| RuleChange { path: changed.path, before: changed.before, after: changed.after })
        .collect();
    let old_state = before.map(|before| before.state.name());
    if old_state != Some(after.state.name()) {
        let (before, after) = (old_state.map(str::to_owned), Some(after.state.name().to_owned()));
        changes.push(RuleChange { path: "state".to_owned(), before, after });
    }
    changes
}
