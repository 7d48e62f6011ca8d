//! What callers have: tiers and overrides.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::response::IntoResponse;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollgate::control::documents::{Faults, OverrideDocument, QuotaDocument};
use tollgate::control::{Fault, Moment};
use tollgate::tenants::OverrideCap;
use tollgate::{Adjustment, Algorithm, Timestamp};
use tollgate_control::{Filter, Kind, Name, Stored};
use tollgate_rules::{Domain, Rule, quoted};

use super::names::{self, MOST_NAMED, Page};
use super::records::{self, Made, Writing, db};
use super::{Answer, Api, Asked, Problem, body};
use crate::admin::who::Scope;

/// Which domain.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InDomain {
    pub(super) domain: Option<String>,
}

/// Which quotas.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listed {
    domain: Option<String>,
    tier: Option<String>,
    prefix: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

/// What is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaBody {
    tier: Option<String>,
    #[serde(default)]
    overrides: Vec<OverrideDocument>,
    effective_at: Option<Moment>,
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

/// How many quotas a page has that does not say.
const ITEMS: usize = 100;
/// How far in the past something may begin and still mean now: clocks differ.
const NOW_IS: Duration = Duration::from_secs(1);

pub(super) async fn list(State(api): State<Api>, asked: Asked, Query(listed): Query<Listed>) -> Answer {
    asked.may(Scope::Read)?;
    let most = listed.limit.unwrap_or(ITEMS);
    if !(1..=tollgate_control::MOST_LISTED).contains(&most) {
        let detail = format!("limit={most}: write a number from 1 to {}", tollgate_control::MOST_LISTED);
        return Err(Problem::bad_request("bad_limit", detail));
    }
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, listed.domain.as_deref())?.name().to_owned();
    let member = listed.tier.map(|tier| ("tier".to_owned(), tier));
    let filter = Filter { domain: Some(domain.clone()), prefix: listed.prefix, member, ..Filter::of(Kind::Quota) };
    let after = listed.after.map(|after| Name::new(Kind::Quota, domain, after));
    let page = db(&api)?.list(&filter, after.as_ref(), most).await?;
    let next = (page.len() == most).then(|| page.last().map(|last| last.name.name.clone())).flatten();
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

pub(super) async fn show(
    State(api): State<Api>,
    asked: Asked,
    Path(caller): Path<String>,
    Query(named): Query<InDomain>,
) -> Answer {
    asked.may(Scope::Read)?;
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, named.domain.as_deref())?;
    let stored = records::get(&api, &Name::new(Kind::Quota, domain.name(), &caller)).await?;
    let document = parsed(&stored)?;
    let mut answer = answer(domain, &caller, &document, stored.updated_at);
    answer["updated_by"] = json!(stored.updated_by);
    answer["created_at"] = json!(Moment(stored.created_at));
    if !stored.reason.is_empty() {
        answer["reason"] = json!(stored.reason);
    }
    Ok(records::shown(stored.generation, &answer))
}

pub(super) async fn put(
    State(api): State<Api>,
    asked: Asked,
    Path(caller): Path<String>,
    Query(named): Query<InDomain>,
    headers: HeaderMap,
    sent: Body,
) -> Answer {
    asked.may(Scope::Quota)?;
    let sent = body::whole(&headers, sent).await?;
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, named.domain.as_deref())?;
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
            Some(stored) => scheduled(parsed(stored)?, wanted.clone(), now),
            None => wanted.clone(),
        };
        document.reset_by = reset.then(|| now.as_micros());
        let answer = answer(domain, &caller, &document, now);
        Ok(Made { document: Some(text(&document)), answer, beside: Vec::new() })
    })
    .await?;
    if reset && api.limiter().store().shared().is_some() {
        // Counters that are this server's alone were reset when the write came into force.
        let told = api.limiter().adjust(Some(domain.name()), None, &caller, &[], None, Adjustment::Reset).await;
        if !told.is_ok_and(|told| told.is_some_and(|told| told.is_stored())) {
            let detail =
                "the quota is in force, but the counters could not be reset: their store is away; send it again";
            return Err(Problem::new(http::StatusCode::SERVICE_UNAVAILABLE, "not_reset", detail));
        }
    }
    Ok(answered)
}

