//! Emergencies: temporary limits that override all others.

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::tenants::MAX_WILDCARDS;
use tollgate::{Ruleset, Span, Timestamp};
use tollgate_control::{Change, MAX_LISTED_RECORDS, RecordFilter, RecordName, StoredRecord};
use tollgate_records::RecordKind;
use tollgate_records::Rfc3339;
use tollgate_records::documents::{EmergencyDocument, FieldFaults};
use tollgate_rules::{Domain, Rule};

use super::body::{self, RequestBody};
#[cfg(test)]
use super::description;
use super::expiry::Expiry;
use super::extract::{DomainQuery, PageQuery, PathParams, Query};
use super::records::{self, PreparedWrite, RecordWrite};
use super::{Api, ApiProblem, ApiResult, RequestContext, WriteResult, guarded, names, selection};
use crate::scopes::AccessScope;
use crate::store_of_record::{deletion, is_expired};

/// An emergency.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EmergencyBody {
    /// Callers: a name, a glob, or `*` (the default).
    callers: Option<String>,
    /// Applies to the rules whose conditions are exactly this, …
    descriptor: Option<String>,
    /// … to this rule, or by default to every rule.
    rule: Option<String>,
    requests_per_unit: Option<u64>,
    unit: Option<String>,
    /// Or both in one: `500/30s`.
    limit: Option<String>,
    burst: Option<u64>,
    /// Or a percentage of the regular limit: 50 is half of it.
    percent: Option<u32>,
    /// Why the emergency exists.
    #[serde(default)]
    reason: String,
    /// When it ends: within a day.
    #[schema(value_type = Option<String>)]
    expires_at: Option<Rfc3339>,
    /// Or how long it lasts; `1h` by default.
    r#for: Option<String>,
}

/// An extension of an emergency.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RenewBody {
    /// How long it lasts from now on; `1h` by default.
    r#for: Option<String>,
    /// Or when it ends.
    #[schema(value_type = Option<String>)]
    expires_at: Option<Rfc3339>,
    #[serde(default)]
    reason: String,
}

/// The default duration of an emergency.
const DEFAULT_DURATION: Span = Span::from_secs(3_600);
/// The maximal duration. Longer ones have to be renewed.
const MAX_DURATION: Span = Span::from_secs(24 * 3_600);

/// List emergencies, including expired ones
#[utoipa::path(
    get, path = "/admin/v1/emergencies", operation_id = "emergencies_list", tag = "emergencies", params(description::Listing),
    responses((status = 200, body = description::ListBody), (status = "default", response = description::Failed))
)]
pub(super) async fn list(State(api): State<Api>, context: RequestContext, Query(query): Query<PageQuery>) -> ApiResult {
    context.require(AccessScope::Read)?;
    let filter = RecordFilter { domain: query.domain, ..RecordFilter::new(RecordKind::Emergency) };
    records::list(&api, &filter, query.after.as_deref(), query.limit, to_json).await
}

/// Show an emergency
#[utoipa::path(
    get, path = "/admin/v1/emergencies/{name}", operation_id = "emergencies_show", tag = "emergencies",
    params(description::OfDomain),
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn show(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(name): PathParams<String>,
    Query(query): Query<DomainQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    records::show(&api, &record(query, name), to_json).await
}

/// Create or replace an emergency
#[utoipa::path(
    put, path = "/admin/v1/emergencies/{name}", operation_id = "emergencies_put", tag = "emergencies",
    params(description::OfDomain, description::Conditions), request_body = EmergencyBody,
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn put(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(name): PathParams<String>,
    Query(query): Query<DomainQuery>,
    sent: RequestBody,
) -> WriteResult {
    context.require(AccessScope::Emergency)?;
    let sent = sent.read_new(&api, &context).await?;
    let rules = api.limiter().rules();
    let domain = query.domain.as_deref().map(|domain| names::domain(&rules, Some(domain))).transpose()?;
    let now = api.now();
    let document = body::parse::<EmergencyBody>(&sent)?.document(&rules, domain, now)?;
    let name = record(query, name);
    // Without the store of record none are deleted.
    let expired = expired(&api, &name).await.unwrap_or_default();
    let count = api.limiter().tenants().wildcard_counts().emergencies;
    let writing =
        RecordWrite { context: &context, name, action: "emergency.put", reason: document.reason.clone(), body: &sent };
    let answer = to_json(&writing.name, &document, now);
    let prepare = |stored: Option<&StoredRecord>| {
        if stored.is_none() {
            records::check_capacity(count - expired.len().min(count), MAX_WILDCARDS, "emergencies")?;
        }
        Ok(PreparedWrite { related: expired.clone(), ..PreparedWrite::new(&document, answer.clone()) })
    };
    let (target, text) = (writing.name.clone(), records::to_text(&document));
    let response = records::write(&api, writing, prepare).await?;
    if records::is_replayed(&response) {
        return Ok(response);
    }
    Ok(match guarded::warn_of(&api, &context, &target, &text).await {
        Some(warning) => records::with_member(response, |answer| answer["warning"] = json!(warning)).await,
        None => response,
    })
}

