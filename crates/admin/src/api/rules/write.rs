//! Writes of rules: put, state change, rollback. Each write creates a version.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_control::{Change, Precondition, RecordName, StoredRecord};
use tollgate_records::FieldFault;
use tollgate_records::RecordKind;
use tollgate_records::documents::{FieldFaults, RuleDocument, RuleState};

use super::super::body::{self, RequestBody};
#[cfg(test)]
use super::super::description;
use super::super::extract::{DomainQuery, PathParams, Query, flag};
use super::super::records::{self, PreparedWrite, RecordWrite};
use super::super::{Api, ApiProblem, ApiResult, RequestContext, WriteResult, expiry, names};
use super::validate::{validate, validate_now};
use super::versions::{self, version_name};
use super::{body as rule_body, changes, require_for_off, rule_name};
use crate::scopes::AccessScope;

/// The query of a put.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutRuleQuery {
    domain: Option<String>,
    dry_run: Option<String>,
}

/// A state change.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StateBody {
    /// `draft`, `pending`, `shadow`, `active` or `off`.
    #[schema(value_type = String)]
    state: RuleState,
    #[serde(default)]
    reason: String,
}

/// A rollback.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollbackBody {
    /// The version to restore.
    version: u64,
    #[serde(default)]
    reason: String,
}

/// A version to write, except for its number.
struct VersionWrite {
    name: RecordName,
    action: &'static str,
    reason: String,
    /// The known number of versions.
    versions: u64,
}

/// Create or replace a rule above the files
#[utoipa::path(
    put, path = "/v1/ratelimit/config/{rule_id}", operation_id = "rules_put", tag = "rules",
    params(description::OfDomain, description::Conditions, ("dry_run" = Option<bool>, Query, description = "Validate only, and report what would change")),
    request_body = description::RuleBody,
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(crate) async fn put(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(rule): PathParams<String>,
    Query(query): Query<PutRuleQuery>,
    body: RequestBody,
) -> WriteResult {
    context.require(AccessScope::Rules)?;
    let dry_run = flag("dry_run", query.dry_run.as_deref())?;
    // Dry runs are not recorded.
    let body = if dry_run { body.read().await? } else { body.read_new(&api, &context).await? };
    let rules = api.limiter().rules();
    let domain = names::any_domain(&rules, query.domain.as_deref())?.name().to_owned();
    let rule_body = rule_body::parse(&body)?;
    let name = RecordName::new(RecordKind::Rule, domain, rule);
    let document = |_: Option<&RuleDocument>| RuleDocument {
        version: 0,
        state: rule_body.state,
        rule: rule_body.rule.clone(),
        author: context.principal.name.clone(),
        reason: rule_body.reason.clone(),
    };
    if dry_run {
        return dry_run_response(&api, &context, &name, document(None)).await.map_err(Into::into);
    }
    let warnings = validate(&api, &name, &document(None)).await?;
    let versions = versions::count(&api, &name).await?;
    let write = VersionWrite { name, action: "rule.put", reason: rule_body.reason.clone(), versions };
    records::write(&api, write.writing(&context, &body), |stored| {
        let before = stored.map(records::parse_document::<RuleDocument>).transpose()?;
        write.prepare(&context, before.as_ref(), document(before.as_ref()), &warnings)
    })
    .await
    .map_err(Into::into)
}

/// Change the state of a rule
#[utoipa::path(
    post, path = "/v1/ratelimit/config/{rule_id}/state", operation_id = "rules_state", tag = "rules",
    params(description::OfDomain, description::Conditions), request_body = StateBody,
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(crate) async fn state(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(rule): PathParams<String>,
    Query(query): Query<DomainQuery>,
    body: RequestBody,
) -> WriteResult {
    context.require(AccessScope::Rules)?;
    let body = body.read_new(&api, &context).await?;
    let name = rule_name(&api, &query, &rule)?;
    let StateBody { state, reason } = body::parse(&body)?;
    check_reason(&reason)?;
    let write = VersionWrite { name, action: "rule.state", reason: reason.clone(), versions: 0 };
    let document = |before: Option<&RuleDocument>| {
        let before = before.ok_or_else(|| records::missing(&write.name))?;
        let author = context.principal.name.clone();
        Ok(RuleDocument { state, author, reason: reason.clone(), ..before.clone() })
    };
    write_derived(&api, &context, &write, &body, document).await.map_err(Into::into)
}

