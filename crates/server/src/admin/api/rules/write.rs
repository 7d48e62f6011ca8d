//! Rules, written: put, set to another state, rolled back. Each write is a new version.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::control::Fault;
use tollgate::control::documents::{Faults, RuleDocument, RuleState};
use tollgate_control::{Change, Expect, Kind, Name, Stored};

use super::super::extract::{InDomain, Path, Query, flag};
use super::super::records::{self, Made, Writing};
use super::super::{Answer, Api, Asked, Problem, body, names, openapi, until};
use super::tried::{tried, tried_now};
use super::versions::{self, version_name};
use super::{changes, form, named_rule};
use crate::admin::who::Scope;

/// Where a rule is put, and whether in earnest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Put {
    domain: Option<String>,
    dry_run: Option<String>,
}

/// Another state.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StateBody {
    /// `draft`, `pending`, `shadow`, `active` or `off`.
    #[schema(value_type = String)]
    state: RuleState,
    #[serde(default)]
    reason: String,
}

/// A version to go back to.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollbackBody {
    /// The version whose rule is wanted.
    version: u64,
    #[serde(default)]
    reason: String,
}

/// A version that is about to be written: all but its number.
struct Wanted {
    name: Name,
    action: &'static str,
    reason: String,
    /// How many versions there were, as far as is known.
    versions: u64,
}

/// Puts a rule above the files
#[utoipa::path(
    put, path = "/v1/ratelimit/config/{rule_id}", operation_id = "rules_put", tag = "rules",
    params(openapi::OfDomain, openapi::Conditions, ("dry_run" = Option<bool>, Query, description = "Nothing is written: what would change is told")),
    request_body = openapi::RuleBody,
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn put(
    State(api): State<Api>,
    asked: Asked,
    Path(rule): Path<String>,
    Query(put): Query<Put>,
    headers: HeaderMap,
    sent: Body,
) -> Answer {
    asked.may(Scope::Rules)?;
    let dry_run = flag("dry_run", put.dry_run.as_deref())?;
    let sent = body::whole(&headers, sent).await?;
    if let Some(again) = again(&api, &asked, &sent, dry_run).await? {
        return Ok(again);
    }
    let rules = api.limiter().rules();
    let domain = names::any_domain(&rules, put.domain.as_deref())?.name().to_owned();
    let form = form::read(&sent)?;
    let name = Name::new(Kind::Rule, domain, rule);
    let document = |_: Option<&RuleDocument>| RuleDocument {
        version: 0,
        state: form.state,
        rule: form.rule.clone(),
        author: asked.who.name.clone(),
        reason: form.reason.clone(),
    };
    if dry_run {
        return dry(&api, &asked, &name, document(None)).await;
    }
    let warnings = tried(&api, &name, &document(None)).await?;
    let versions = versions::count(&api, &name).await?;
    let wanted = Wanted { name, action: "rule.put", reason: form.reason.clone(), versions };
    records::write(&api, wanted.writing(&asked, &sent), |stored| {
        let before = stored.map(records::parsed::<RuleDocument>).transpose()?;
        wanted.made(before.as_ref(), document(before.as_ref()), &warnings)
    })
    .await
}

/// Sets a rule to another state
#[utoipa::path(
    post, path = "/v1/ratelimit/config/{rule_id}/state", operation_id = "rules_state", tag = "rules",
    params(openapi::OfDomain, openapi::Conditions), request_body = StateBody,
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn state(
    State(api): State<Api>,
    asked: Asked,
    Path(rule): Path<String>,
    Query(named): Query<InDomain>,
    headers: HeaderMap,
    sent: Body,
) -> Answer {
    asked.may(Scope::Rules)?;
    let sent = body::whole(&headers, sent).await?;
    if let Some(again) = records::again(&api, &asked, &sent).await? {
        return Ok(again);
    }
    let name = named_rule(&api, &named, &rule)?;
    let StateBody { state, reason } = body::parsed(&sent)?;
    reason_fits(&reason)?;
    let wanted = Wanted { name, action: "rule.state", reason: reason.clone(), versions: 0 };
    let document = |before: Option<&RuleDocument>| {
        let before = before.ok_or_else(|| records::missing(&wanted.name))?;
        let author = asked.who.name.clone();
        Ok(RuleDocument { state, author, reason: reason.clone(), ..before.clone() })
    };
    remade(&api, &asked, &wanted, &sent, document).await
}