/// Renew an emergency
#[utoipa::path(
    post, path = "/admin/v1/emergencies/{name}/renew", operation_id = "emergencies_renew", tag = "emergencies",
    params(description::OfDomain, description::Conditions), request_body = RenewBody,
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn renew(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(name): PathParams<String>,
    Query(query): Query<DomainQuery>,
    sent: RequestBody,
) -> WriteResult {
    context.require(AccessScope::Emergency)?;
    let sent = sent.read_new(&api, &context).await?;
    let RenewBody { r#for, expires_at, reason } = body::parse(&sent)?;
    let (now, mut faults) = (api.now(), FieldFaults::default());
    let expiry = resolve_end(&Expiry { expires_at, lasts: r#for.as_deref() }, now, &mut faults);
    super::expiry::check_reason(&reason, &mut faults);
    faults.into_result(()).map_err(ApiProblem::invalid)?;
    let name = record(query, name);
    let writing = RecordWrite { context: &context, name: name.clone(), action: "emergency.renew", reason, body: &sent };
    records::write(&api, writing, |stored| {
        let stored = stored.ok_or_else(|| records::missing(&name))?;
        let document = EmergencyDocument { expires_at: expiry, ..records::parse_document(stored)? };
        let answer = to_json(&name, &document, now);
        Ok(PreparedWrite::new(&document, answer))
    })
    .await
    .map_err(Into::into)
}

/// Delete an emergency
#[utoipa::path(
    delete, path = "/admin/v1/emergencies/{name}", operation_id = "emergencies_delete", tag = "emergencies",
    params(description::OfDomain, description::Conditions),
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn delete(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(name): PathParams<String>,
    Query(query): Query<DomainQuery>,
) -> ApiResult {
    context.require(AccessScope::Emergency)?;
    let answer = json!({"name": name, "domain": query.domain, "deleted": true});
    records::delete(&api, &context, record(query, name), "emergency.delete", answer).await
}

fn record(query: DomainQuery, name: String) -> RecordName {
    RecordName::new(RecordKind::Emergency, query.domain.unwrap_or_default(), name)
}

fn to_json(name: &RecordName, document: &EmergencyDocument, now: Timestamp) -> Value {
    let mut to_json = json!(document);
    to_json["name"] = json!(name.name);
    to_json["domain"] = json!(names::domain_of(name));
    to_json["in_force"] = json!(document.expires_at.0 > now);
    to_json
}

/// The expired emergencies, if there is no room for another: they are deleted with the write.
async fn expired(api: &Api, except: &RecordName) -> Result<Vec<Change>, ApiProblem> {
    if api.limiter().tenants().wildcard_counts().emergencies < MAX_WILDCARDS {
        return Ok(Vec::new());
    }
    let page = records::db(api)?.list(&RecordFilter::new(RecordKind::Emergency), None, MAX_LISTED_RECORDS).await?;
    let now = api.now();
    let deletions = page.into_iter().filter(|stored| stored.name != *except && is_expired(stored, now)).map(deletion);
    Ok(deletions.take(tollgate_control::MAX_CHANGES - 1).collect())
}

/// The end of an emergency.
fn resolve_end(expiry: &Expiry<'_>, now: Timestamp, faults: &mut FieldFaults) -> Rfc3339 {
    let resolve_end = expiry.moment(now, faults).unwrap_or(Rfc3339(now.after(DEFAULT_DURATION)));
    if resolve_end.0 > now.after(MAX_DURATION) {
        let place = if expiry.lasts.is_some() { "for" } else { "expires_at" };
        faults.add(place, "an emergency lasts 24h at most; renew it, or write a quota or a rule");
    }
    resolve_end
}

impl EmergencyBody {
    /// The document to store, if it is valid under the rules in force.
    fn document(
        self,
        rules: &Ruleset,
        domain: Option<&Domain>,
        now: Timestamp,
    ) -> Result<EmergencyDocument, ApiProblem> {
        let mut faults = FieldFaults::default();
        let expiry = Expiry { expires_at: self.expires_at, lasts: self.r#for.as_deref() };
        let expires_at = resolve_end(&expiry, now, &mut faults);
        let document = EmergencyDocument {
            callers: self.callers.unwrap_or_else(|| "*".to_owned()),
            descriptor: self.descriptor,
            rule: self.rule,
            requests_per_unit: self.requests_per_unit,
            unit: self.unit,
            limit: self.limit,
            burst: self.burst,
            percent: self.percent,
            expires_at,
            reason: self.reason,
        };
        document.to_emergency(&mut faults);
        fits_rules(&document, rules, domain, &mut faults);
        faults.into_result(document).map_err(ApiProblem::invalid)
    }
}

/// Checks that rules match, and that they can have its limit.
fn fits_rules(document: &EmergencyDocument, rules: &Ruleset, domain: Option<&Domain>, faults: &mut FieldFaults) {
    let domains: Vec<&Domain> = domain.map_or_else(|| rules.domains().iter().collect(), |domain| vec![domain]);
    let (rule, descriptor) = (document.rule.as_deref(), document.descriptor.as_deref());
    let is_every = rule.is_none() && descriptor.is_none();
    let selected: Vec<&Rule> = match is_every {
        true => domains.iter().flat_map(|domain| domain.rules()).collect(),
        false => domains.iter().flat_map(|domain| selection::selected(rule, descriptor, domain)).collect(),
    };
    if let ([], Some(first), false) = (&selected[..], domains.first(), is_every) {
        let place = if rule.is_some() { "rule" } else { "descriptor" };
        faults.add(place, selection::none_message(rule, descriptor, first));
    }
    // Faults of the limit itself have been added.
    let cap = match document.percent {
        None => document.terms().to_cap("", &mut FieldFaults::default()),
        Some(_) => None,
    };
    let Some(cap) = cap else { return };
    let unfit: Vec<_> = selected.iter().filter_map(|rule| selection::mismatch(rule, &cap, "")).collect();
    // An emergency for every rule applies to those that can have its limit.
    if !is_every || unfit.len() == selected.len() {
        faults.0.extend(unfit);
    }
}
