//! Emergencies: limits that go before all others, and end by themselves.

use axum::body::Body;
use axum::extract::State;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::control::Moment;
use tollgate::control::documents::{EmergencyDocument, Faults, Limited};
use tollgate::tenants::MOST_WIDE;
use tollgate::{Ruleset, Span, Timestamp};
use tollgate_control::{Change, Filter, Kind, MOST_LISTED, Name, Stored};
use tollgate_rules::{Domain, Rule};

use super::extract::{InDomain, Listed, Path, Query};
use super::records::{self, Made, Writing};
use super::until::Until;
use super::{Answer, Api, Asked, Problem, body, fits, names, openapi};
use crate::admin::who::Scope;
use crate::control::{is_over, taken_away};

/// What is limited, and how.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmergencyBody {
    /// For which callers: a name, a glob, or `*`, which is the default.
    callers: Option<String>,
    /// Of the rules whose conditions have exactly this, …
    descriptor: Option<String>,
    /// … of this rule, or else of every rule.
    rule: Option<String>,
    requests_per_unit: Option<u64>,
    unit: Option<String>,
    /// Or both in one: `500/30s`.
    limit: Option<String>,
    burst: Option<u64>,
    /// Or so much of what would apply: 50 is half of it.
    percent: Option<u32>,
    /// Why.
    #[serde(default)]
    reason: String,
    /// Until when: at most a day from now.
    #[schema(value_type = Option<String>)]
    expires_at: Option<Moment>,
    /// Or for how long; by default `1h`.
    r#for: Option<String>,
}

/// For how much longer.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewBody {
    /// From now on; by default `1h`.
    r#for: Option<String>,
    /// Or until when.
    #[schema(value_type = Option<String>)]
    expires_at: Option<Moment>,
    #[serde(default)]
    reason: String,
}

/// How long an emergency lasts that does not say.
const USUAL: Span = Span::from_secs(3_600);
/// How long one may last. Who needs more renews it.
const LONGEST: Span = Span::from_secs(24 * 3_600);