pub(super) async fn delete(
    State(api): State<Api>,
    asked: Asked,
    Path(caller): Path<String>,
    Query(named): Query<InDomain>,
) -> Answer {
    asked.may(Scope::Quota)?;
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, named.domain.as_deref())?;
    let name = Name::new(Kind::Quota, domain.name(), &caller);
    let writing = Writing { asked: &asked, name, action: "quota.delete", reason: String::new(), body: b"" };
    let gone = || Made { document: None, answer: json!({"api_key": caller, "deleted": true}), beside: Vec::new() };
    records::write(&api, writing, |_| Ok(gone())).await
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
        let late = Timestamp::from_micros(now.as_micros().saturating_sub(NOW_IS.as_micros() as u64));
        if document.expires_at.is_some_and(|end| end.0 <= late) {
            faults.add("expires_at", "it is over already");
        }
        let reason = self.reason.unwrap_or_default();
        if reason.len() > tollgate_control::LONGEST_REASON {
            faults.add("reason", format!("it is longer than {} bytes", tollgate_control::LONGEST_REASON));
        }
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
        let selected = selected(one, domain);
        if selected.is_empty() {
            faults.add(format!("{at}{}", if one.rule.is_some() { "rule" } else { "descriptor" }), none(one, domain));
        }
        // What is wrong with the limit itself has been told.
        if let Some(cap) = one.limited().meaning(&at, &mut Faults::default()) {
            faults.0.extend(selected.iter().filter_map(|rule| unfit(rule, &cap, &at)));
        }
    }
}

/// The rules that an override means.
fn selected<'r>(one: &OverrideDocument, domain: &'r Domain) -> Vec<&'r Rule> {
    match (one.rule.as_deref(), one.descriptor.as_deref()) {
        (Some(name), _) => domain.rules().iter().filter(|rule| rule.name() == name).collect(),
        (None, Some("default")) => domain.default_rule().into_iter().collect(),
        (None, Some(text)) => domain.selected(text),
        (None, None) => Vec::new(),
    }
}

/// What to say of an override that means no rule.
fn none(one: &OverrideDocument, domain: &Domain) -> String {
    let some = |candidates: Vec<String>| {
        let more = candidates.len().saturating_sub(MOST_NAMED);
        let mut text = candidates.into_iter().take(MOST_NAMED).collect::<Vec<_>>().join(", ");
        if more > 0 {
            text.push_str(&format!(" and {more} more"));
        }
        text
    };
    match (&one.rule, one.descriptor.as_deref()) {
        (Some(name), _) => {
            let names = domain.rules().iter().map(|rule| quoted(rule.name()).to_string()).collect();
            format!("there is no rule {}; there are {}", quoted(name), some(names))
        }
        (None, Some("default")) => "the domain has no default rule; set `default_rule` in its file".to_owned(),
        (None, text) => {
            let candidates = domain.descriptors().iter().map(|text| quoted(text).to_string()).collect();
            format!("no rule has {}; there are {}", quoted(text.unwrap_or_default()), some(candidates))
        }
    }
}

/// Why a limit can't take the place of a rule's.
fn unfit(rule: &Rule, cap: &OverrideCap, at: &str) -> Option<Fault> {
    let holds = rule.is_concurrency();
    let (place, what) = match cap {
        OverrideCap::Unlimited | OverrideCap::Scaled(_) => return None,
        OverrideCap::Amount(_) if holds => return None,
        OverrideCap::Amount(_) => ("limit", "counts a rate: write for instance 100/minute"),
        OverrideCap::Rate { .. } if holds => ("limit", "counts requests in flight: write `limit: \"20 concurrent\"`"),
        OverrideCap::Rate { amount, period, burst } => match rule.would_be(*amount, period, *burst) {
            Some(limit) if burst.is_some() && !matches!(limit.algorithm(), Algorithm::Bucket { .. }) => {
                ("burst", "is no bucket, and has no burst")
            }
            Some(_) => return None,
            None => ("requests_per_unit", "can't count so many exactly over this period"),
        },
    };
    Some(Fault { at: format!("{at}{place}"), what: format!("the rule {} {what}", quoted(rule.name())) })
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

fn parsed(stored: &Stored) -> Result<QuotaDocument, Problem> {
    let text = stored.document.as_deref().unwrap_or_default();
    serde_json::from_str(text).map_err(|error| {
        let detail = format!("the stored quota can't be read, a newer Tollgate may have written it: {error}");
        Problem::new(http::StatusCode::INTERNAL_SERVER_ERROR, "control_failed", detail)
    })
}

fn text(document: &QuotaDocument) -> String {
    // Texts, numbers and lists of them always have a form in JSON.
    serde_json::to_string(document).unwrap_or_default()
}
