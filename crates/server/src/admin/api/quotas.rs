//! What callers have: tiers and overrides.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollgate::control::Moment;
use tollgate::control::documents::{Faults, OverrideDocument, QuotaDocument};
use tollgate::tenants::MOST_WIDE;
use tollgate::{Adjustment, Timestamp};
use tollgate_control::{Filter, Kind, Name, Stored};
use tollgate_rules::pattern::Pattern;
use tollgate_rules::{Domain, quoted};

use super::extract::{InDomain, Path, Query};
use super::names::{self, Page};
use super::records::{self, Made, Writing};
use super::{Answer, Api, Asked, Problem, body, fits, until};
use crate::admin::who::Scope;

/// Which quotas.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    domain: Option<String>,
    tier: Option<String>,
    prefix: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

/// What is written.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotaBody {
    tier: Option<String>,
    /// Limits that take the place of rules'.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    overrides: Vec<OverrideDocument>,
    #[schema(value_type = Option<String>)]
    effective_at: Option<Moment>,
    #[schema(value_type = Option<String>)]
    expires_at: Option<Moment>,
    reason: Option<String>,
    /// The caller's counters start afresh.
    #[serde(default)]
    reset: bool,
}

/// A quota in a list.
#[derive(Serialize)]
struct Item {
    api_key: String,
    domain: String,
    #[serde(flatten)]
    quota: Value,
    generation: u64,
    updated_at: Moment,
    updated_by: String,
}

/// Quotas, page by page
#[utoipa::path(
    get, path = "/admin/v1/quotas", operation_id = "quotas_list", tag = "quotas",
    params(
        super::openapi::Listing,
        ("tier" = Option<String>, Query, description = "Of callers in this tier"),
        ("prefix" = Option<String>, Query, description = "Of callers whose names begin like this")
    ),
    responses((status = 200, body = super::openapi::ListBody), (status = "default", response = super::openapi::Failed))
)]
pub(crate) async fn list(State(api): State<Api>, asked: Asked, Query(listed): Query<Listed>) -> Answer {
    asked.may(Scope::Read)?;
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, listed.domain.as_deref())?.name().to_owned();
    let member = listed.tier.map(|tier| ("tier".to_owned(), tier));
    let filter = Filter { domain: Some(domain.clone()), prefix: listed.prefix, member, ..Filter::of(Kind::Quota) };
    let after = listed.after.map(|after| Name::new(Kind::Quota, domain, after));
    let (page, next) = records::page_of_names(&api, &filter, after, listed.limit).await?;
    let items = page.into_iter().map(item).collect();
    Ok(Json(Page { items, next }).into_response())
}

fn item(stored: Stored) -> Item {
    Item {
        api_key: stored.name.name,
        domain: stored.name.domain,
        quota: stored.document.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
        generation: stored.generation,
        updated_at: Moment(stored.updated_at),
        updated_by: stored.updated_by,
    }
}

/// What a caller has
#[utoipa::path(
    get, path = "/admin/v1/quotas/{caller}", operation_id = "quotas_show", tag = "quotas",
    params(super::openapi::OfDomain),
    responses((status = 200, body = Object), (status = "default", response = super::openapi::Failed))
)]
pub(crate) async fn show(
    State(api): State<Api>,
    asked: Asked,
    Path(caller): Path<String>,
    Query(named): Query<InDomain>,
) -> Answer {
    asked.may(Scope::Read)?;
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, named.domain.as_deref())?;
    let stored = records::get(&api, &Name::new(Kind::Quota, domain.name(), &caller)).await?;
    let document = records::parsed(&stored)?;
    let mut answer = answer(domain, &caller, &document, stored.updated_at);
    answer["updated_by"] = json!(stored.updated_by);
    answer["created_at"] = json!(Moment(stored.created_at));
    if !stored.reason.is_empty() {
        answer["reason"] = json!(stored.reason);
    }
    Ok(records::shown(stored.generation, &answer))
}

/// Says what a caller has
#[utoipa::path(
    put, path = "/admin/v1/quotas/{caller}", operation_id = "quotas_put", tag = "quotas",
    params(super::openapi::OfDomain, super::openapi::Conditions), request_body = QuotaBody,
    responses((status = 200, body = Object), (status = "default", response = super::openapi::Failed))
)]
pub(crate) async fn put(
    State(api): State<Api>,
    asked: Asked,
    Path(caller): Path<String>,
    Query(named): Query<InDomain>,
    headers: HeaderMap,
    sent: Body,
) -> Answer {
    asked.may(Scope::Quota)?;
    let sent = body::whole(&headers, sent).await?;
    if let Some(again) = records::again(&api, &asked, &sent).await? {
        return Ok(again);
    }
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, named.domain.as_deref())?;
    names::has_callers(domain)?;
    let quota: QuotaBody = body::parsed(&sent)?;
    let reset = quota.reset;
    let now = api.now();
    let (reason, wanted) = quota.document(domain, now)?;
    let writing = Writing {
        asked: &asked,
        name: Name::new(Kind::Quota, domain.name(), &caller),
        action: "quota.put",
        reason,
        body: &sent,
    };
    let answered = records::write(&api, writing, |stored| {
        let mut document = match stored {
            Some(stored) => scheduled(records::parsed(stored)?, wanted.clone(), now),
            None => wanted.clone(),
        };
        if stored.is_none() && !matches!(Pattern::new(&caller), Pattern::Exact(_)) {
            let there = api.limiter().tenants().wide().quotas;
            records::has_room(there, MOST_WIDE, "quotas whose names have a *")?;
        }
        document.reset_by = reset.then(|| now.as_micros());
        let answer = answer(domain, &caller, &document, now);
        Ok(Made::of(&document, answer))
    })
    .await?;
    if reset && api.limiter().store().shared().is_some() {
        // Counters that are this server's alone were reset when the write came into force.
        let told = api.limiter().adjust(Some(domain.name()), None, &caller, &[], None, Adjustment::Reset).await;
        if !told.is_ok_and(|told| told.is_some_and(|told| told.is_stored())) {
            // Sent again, it is not to be answered as if all were done.
            records::forget(&api, &asked, &sent).await;
            let detail =
                "the quota is in force, but the counters could not be reset: their store is away; send it again";
            return Err(Problem::new(http::StatusCode::SERVICE_UNAVAILABLE, "not_reset", detail));
        }
    }
    Ok(answered)
}

