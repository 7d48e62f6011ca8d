//! Rules by API: a layer above the rule files, with versions and states.
//!
//! A rule is the record `rule`; each version that it ever had is a record `rule-version` beside it, written in the same transaction
//! and kept when the rule is deleted.

pub(super) mod form;
pub(super) mod tried;
pub(super) mod versions;
pub(super) mod write;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollgate::control::Moment;
use tollgate::control::documents::{RuleDocument, RuleState};
use tollgate_control::{Filter, Kind, Name, Stored};

use super::extract::{InDomain, Path, Query};
use super::names::{self, Page};
use super::{Answer, Api, Asked, Problem, records};
use crate::admin::who::Scope;

/// Which rules.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    domain: Option<String>,
    state: Option<RuleState>,
    after: Option<String>,
    limit: Option<usize>,
}

/// A rule in a list.
#[derive(Serialize)]
struct Item {
    rule_id: String,
    domain: String,
    status: &'static str,
    version: u64,
    author: String,
    reason: String,
    updated_at: Moment,
    generation: u64,
}

/// A value that would be, or is, another.
#[derive(Serialize)]
pub(super) struct ChangeTold {
    path: String,
    before: Option<String>,
    after: Option<String>,
}

/// The rules that were written by API
#[utoipa::path(
    get, path = "/v1/ratelimit/config", operation_id = "rules_list", tag = "rules",
    params(super::openapi::Listing, ("state" = Option<String>, Query, description = "draft, pending, shadow, active or off")),
    responses((status = 200, body = super::openapi::ListBody), (status = "default", response = super::openapi::Failed))
)]
pub(crate) async fn list(State(api): State<Api>, asked: Asked, Query(listed): Query<Listed>) -> Answer {
    asked.may(Scope::Read)?;
    let member = listed.state.map(|state| ("state".to_owned(), state.name().to_owned()));
    let filter = Filter { domain: listed.domain, member, ..Filter::of(Kind::Rule) };
    let (page, next) = records::page(&api, &filter, listed.after.as_deref(), listed.limit).await?;
    let items = page.into_iter().map(item).collect::<Result<Vec<_>, _>>()?;
    Ok(Json(Page { items, next }).into_response())
}

fn item(stored: Stored) -> Result<Item, Problem> {
    let document: RuleDocument = records::parsed(&stored)?;
    Ok(Item {
        rule_id: stored.name.name,
        domain: stored.name.domain,
        status: document.state.name(),
        version: document.version,
        author: document.author,
        reason: document.reason,
        updated_at: Moment(stored.updated_at),
        generation: stored.generation,
    })
}

/// A rule that was written by API
#[utoipa::path(
    get, path = "/v1/ratelimit/config/{rule_id}", operation_id = "rules_show", tag = "rules",
    params(super::openapi::OfDomain),
    responses((status = 200, body = Object), (status = "default", response = super::openapi::Failed))
)]
pub(crate) async fn show(
    State(api): State<Api>,
    asked: Asked,
    Path(rule): Path<String>,
    Query(named): Query<InDomain>,
) -> Answer {
    asked.may(Scope::Read)?;
    let stored = records::get(&api, &named_rule(&api, &named, &rule)?).await?;
    let document: RuleDocument = records::parsed(&stored)?;
    let mut answer = told(&stored.name, &document);
    answer["created_at"] = json!(Moment(stored.created_at));
    answer["updated_at"] = json!(Moment(stored.updated_at));
    Ok(records::shown(stored.generation, &answer))
}

/// Deletes a rule: the file's rule of that name, if there is one, is in force again
#[utoipa::path(
    delete, path = "/v1/ratelimit/config/{rule_id}", operation_id = "rules_delete", tag = "rules",
    params(super::openapi::OfDomain, super::openapi::Conditions),
    responses((status = 200, body = Object), (status = "default", response = super::openapi::Failed))
)]
pub(crate) async fn delete(
    State(api): State<Api>,
    asked: Asked,
    Path(rule): Path<String>,
    Query(named): Query<InDomain>,
) -> Answer {
    asked.may(Scope::Rules)?;
    let name = named_rule(&api, &named, &rule)?;
    let answer = json!({"rule_id": rule, "domain": name.domain, "deleted": true});
    records::delete(&api, &asked, name, "rule.delete", answer).await
}

/// The record of a rule that may be there. Its domain need not be in the rules any more.
fn named_rule(api: &Api, named: &InDomain, rule: &str) -> Result<Name, Problem> {
    let domain = match &named.domain {
        Some(domain) => domain.clone(),
        None => names::any_domain(&api.limiter().rules(), None)?.name().to_owned(),
    };
    Ok(Name::new(Kind::Rule, domain, rule))
}

/// A version of a rule, in full.
fn told(name: &Name, document: &RuleDocument) -> Value {
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

/// What differs between two versions.
fn changes(before: Option<&RuleDocument>, after: &RuleDocument) -> Vec<ChangeTold> {
    let text = before.map(|before| before.rule.get()).unwrap_or_default();
    let mut told: Vec<ChangeTold> = tollgate_rules::difference(text, after.rule.get())
        .into_iter()
        .map(|changed| ChangeTold { path: changed.path, before: changed.before, after: changed.after })
        .collect();
    let was = before.map(|before| before.state.name());
    if was != Some(after.state.name()) {
        let (before, after) = (was.map(str::to_owned), Some(after.state.name().to_owned()));
        told.push(ChangeTold { path: "state".to_owned(), before, after });
    }
    told
}
