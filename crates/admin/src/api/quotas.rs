//! Quotas of callers: tiers and overrides.

mod home;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollgate::tenants::MAX_WILDCARDS;
use tollgate::{Adjustment, AdjustmentReport, Timestamp};
use tollgate_control::{Change, Precondition, RecordFilter, RecordName, StoredRecord};
use tollgate_records::RecordKind;
use tollgate_records::Rfc3339;
use tollgate_records::documents::{FieldFaults, OverrideDocument, QuotaDocument};
use tollgate_rules::pattern::Pattern;
use tollgate_rules::{Domain, quoted};

use super::body::{self, RequestBody};
use super::expiry::Expiry;
use super::extract::{DomainQuery, PathParams, Query};
use super::names::{self, ListPage};
use super::records::{self, PreparedWrite, RecordWrite};
use super::{Api, ApiProblem, ApiResult, RequestContext, WriteResult, expiry, selection};
use crate::scopes::AccessScope;

/// Selects quotas.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuotaListQuery {
    domain: Option<String>,
    name: Option<String>,
    tier: Option<String>,
    prefix: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

/// A quota.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QuotaBody {
    tier: Option<String>,
    /// The region that owns the caller's counters, for rules with `region: home`.
    home: Option<String>,
    /// Limits that replace those of rules.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    overrides: Vec<OverrideDocument>,
    #[schema(value_type = Option<String>)]
    effective_at: Option<Rfc3339>,
    #[schema(value_type = Option<String>)]
    expires_at: Option<Rfc3339>,
    /// Or how long it lasts, from its start on: `30d`.
    r#for: Option<String>,
    reason: Option<String>,
    /// Reset the caller's counters.
    #[serde(default)]
    reset: bool,
}

/// A quota in a list.
#[derive(Serialize)]
struct QuotaItem {
    api_key: String,
    domain: String,
    #[serde(flatten)]
    quota: Value,
    generation: u64,
    updated_at: Rfc3339,
    updated_by: String,
}

/// List quotas
#[utoipa::path(
    get, path = "/admin/v1/quotas", operation_id = "quotas_list", tag = "quotas",
    params(
        super::description::Listing,
        ("name" = Option<String>, Query, description = "Only this name; the scope `read` is enough"),
        ("tier" = Option<String>, Query, description = "Only callers in this tier"),
        ("prefix" = Option<String>, Query, description = "Only names with this prefix")
    ),
    responses((status = 200, body = super::description::ListBody), (status = "default", response = super::description::Failed))
)]
pub(super) async fn list(
    State(api): State<Api>,
    context: RequestContext,
    Query(query): Query<QuotaListQuery>,
) -> ApiResult {
    context.require_list_of(query.name.as_deref(), AccessScope::Quota)?;
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, query.domain.as_deref())?.name().to_owned();
    let member = query.tier.map(|tier| ("tier".to_owned(), tier));
    let filter = RecordFilter {
        domain: Some(domain.clone()),
        name: query.name,
        prefix: query.prefix,
        member,
        ..RecordFilter::new(RecordKind::Quota)
    };
    let after = query.after.map(|after| RecordName::new(RecordKind::Quota, domain, after));
    let (page, next) = records::page_of_names(&api, &filter, after, query.limit).await?;
    let items = page.into_iter().map(item).collect();
    Ok(Json(ListPage { items, next }).into_response())
}

fn item(stored: StoredRecord) -> QuotaItem {
    QuotaItem {
        api_key: stored.name.name,
        domain: stored.name.domain,
        quota: stored.document.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
        generation: stored.generation,
        updated_at: Rfc3339(stored.updated_at),
        updated_by: stored.updated_by,
    }
}

/// Show a caller's quota
#[utoipa::path(
    get, path = "/admin/v1/quotas/{caller}", operation_id = "quotas_show", tag = "quotas",
    params(super::description::OfDomain),
    responses((status = 200, body = Object), (status = "default", response = super::description::Failed))
)]
pub(super) async fn show(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(caller): PathParams<String>,
    Query(query): Query<DomainQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, query.domain.as_deref())?;
    let stored = records::get(&api, &RecordName::new(RecordKind::Quota, domain.name(), &caller)).await?;
    let document = records::parse_document(&stored)?;
    let mut to_json = to_json(domain, &caller, &document, stored.updated_at);
    to_json["updated_by"] = json!(stored.updated_by);
    to_json["created_at"] = json!(Rfc3339(stored.created_at));
    if !stored.reason.is_empty() {
        to_json["reason"] = json!(stored.reason);
    }
    Ok(records::tagged_response(stored.generation, &to_json))
}

