//! The versions of a rule, and what differs between them.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::control::Moment;
use tollgate::control::documents::RuleDocument;
use tollgate_control::{Filter, Kind, Name, Stored};

use super::super::extract::{InDomain, Path, Query};
use super::super::names::Page;
use super::super::{Answer, Api, Asked, Problem, openapi, records};
use super::{changes, named_rule, told};
use crate::admin::who::Scope;

/// Which versions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    domain: Option<String>,
    after: Option<u64>,
    limit: Option<usize>,
}

/// Which two.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Between {
    domain: Option<String>,
    from: Option<u64>,
    to: Option<u64>,
}

/// Digits of a version in the name of its record, so that records come in the order of versions.
const DIGITS: usize = 10;

/// The versions of a rule, the newest first
#[utoipa::path(
    get, path = "/v1/ratelimit/config/{rule_id}/versions", operation_id = "rules_versions", tag = "rules",
    params(openapi::OfDomain, openapi::Paged),
    responses((status = 200, body = openapi::ListBody), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn list(
    State(api): State<Api>,
    asked: Asked,
    Path(rule): Path<String>,
    Query(listed): Query<Listed>,
) -> Answer {
    asked.may(Scope::Read)?;
    let most = records::most(listed.limit)?;
    let name = named_rule(&api, &InDomain { domain: listed.domain }, &rule)?;
    let mut below = listed.after.unwrap_or(count(&api, &name).await? + 1);
    let mut items = Vec::new();
    // Versions have no gaps, but for rules with names like those of another's versions.
    while below > 1 && items.len() < most {
        let first = below.saturating_sub((most - items.len()) as u64).max(1);
        let page = range(&api, &name, first, below).await?;
        for stored in page.iter().rev() {
            items.push(item(&name, stored)?);
        }
        below = first;
    }
    if items.is_empty() && listed.after.is_none() {
        return Err(records::missing(&name));
    }
    let next = (below > 1).then(|| below.to_string());
    Ok(Json(Page { items, next }).into_response())
}

/// The records of the versions from `first` on and before `below`, in their order.
async fn range(api: &Api, name: &Name, first: u64, below: u64) -> Result<Vec<Stored>, Problem> {
    let filter = versions(name);
    let after = version_name(name, first - 1);
    let most = usize::try_from(below - first).unwrap_or(usize::MAX);
    let mut page = records::db(api)?.list(&filter, Some(&after), most).await?;
    page.retain(|stored| number(name, stored).is_some_and(|number| (first..below).contains(&number)));
    Ok(page)
}

/// A version of a rule
#[utoipa::path(
    get, path = "/v1/ratelimit/config/{rule_id}/versions/{version}", operation_id = "rules_version", tag = "rules",
    params(openapi::OfDomain),
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn show(
    State(api): State<Api>,
    asked: Asked,
    Path((rule, version)): Path<(String, u64)>,
    Query(named): Query<InDomain>,
) -> Answer {
    asked.may(Scope::Read)?;
    let name = named_rule(&api, &named, &rule)?;
    let stored = stored(&api, &name, version).await?;
    let document: RuleDocument = records::parsed(&stored)?;
    let mut answer = told(&name, &document);
    answer["created_at"] = json!(Moment(stored.created_at));
    Ok(records::shown(stored.generation, &answer))
}

/// What differs between two versions of a rule
#[utoipa::path(
    get, path = "/v1/ratelimit/config/{rule_id}/diff", operation_id = "rules_diff", tag = "rules",
    params(
        openapi::OfDomain,
        ("from" = Option<u64>, Query, description = "By default the version before `to`"),
        ("to" = Option<u64>, Query, description = "By default the latest")
    ),
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn diff(
    State(api): State<Api>,
    asked: Asked,
    Path(rule): Path<String>,
    Query(between): Query<Between>,
) -> Answer {
    asked.may(Scope::Read)?;
    let name = named_rule(&api, &InDomain { domain: between.domain }, &rule)?;
    let latest = match records::db(&api)?.get(&name).await? {
        Some(stored) => records::parsed::<RuleDocument>(&stored)?.version,
        None => count(&api, &name).await?,
    };
    let to = between.to.unwrap_or(latest);
    let from = between.from.unwrap_or(to.saturating_sub(1));
    let after = get(&api, &name, to).await?;
    // Before the first there is nothing.
    let before = match from {
        0 => None,
        from => Some(get(&api, &name, from).await?),
    };
    let answer = json!({"from": from, "to": to, "changes": changes(before.as_ref(), &after)});
    Ok(Json(answer).into_response())
}

fn item(name: &Name, stored: &Stored) -> Result<Value, Problem> {
    let document: RuleDocument = records::parsed(stored)?;
    Ok(json!({
        "rule_id": name.name,
        "domain": name.domain,
        "version": document.version,
        "status": document.state.name(),
        "author": document.author,
        "reason": document.reason,
        "created_at": Moment(stored.created_at),
        "generation": stored.generation,
    }))
}

/// A version, which must be there.
pub(super) async fn get(api: &Api, name: &Name, version: u64) -> Result<RuleDocument, Problem> {
    records::parsed(&stored(api, name, version).await?)
}

async fn stored(api: &Api, name: &Name, version: u64) -> Result<Stored, Problem> {
    let found = records::db(api)?.get(&version_name(name, version)).await?;
    found.ok_or_else(|| Problem::not_found("not_found", format!("the rule {:?} has no version {version}", name.name)))
}

/// How many versions a rule has had. It may be more, where another rule has a name like those of its versions, and never less.
pub(super) async fn count(api: &Api, name: &Name) -> Result<u64, Problem> {
    Ok(records::db(api)?.count(&versions(name)).await?)
}

fn versions(name: &Name) -> Filter {
    let prefix = Some(format!("{}@", name.name));
    Filter { domain: Some(name.domain.clone()), prefix, ..Filter::of(Kind::RuleVersion) }
}

/// The record of a version.
pub(super) fn version_name(rule: &Name, version: u64) -> Name {
    Name::new(Kind::RuleVersion, &rule.domain, format!("{}@{version:0DIGITS$}", rule.name))
}

/// Which version of a rule it is, if it is one of this rule.
fn number(rule: &Name, stored: &Stored) -> Option<u64> {
    let digits = stored.name.name.strip_prefix(&rule.name)?.strip_prefix('@')?;
    digits.parse().ok().filter(|_| digits.len() >= DIGITS && digits.bytes().all(|b| b.is_ascii_digit()))
}