/// Emergencies, those that ended too
#[utoipa::path(
    get, path = "/admin/v1/emergencies", operation_id = "emergencies_list", tag = "emergencies", params(openapi::Listing),
    responses((status = 200, body = openapi::ListBody), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn list(State(api): State<Api>, asked: Asked, Query(listed): Query<Listed>) -> Answer {
    asked.may(Scope::Read)?;
    let filter = Filter { domain: listed.domain, ..Filter::of(Kind::Emergency) };
    records::list(&api, &filter, listed.after.as_deref(), listed.limit, told).await
}

/// An emergency
#[utoipa::path(
    get, path = "/admin/v1/emergencies/{name}", operation_id = "emergencies_show", tag = "emergencies",
    params(openapi::OfDomain),
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn show(
    State(api): State<Api>,
    asked: Asked,
    Path(name): Path<String>,
    Query(named): Query<InDomain>,
) -> Answer {
    asked.may(Scope::Read)?;
    records::show(&api, &record(named, name), told).await
}

/// Puts an emergency in force
#[utoipa::path(
    put, path = "/admin/v1/emergencies/{name}", operation_id = "emergencies_put", tag = "emergencies",
    params(openapi::OfDomain, openapi::Conditions), request_body = EmergencyBody,
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn put(
    State(api): State<Api>,
    asked: Asked,
    Path(name): Path<String>,
    Query(named): Query<InDomain>,
    headers: HeaderMap,
    sent: Body,
) -> Answer {
    asked.may(Scope::Emergency)?;
    let sent = body::whole(&headers, sent).await?;
    if let Some(again) = records::again(&api, &asked, &sent).await? {
        return Ok(again);
    }
    let rules = api.limiter().rules();
    let domain = named.domain.as_deref().map(|domain| names::domain(&rules, Some(domain))).transpose()?;
    let now = api.now();
    let document = body::parsed::<EmergencyBody>(&sent)?.document(&rules, domain, now)?;
    let name = record(named, name);
    let over = over(&api, &name).await?;
    let there = api.limiter().tenants().wide().emergencies;
    let writing =
        Writing { asked: &asked, name, action: "emergency.put", reason: document.reason.clone(), body: &sent };
    let answer = told(&writing.name, &document, now);
    let made = |stored: Option<&Stored>| {
        if stored.is_none() {
            records::has_room(there - over.len().min(there), MOST_WIDE, "emergencies")?;
        }
        Ok(Made { beside: over.clone(), ..Made::of(&document, answer.clone()) })
    };
    records::write(&api, writing, made).await
}

/// Has an emergency last longer
#[utoipa::path(
    post, path = "/admin/v1/emergencies/{name}/renew", operation_id = "emergencies_renew", tag = "emergencies",
    params(openapi::OfDomain, openapi::Conditions), request_body = RenewBody,
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn renew(
    State(api): State<Api>,
    asked: Asked,
    Path(name): Path<String>,
    Query(named): Query<InDomain>,
    headers: HeaderMap,
    sent: Body,
) -> Answer {
    asked.may(Scope::Emergency)?;
    let sent = body::whole(&headers, sent).await?;
    if let Some(again) = records::again(&api, &asked, &sent).await? {
        return Ok(again);
    }
    let RenewBody { r#for, expires_at, reason } = body::parsed(&sent)?;
    let (now, mut faults) = (api.now(), Faults::default());
    let until = end(&Until { expires_at, lasts: r#for.as_deref() }, now, &mut faults);
    super::until::reason_fits(&reason, &mut faults);
    faults.unless(()).map_err(Problem::invalid)?;
    let name = record(named, name);
    let writing = Writing { asked: &asked, name: name.clone(), action: "emergency.renew", reason, body: &sent };
    records::write(&api, writing, |stored| {
        let stored = stored.ok_or_else(|| records::missing(&name))?;
        let document = EmergencyDocument { expires_at: until, ..records::parsed(stored)? };
        let answer = told(&name, &document, now);
        Ok(Made::of(&document, answer))
    })
    .await
}

/// Ends an emergency
#[utoipa::path(
    delete, path = "/admin/v1/emergencies/{name}", operation_id = "emergencies_delete", tag = "emergencies",
    params(openapi::OfDomain, openapi::Conditions),
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn delete(
    State(api): State<Api>,
    asked: Asked,
    Path(name): Path<String>,
    Query(named): Query<InDomain>,
) -> Answer {
    asked.may(Scope::Emergency)?;
    let answer = json!({"name": name, "domain": named.domain, "deleted": true});
    records::delete(&api, &asked, record(named, name), "emergency.delete", answer).await
}

fn record(named: InDomain, name: String) -> Name {
    Name::new(Kind::Emergency, named.domain.unwrap_or_default(), name)
}

fn told(name: &Name, document: &EmergencyDocument, now: Timestamp) -> Value {
    let mut told = json!(document);
    told["name"] = json!(name.name);
    told["domain"] = json!(names::domain_of(name));
    told["in_force"] = json!(document.expires_at.0 > now);
    told
}

/// Takes away those that are over, where there is no room for another: in an emergency nobody has the time to tidy up.
async fn over(api: &Api, besides: &Name) -> Result<Vec<Change>, Problem> {
    if api.limiter().tenants().wide().emergencies < MOST_WIDE {
        return Ok(Vec::new());
    }
    let page = records::db(api)?.list(&Filter::of(Kind::Emergency), None, MOST_LISTED).await?;
    let now = api.now();
    let gone = page.into_iter().filter(|stored| stored.name != *besides && is_over(stored, now)).map(taken_away);
    Ok(gone.take(tollgate_control::MOST_CHANGES - 1).collect())
}

/// When it ends. It always does.
fn end(until: &Until<'_>, now: Timestamp, faults: &mut Faults) -> Moment {
    let end = until.moment(now, faults).unwrap_or(Moment(now.after(USUAL)));
    if end.0 > now.after(LONGEST) {
        let place = if until.lasts.is_some() { "for" } else { "expires_at" };
        faults.add(place, "an emergency lasts for 24h at most; renew it then, or write a quota or a rule");
    }
    end
}

impl EmergencyBody {
    /// What is to be stored, if it makes sense under the rules in force.
    fn document(self, rules: &Ruleset, domain: Option<&Domain>, now: Timestamp) -> Result<EmergencyDocument, Problem> {
        let mut faults = Faults::default();
        let until = Until { expires_at: self.expires_at, lasts: self.r#for.as_deref() };
        let expires_at = end(&until, now, &mut faults);
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
        document.meaning(domain.map(Domain::name).unwrap_or_default(), &mut faults);
        fits_rules(&document, rules, domain, &mut faults);
        faults.unless(document).map_err(Problem::invalid)
    }
}

/// Whether there are rules that it means, and whether they can have its limit.
fn fits_rules(document: &EmergencyDocument, rules: &Ruleset, domain: Option<&Domain>, faults: &mut Faults) {
    let domains: Vec<&Domain> = domain.map_or_else(|| rules.domains().iter().collect(), |domain| vec![domain]);
    let (rule, descriptor) = (document.rule.as_deref(), document.descriptor.as_deref());
    let every = rule.is_none() && descriptor.is_none();
    let selected: Vec<&Rule> = match every {
        true => domains.iter().flat_map(|domain| domain.rules()).collect(),
        false => domains.iter().flat_map(|domain| fits::selected(rule, descriptor, domain)).collect(),
    };
    if let ([], Some(first), false) = (&selected[..], domains.first(), every) {
        let place = if rule.is_some() { "rule" } else { "descriptor" };
        faults.add(place, fits::none(rule, descriptor, first));
    }
    let limited = Limited {
        requests_per_unit: document.requests_per_unit,
        unit: document.unit.as_deref(),
        limit: document.limit.as_deref(),
        burst: document.burst,
        ..Limited::default()
    };
    // What is wrong with the limit itself has been told.
    let cap = match document.percent {
        None => limited.meaning("", &mut Faults::default()),
        Some(_) => None,
    };
    let Some(cap) = cap else { return };
    let unfit: Vec<_> = selected.iter().filter_map(|rule| fits::unfit(rule, &cap, "")).collect();
    // One for every rule holds for those that it fits.
    if !every || unfit.len() == selected.len() {
        faults.0.extend(unfit);
    }
}
