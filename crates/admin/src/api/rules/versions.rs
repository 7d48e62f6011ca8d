//! The versions of a rule, and their differences.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_control::{RecordFilter, RecordName, StoredRecord};
use tollgate_records::RecordKind;
use tollgate_records::Rfc3339;
use tollgate_records::documents::RuleDocument;

#[cfg(test)]
use super::super::description;
use super::super::extract::{DomainQuery, PathParams, Query};
use super::super::names::ListPage;
use super::super::{Api, ApiProblem, ApiResult, RequestContext, records};
use super::{changes, rule_name, to_json};
use crate::scopes::AccessScope;

/// Selects versions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VersionListQuery {
    domain: Option<String>,
    after: Option<u64>,
    limit: Option<usize>,
}

/// Selects two versions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiffQuery {
    domain: Option<String>,
    from: Option<u64>,
    to: Option<u64>,
}

/// Digits of a version in its record name, so that records sort by version.
const DIGITS: usize = 10;

/// List the versions of a rule, newest first
#[utoipa::path(
    get, path = "/v1/ratelimit/config/{rule_id}/versions", operation_id = "rules_versions", tag = "rules",
    params(description::OfDomain, description::Paged),
    responses((status = 200, body = description::ListBody), (status = "default", response = description::Failed))
)]
pub(crate) async fn list(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(rule): PathParams<String>,
    Query(query): Query<VersionListQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let page_size = records::page_size(query.limit)?;
    let name = rule_name(&api, &DomainQuery { domain: query.domain }, &rule)?;
    let mut below = query.after.unwrap_or(count(&api, &name).await? + 1);
    let mut items = Vec::new();
    // Versions have no gaps, except where another rule has a name like those of versions.
    while below > 1 && items.len() < page_size {
        let first = below.saturating_sub((page_size - items.len()) as u64).max(1);
        let page = range(&api, &name, first, below).await?;
        for stored in page.iter().rev() {
            items.push(item(&name, stored)?);
        }
        below = first;
    }
    if items.is_empty() && query.after.is_none() {
        return Err(records::missing(&name));
    }
    let next = (below > 1).then(|| below.to_string());
    Ok(Json(ListPage { items, next }).into_response())
}

/// The records of the versions from `first` to before `below`, in order. Records of rules that are called like a version stand
/// between those of its own, and may fill a page of the store.
async fn range(api: &Api, name: &RecordName, first: u64, below: u64) -> Result<Vec<StoredRecord>, ApiProblem> {
    let (db, filter) = (records::db(api)?, versions(name));
    let mut found = Vec::new();
    let mut next = first;
    while next < below {
        let page_size = usize::try_from(below - next).unwrap_or(usize::MAX);
        let mut page = db.list(&filter, Some(&version_name(name, next - 1)), page_size).await?;
        let is_last = page.len() < page_size;
        page.retain(|stored| number(name, stored).is_some_and(|number| (next..below).contains(&number)));
        next = match page.last().and_then(|last| number(name, last)) {
            _ if is_last => below,
            Some(last) => last + 1,
            None => {
                page.extend(db.get(&version_name(name, next)).await?);
                next + 1
            }
        };
        found.append(&mut page);
    }
    Ok(found)
}

/// Show a version of a rule
#[utoipa::path(
    get, path = "/v1/ratelimit/config/{rule_id}/versions/{version}", operation_id = "rules_version", tag = "rules",
    params(description::OfDomain),
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(crate) async fn show(
    State(api): State<Api>,
    context: RequestContext,
    PathParams((rule, version)): PathParams<(String, u64)>,
    Query(query): Query<DomainQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let name = rule_name(&api, &query, &rule)?;
    let stored = stored(&api, &name, version).await?;
    let document: RuleDocument = records::parse_document(&stored)?;
    let mut answer = to_json(&name, &document);
    answer["created_at"] = json!(Rfc3339(stored.created_at));
    Ok(records::tagged_response(stored.generation, &answer))
}

/// Compare two versions of a rule
#[utoipa::path(
    get, path = "/v1/ratelimit/config/{rule_id}/diff", operation_id = "rules_diff", tag = "rules",
    params(
        description::OfDomain,
        ("from" = Option<u64>, Query, description = "The version before `to` by default"),
        ("to" = Option<u64>, Query, description = "The latest by default")
    ),
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(crate) async fn diff(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(rule): PathParams<String>,
    Query(query): Query<DiffQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let name = rule_name(&api, &DomainQuery { domain: query.domain }, &rule)?;
    let latest = match records::db(&api)?.get(&name).await? {
        Some(stored) => records::parse_document::<RuleDocument>(&stored)?.version,
        None => count(&api, &name).await?,
    };
    let to = query.to.unwrap_or(latest);
    let from = query.from.unwrap_or(to.saturating_sub(1));
    let after = get(&api, &name, to).await?;
    // There is nothing before the first.
    let before = match from {
        0 => None,
        from => Some(get(&api, &name, from).await?),
    };
    let answer = json!({"from": from, "to": to, "changes": changes(before.as_ref(), &after)});
    Ok(Json(answer).into_response())
}

fn item(name: &RecordName, stored: &StoredRecord) -> Result<Value, ApiProblem> {
    let document: RuleDocument = records::parse_document(stored)?;
    Ok(json!({
        "rule_id": name.name,
        "domain": name.domain,
        "version": document.version,
        "status": document.state.name(),
        "author": document.author,
        "reason": document.reason,
        "created_at": Rfc3339(stored.created_at),
        "generation": stored.generation,
    }))
}

/// A version that must exist.
pub(super) async fn get(api: &Api, name: &RecordName, version: u64) -> Result<RuleDocument, ApiProblem> {
    records::parse_document(&stored(api, name, version).await?)
}

async fn stored(api: &Api, name: &RecordName, version: u64) -> Result<StoredRecord, ApiProblem> {
    let found = records::db(api)?.get(&version_name(name, version)).await?;
    found
        .ok_or_else(|| ApiProblem::not_found("not_found", format!("the rule {:?} has no version {version}", name.name)))
}

/// The number of versions of a rule. It may be too high where another rule has a name like those of versions, never too low.
pub(super) async fn count(api: &Api, name: &RecordName) -> Result<u64, ApiProblem> {
    Ok(records::db(api)?.count(&versions(name)).await?)
}

fn versions(name: &RecordName) -> RecordFilter {
    let prefix = Some(format!("{}@", name.name));
    RecordFilter { domain: Some(name.domain.clone()), prefix, ..RecordFilter::new(RecordKind::RuleVersion) }
}

/// The name of a version's record.
pub(super) fn version_name(rule: &RecordName, version: u64) -> RecordName {
    RecordName::new(RecordKind::RuleVersion, &rule.domain, format!("{}@{version:0DIGITS$}", rule.name))
}

/// The version number of a record, if it belongs to this rule.
fn number(rule: &RecordName, stored: &StoredRecord) -> Option<u64> {
    let digits = stored.name.name.strip_prefix(&rule.name)?.strip_prefix('@')?;
    digits.parse().ok().filter(|_| digits.len() >= DIGITS && digits.bytes().all(|b| b.is_ascii_digit()))
}