/// Set a caller's quota
#[utoipa::path(
    put, path = "/admin/v1/quotas/{caller}", operation_id = "quotas_put", tag = "quotas",
    params(super::description::OfDomain, super::description::Conditions), request_body = QuotaBody,
    responses((status = 200, body = Object), (status = "default", response = super::description::Failed))
)]
pub(super) async fn put(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(caller): PathParams<String>,
    Query(query): Query<DomainQuery>,
    body: RequestBody,
) -> WriteResult {
    context.require(AccessScope::Quota)?;
    let body = body.read_new(&api, &context).await?;
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, query.domain.as_deref())?;
    names::has_callers(domain)?;
    let quota: QuotaBody = body::parse(&body)?;
    let reset = quota.reset;
    let now = api.now();
    let (reason, new) = quota.document(domain, now)?;
    let writing = RecordWrite {
        context: &context,
        name: RecordName::new(RecordKind::Quota, domain.name(), &caller),
        action: "quota.put",
        reason,
        body: &body,
    };
    let response = records::write(&api, writing, |stored| {
        let mut document = match stored {
            Some(stored) => with_schedule(records::parse_document(stored)?, new.clone(), now),
            None => new.clone(),
        };
        if stored.is_none() && !matches!(Pattern::new(&caller), Pattern::Exact(_)) {
            let there = api.limiter().tenants().wildcard_counts().quotas;
            records::check_capacity(there, MAX_WILDCARDS, "quotas whose names have a *")?;
        }
        let before = stored.map(records::parse_document::<QuotaDocument>).transpose()?;
        require_for_many(&context, &caller, [before.as_ref(), Some(&document)])?;
        document.reset_by = reset.then(|| now.as_micros());
        let moves = home::moves(domain, &caller, before.as_ref(), Some(&document), now);
        let mut to_json = to_json(domain, &caller, &document, now);
        home::add_moves(&mut to_json, &moves);
        let related = home::audit_changes(domain, &caller, &moves);
        Ok(PreparedWrite { related, ..PreparedWrite::new(&document, to_json) })
    })
    .await?;
    if reset && api.limiter().store().shared().is_some() {
        // Counters of a local store were reset when the write came into force.
        let adjusted = api.limiter().adjust(Some(domain.name()), None, &caller, &[], None, Adjustment::Reset).await;
        let adjusted = adjusted.ok().flatten().filter(AdjustmentReport::is_stored);
        let Some(adjusted) = adjusted else {
            // A retry must not be answered as if the reset were done.
            records::forget(&api, &context, &body).await;
            let detail =
                "the quota is in force, but the counters could not be reset because their store is unavailable; retry";
            return Err(ApiProblem::new(http::StatusCode::SERVICE_UNAVAILABLE, "not_reset", detail).into());
        };
        if let Some(missed) = names::missed_regions(&adjusted) {
            let note = Change {
                name: RecordName::new(RecordKind::Counter, domain.name(), &caller),
                expect: Precondition::Any,
                document: Some(json!({"failed": missed}).to_string()),
                action: "counter.missed".to_owned(),
                reason: "a quota with `reset`".to_owned(),
            };
            let _ = api.write(&context.principal.author(), vec![note], None).await;
            return Ok(records::with_member(response, |answer| names::add_missed_regions(answer, &adjusted)).await);
        }
    }
    Ok(response)
}

/// Delete a caller's quota
#[utoipa::path(
    delete, path = "/admin/v1/quotas/{caller}", operation_id = "quotas_delete", tag = "quotas",
    params(super::description::OfDomain, super::description::Conditions),
    responses((status = 200, body = Object), (status = "default", response = super::description::Failed))
)]
pub(super) async fn delete(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(caller): PathParams<String>,
    Query(query): Query<DomainQuery>,
) -> ApiResult {
    context.require(AccessScope::Quota)?;
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, query.domain.as_deref())?;
    let name = RecordName::new(RecordKind::Quota, domain.name(), &caller);
    let prepare = |stored: Option<&StoredRecord>| {
        let before = stored.map(records::parse_document::<QuotaDocument>).transpose()?;
        require_for_many(&context, &caller, [before.as_ref(), None])?;
        let moves = home::moves(domain, &caller, before.as_ref(), None, api.now());
        let mut answer = json!({"api_key": caller, "deleted": true});
        home::add_moves(&mut answer, &moves);
        let related = home::audit_changes(domain, &caller, &moves);
        Ok(PreparedWrite { related, ..PreparedWrite::deleted(answer) })
    };
    records::delete_checked(&api, &context, name, "quota.delete", prepare).await
}

/// Fails if a quota before or after the write is that of all callers, or unlimited or 0 for those that match a pattern, and the
/// caller could not set a kill switch or a block.
fn require_for_many(
    context: &RequestContext,
    caller: &str,
    documents: [Option<&QuotaDocument>; 2],
) -> Result<(), ApiProblem> {
    if !Pattern::new(caller).is_wild() {
        return Ok(());
    }
    if caller.chars().all(|c| c == '*') {
        return context.require_emergency("it is needed for a quota of all callers");
    }
    match documents.into_iter().flatten().any(QuotaDocument::is_drastic) {
        true => context.require_emergency("it is needed for a quota of many callers that is unlimited or 0"),
        false => Ok(()),
    }
}