/// Roll back to an earlier version
#[utoipa::path(
    post, path = "/v1/ratelimit/config/{rule_id}/rollback", operation_id = "rules_rollback", tag = "rules",
    params(description::OfDomain, description::Conditions), request_body = RollbackBody,
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(crate) async fn rollback(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(rule): PathParams<String>,
    Query(query): Query<DomainQuery>,
    body: RequestBody,
) -> WriteResult {
    context.require(AccessScope::Rules)?;
    let body = body.read_new(&api, &context).await?;
    let name = rule_name(&api, &query, &rule)?;
    let RollbackBody { version, reason } = body::parse(&body)?;
    check_reason(&reason)?;
    let old = versions::get(&api, &name, version).await?;
    let versions = versions::count(&api, &name).await?;
    let write = VersionWrite { name, action: "rule.rollback", reason: reason.clone(), versions };
    // The state stays as it is. A deleted rule gets the state of that version.
    let document = |before: Option<&RuleDocument>| {
        let state = before.map_or(old.state, |before| before.state);
        let author = context.principal.name.clone();
        Ok(RuleDocument { state, author, reason: reason.clone(), ..old.clone() })
    };
    write_derived(&api, &context, &write, &body, document).await.map_err(Into::into)
}

/// Writes a version derived from the current one, if it is valid.
async fn write_derived(
    api: &Api,
    context: &RequestContext,
    write: &VersionWrite,
    body: &[u8],
    document: impl Fn(Option<&RuleDocument>) -> Result<RuleDocument, ApiProblem>,
) -> ApiResult {
    let stored = records::db(api)?.get(&write.name).await?;
    let before = stored.as_ref().map(records::parse_document::<RuleDocument>).transpose()?;
    let warnings = validate(api, &write.name, &document(before.as_ref())?).await?;
    let validated_at = stored.map(|stored| stored.generation);
    records::write(api, write.writing(context, body), |stored| {
        let before = stored.map(records::parse_document::<RuleDocument>).transpose()?;
        let document = document(before.as_ref())?;
        // After a concurrent write the result has to be validated again.
        let warnings = match stored.map(|stored: &StoredRecord| stored.generation) == validated_at {
            true => warnings.clone(),
            false => validate_now(api, &write.name, &document)?,
        };
        write.prepare(context, before.as_ref(), document, &warnings)
    })
    .await
}

/// The result of a dry run.
async fn dry_run_response(api: &Api, context: &RequestContext, name: &RecordName, document: RuleDocument) -> ApiResult {
    let stored = records::db(api)?.get(name).await?;
    records::check_expectation(context, stored.as_ref())?;
    let before = stored.as_ref().map(records::parse_document::<RuleDocument>).transpose()?;
    let warnings = validate(api, name, &document).await?;
    let changes = changes(before.as_ref(), &document);
    let answer = json!({"dry_run": true, "valid": true, "changes": changes, "warnings": warnings});
    Ok(Json(answer).into_response())
}

fn check_reason(reason: &str) -> Result<(), ApiProblem> {
    let mut faults = FieldFaults::default();
    expiry::check_reason(reason, &mut faults);
    faults.into_result(()).map_err(ApiProblem::invalid)
}

impl VersionWrite {
    fn writing<'a>(&self, context: &'a RequestContext, body: &'a [u8]) -> RecordWrite<'a> {
        RecordWrite { context, name: self.name.clone(), action: self.action, reason: self.reason.clone(), body }
    }

    /// The next version, and the response.
    fn prepare(
        &self,
        context: &RequestContext,
        before: Option<&RuleDocument>,
        document: RuleDocument,
        warnings: &[FieldFault],
    ) -> Result<PreparedWrite, ApiProblem> {
        require_for_off(context, before, Some(&document))?;
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
        let text = records::to_text(&document);
        let version = Change {
            name: version_name(&self.name, document.version),
            expect: Precondition::Absent,
            document: Some(text.clone()),
            action: "rule.version".to_owned(),
            reason: self.reason.clone(),
        };
        Ok(PreparedWrite { document: Some(text), answer, related: vec![version], since: None })
    }
}