/// Goes back to the rule of an earlier version
#[utoipa::path(
    post, path = "/v1/ratelimit/config/{rule_id}/rollback", operation_id = "rules_rollback", tag = "rules",
    params(openapi::OfDomain, openapi::Conditions), request_body = RollbackBody,
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn rollback(
    State(api): State<Api>,
    asked: Asked,
    Path(rule): Path<String>,
    Query(named): Query<InDomain>,
    headers: HeaderMap,
    sent: Body,
) -> Answer {
    asked.may(Scope::Rules)?;
    let sent = body::whole(&headers, sent).await?;
    if let Some(again) = records::again(&api, &asked, &sent).await? {
        return Ok(again);
    }
    let name = named_rule(&api, &named, &rule)?;
    let RollbackBody { version, reason } = body::parsed(&sent)?;
    reason_fits(&reason)?;
    let old = versions::get(&api, &name, version).await?;
    let versions = versions::count(&api, &name).await?;
    let wanted = Wanted { name, action: "rule.rollback", reason: reason.clone(), versions };
    // It stays in the state that it is in. One that was deleted is in that which it had.
    let document = |before: Option<&RuleDocument>| {
        let state = before.map_or(old.state, |before| before.state);
        let author = asked.who.name.clone();
        Ok(RuleDocument { state, author, reason: reason.clone(), ..old.clone() })
    };
    remade(&api, &asked, &wanted, &sent, document).await
}

/// Writes a version that is made of the one before, if it is sound.
async fn remade(
    api: &Api,
    asked: &Asked,
    wanted: &Wanted,
    sent: &[u8],
    document: impl Fn(Option<&RuleDocument>) -> Result<RuleDocument, Problem>,
) -> Answer {
    let stored = records::db(api)?.get(&wanted.name).await?;
    let before = stored.as_ref().map(records::parsed::<RuleDocument>).transpose()?;
    let warnings = tried(api, &wanted.name, &document(before.as_ref())?).await?;
    let seen = stored.map(|stored| stored.generation);
    records::write(api, wanted.writing(asked, sent), |stored| {
        let before = stored.map(records::parsed::<RuleDocument>).transpose()?;
        let document = document(before.as_ref())?;
        // Somebody else wrote meanwhile: what was tried is not what would be written.
        let warnings = match stored.map(|stored: &Stored| stored.generation) == seen {
            true => warnings.clone(),
            false => tried_now(api, &wanted.name, &document)?,
        };
        wanted.made(before.as_ref(), document, &warnings)
    })
    .await
}

/// What was answered before; a dry run is not remembered.
async fn again(
    api: &Api,
    asked: &Asked,
    sent: &[u8],
    dry_run: bool,
) -> Result<Option<axum::response::Response>, Problem> {
    if dry_run { Ok(None) } else { records::again(api, asked, sent).await }
}

/// What would become of a rule.
async fn dry(api: &Api, asked: &Asked, name: &Name, document: RuleDocument) -> Answer {
    let stored = records::db(api)?.get(name).await?;
    records::holds(asked, stored.as_ref())?;
    let before = stored.as_ref().map(records::parsed::<RuleDocument>).transpose()?;
    let warnings = tried(api, name, &document).await?;
    let changes = changes(before.as_ref(), &document);
    let answer = json!({"dry_run": true, "valid": true, "changes": changes, "warnings": warnings});
    Ok(Json(answer).into_response())
}

fn reason_fits(reason: &str) -> Result<(), Problem> {
    let mut faults = Faults::default();
    until::reason_fits(reason, &mut faults);
    faults.unless(()).map_err(Problem::invalid)
}

impl Wanted {
    fn writing<'a>(&self, asked: &'a Asked, body: &'a [u8]) -> Writing<'a> {
        Writing { asked, name: self.name.clone(), action: self.action, reason: self.reason.clone(), body }
    }

    /// The next version, and what is answered.
    fn made(&self, before: Option<&RuleDocument>, document: RuleDocument, warnings: &[Fault]) -> Result<Made, Problem> {
        let last = before.map_or(self.versions, |before| before.version.max(self.versions));
        let document = RuleDocument { version: last + 1, ..document };
        let mut answer: Value = json!({
            "rule_id": self.name.name,
            "domain": self.name.domain,
            "status": document.state.name(),
            "version": document.version,
        });
        if !warnings.is_empty() {
            answer["warnings"] = json!(warnings);
        }
        let text = records::text(&document);
        let beside = Change {
            name: version_name(&self.name, document.version),
            expect: Expect::Absent,
            document: Some(text.clone()),
            action: "rule.version".to_owned(),
            reason: self.reason.clone(),
        };
        Ok(Made { document: Some(text), answer, beside: vec![beside], since: None })
    }
}