/// The current quota stays until the new one begins, if that is later.
fn with_schedule(stored: QuotaDocument, new: QuotaDocument, now: Timestamp) -> QuotaDocument {
    let Some(begins) = new.effective_at.filter(|begins| begins.0 > now) else { return new };
    // If a scheduled quota is in force by now, it is the current one.
    let current = match stored.next {
        Some(next) if next.during().holds(now) => *next,
        _ => QuotaDocument { next: None, ..stored },
    };
    if !current.during().holds(now) {
        return new;
    }
    let expires_at = Some(current.expires_at.map_or(begins, |end| end.min(begins)));
    QuotaDocument { expires_at, next: Some(Box::new(new)), ..current }
}

impl QuotaBody {
    /// The document to store, if it is valid under the rules in force.
    fn document(self, domain: &Domain, now: Timestamp) -> Result<(String, QuotaDocument), ApiProblem> {
        let mut faults = FieldFaults::default();
        let begin = self.effective_at.map_or(now, |begin| begin.0.max(now));
        let lasts = Expiry { expires_at: None, lasts: self.r#for.as_deref() }.moment(begin, &mut faults);
        if self.r#for.is_some() && self.expires_at.is_some() {
            faults.add("for", "set either `for` or `expires_at`");
        }
        let document = QuotaDocument {
            tier: self.tier,
            home: self.home,
            overrides: self.overrides,
            effective_at: self.effective_at,
            expires_at: self.expires_at.or(lasts),
            reset_by: None,
            next: None,
        };
        check(&document, domain, &mut faults);
        if let Some(end) = document.expires_at {
            expiry::check_not_past(end, now, &mut faults);
        }
        let reason = self.reason.unwrap_or_default();
        expiry::check_reason(&reason, &mut faults);
        faults.into_result((reason, document)).map_err(ApiProblem::invalid)
    }
}

/// Validates a quota under the rules in force.
pub(super) fn check(document: &QuotaDocument, domain: &Domain, faults: &mut FieldFaults) {
    document.to_quota(faults);
    if let Some(tier) = &document.tier
        && domain.tiers().iter().all(|known| known.name != *tier)
    {
        let known: Vec<&str> = domain.tiers().iter().map(|tier| tier.name.as_str()).collect();
        faults.add("tier", format!("there is no tier {}; the tiers are {}", quoted(tier), known.join(", ")));
    }
    if let (Some(home), Some(regions)) = (&document.home, domain.regions().all())
        && regions.id(home).is_none()
    {
        let known: Vec<&str> = regions.iter().map(|(_, name)| name).collect();
        faults.add("home", format!("there is no region {}; the regions are {}", quoted(home), known.join(", ")));
    }
    for (number, one) in document.overrides.iter().enumerate() {
        let at = format!("overrides[{number}].");
        let (rule, descriptor) = (one.rule.as_deref(), one.descriptor.as_deref());
        let selected = selection::selected(rule, descriptor, domain);
        if selected.is_empty() {
            let place = if rule.is_some() { "rule" } else { "descriptor" };
            faults.add(format!("{at}{place}"), selection::none_message(rule, descriptor, domain));
        }
        // Faults of the limit itself have been added.
        if let Some(cap) = one.terms().to_cap(&at, &mut FieldFaults::default()) {
            faults.0.extend(selected.iter().filter_map(|rule| selection::mismatch(rule, &cap, &at)));
        }
    }
}

/// The JSON form of a quota.
fn to_json(domain: &Domain, caller: &str, document: &QuotaDocument, updated_at: Timestamp) -> Value {
    let tier = document.tier.as_deref();
    let place = tier.and_then(|tier| domain.tiers().iter().position(|known| known.name == tier));
    let place = place.unwrap_or_else(|| domain.default_tier());
    let of_rule = domain.default_rule().and_then(|rule| rule.limit(u16::try_from(place).ok()?)).map(names::limit);
    let explicit = document.overrides.iter().find(|one| one.descriptor.as_deref() == Some("default"));
    let default = explicit.map(|explicit| json!(explicit)).or(of_rule);
    let mut to_json = json!({
        "api_key": caller,
        "domain": domain.name(),
        "tier": tier,
        "quotas": {"default": default, "overrides": document.overrides},
        "effective_at": document.effective_at,
        "expires_at": document.expires_at,
        "updated_at": Rfc3339(updated_at),
    });
    if let Some(home) = &document.home {
        to_json["home"] = json!(home);
    }
    if let Some(next) = &document.next {
        to_json["scheduled"] = json!(next);
    }
    to_json
}