/// A caller has nothing of its own any more
#[utoipa::path(
    delete, path = "/admin/v1/quotas/{caller}", operation_id = "quotas_delete", tag = "quotas",
    params(super::openapi::OfDomain, super::openapi::Conditions),
    responses((status = 200, body = Object), (status = "default", response = super::openapi::Failed))
)]
pub(crate) async fn delete(
    State(api): State<Api>,
    asked: Asked,
    Path(caller): Path<String>,
    Query(named): Query<InDomain>,
) -> Answer {
    asked.may(Scope::Quota)?;
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, named.domain.as_deref())?;
    let name = Name::new(Kind::Quota, domain.name(), &caller);
    records::delete(&api, &asked, name, "quota.delete", json!({"api_key": caller, "deleted": true})).await
}

/// What is there stays until what is wanted begins, if that is later.
fn scheduled(stored: QuotaDocument, wanted: QuotaDocument, now: Timestamp) -> QuotaDocument {
    let Some(begins) = wanted.effective_at.filter(|begins| begins.0 > now) else { return wanted };
    // If what was scheduled before is in force by now, it is what stays.
    let current = match stored.next {
        Some(next) if next.during().holds(now) => *next,
        _ => QuotaDocument { next: None, ..stored },
    };
    if !current.during().holds(now) {
        return wanted;
    }
    let expires_at = Some(current.expires_at.map_or(begins, |end| end.min(begins)));
    QuotaDocument { expires_at, next: Some(Box::new(wanted)), ..current }
}

impl QuotaBody {
    /// What is to be stored, if it makes sense under the rules in force.
    fn document(self, domain: &Domain, now: Timestamp) -> Result<(String, QuotaDocument), Problem> {
        let document = QuotaDocument {
            tier: self.tier,
            overrides: self.overrides,
            effective_at: self.effective_at,
            expires_at: self.expires_at,
            reset_by: None,
            next: None,
        };
        let mut faults = Faults::default();
        check(&document, domain, &mut faults);
        if let Some(end) = document.expires_at {
            until::not_over(end, now, &mut faults);
        }
        let reason = self.reason.unwrap_or_default();
        until::reason_fits(&reason, &mut faults);
        faults.unless((reason, document)).map_err(Problem::invalid)
    }
}

/// Whether a quota makes sense under the rules in force: all that is wrong is told.
pub(super) fn check(document: &QuotaDocument, domain: &Domain, faults: &mut Faults) {
    document.meaning(faults);
    if let Some(tier) = &document.tier
        && domain.tiers().iter().all(|known| known.name != *tier)
    {
        let known: Vec<&str> = domain.tiers().iter().map(|tier| tier.name.as_str()).collect();
        faults.add("tier", format!("there is no tier {}; write one of {}", quoted(tier), known.join(", ")));
    }
    for (number, one) in document.overrides.iter().enumerate() {
        let at = format!("overrides[{number}].");
        let (rule, descriptor) = (one.rule.as_deref(), one.descriptor.as_deref());
        let selected = fits::selected(rule, descriptor, domain);
        if selected.is_empty() {
            let place = if rule.is_some() { "rule" } else { "descriptor" };
            faults.add(format!("{at}{place}"), fits::none(rule, descriptor, domain));
        }
        // What is wrong with the limit itself has been told.
        if let Some(cap) = one.limited().meaning(&at, &mut Faults::default()) {
            faults.0.extend(selected.iter().filter_map(|rule| fits::unfit(rule, &cap, &at)));
        }
    }
}

/// A quota as the seed documents answer it.
fn answer(domain: &Domain, caller: &str, document: &QuotaDocument, updated_at: Timestamp) -> Value {
    let tier = document.tier.as_deref();
    let place = tier.and_then(|tier| domain.tiers().iter().position(|known| known.name == tier));
    let place = place.unwrap_or_else(|| domain.default_tier());
    let of_rule = domain.default_rule().and_then(|rule| rule.limit(u16::try_from(place).ok()?)).map(names::limit);
    let own = document.overrides.iter().find(|one| one.descriptor.as_deref() == Some("default"));
    let default = own.map(|own| json!(own)).or(of_rule);
    let mut answer = json!({
        "api_key": caller,
        "domain": domain.name(),
        "tier": tier,
        "quotas": {"default": default, "overrides": document.overrides},
        "effective_at": document.effective_at,
        "expires_at": document.expires_at,
        "updated_at": Moment(updated_at),
    });
    if let Some(next) = &document.next {
        answer["scheduled"] = json!(next);
    }
    answer
}
