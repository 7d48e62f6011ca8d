//! The counters of a caller: show, reset, credit, debit.
//!
//! An adjustment is written to the audit log before it is made, so that none goes unrecorded. If the counter store fails then,
//! the log records that too.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate::{
    Adjustment, AdjustmentReport, Algorithm, Limit, Reading, RegionCounter, RequestError, Rule, RuleName, Source,
    Timestamp,
};
use tollgate_control::{Change, Precondition, RecordName, WriteOutcome};
use tollgate_records::RecordKind;
use tollgate_records::Rfc3339;
use tollgate_records::documents::FieldFaults;
use tollgate_rules::Domain;

use super::body::{self, RequestBody};
#[cfg(test)]
use super::description;
use super::extract::{DomainQuery, PathParams, Query, QueryPairs};
use super::{Api, ApiProblem, ApiResult, RequestContext, expiry, names, records};
use crate::scopes::AccessScope;

/// An adjustment of counters.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CounterBody {
    /// `reset`, `credit` or `debit`.
    #[schema(value_type = String)]
    action: CounterAction,
    /// Units to credit or debit.
    units: Option<u64>,
    /// Only this rule; all rules by default.
    rule: Option<String>,
    /// The other values of composite keys.
    #[serde(default)]
    #[schema(value_type = Object)]
    attributes: Map<String, Value>,
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum CounterAction {
    Reset,
    Credit,
    Debit,
}

/// A validated adjustment.
struct CounterAdjustment {
    adjustment: Adjustment,
    rule: Option<String>,
    others: Vec<(String, String)>,
    action: &'static str,
    reason: String,
}

/// Units: what counters can represent exactly.
const MAX_UNITS: u64 = (1 << 53) - 1;

/// Show a caller's counters. Other query parameters are values of composite keys
#[utoipa::path(
    get, path = "/admin/v1/counters/{caller}", operation_id = "counters_show", tag = "counters",
    params(description::OfDomain, ("rule" = Option<String>, Query, description = "Only this rule")),
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn show(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(caller): PathParams<String>,
    mut pairs: QueryPairs,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let (named, rule) = (pairs.take("domain"), pairs.take("rule"));
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, named.as_deref())?;
    Ok(Json(show_counters(&api, domain, &caller, rule.as_deref(), &pairs.0).await?).into_response())
}

/// Reset, credit or debit a caller's counters
#[utoipa::path(
    post, path = "/admin/v1/counters/{caller}", operation_id = "counters_change", tag = "counters",
    params(description::OfDomain, description::Conditions), request_body = CounterBody,
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn change(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(caller): PathParams<String>,
    Query(named): Query<DomainQuery>,
    body: RequestBody,
) -> ApiResult {
    context.require(AccessScope::Quota)?;
    if context.expect != Precondition::Any {
        return Err(ApiProblem::bad_request("bad_precondition", "counters have no generation; omit If-Match"));
    }
    let body = body.read().await?;
    let order = body::parse::<CounterBody>(&body)?.validate()?;
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, named.domain.as_deref())?;
    if let Some(rule) = &order.rule {
        names::rule(domain, rule)?;
    }
    let once = context.once(&body, "{}".to_owned());
    let written = api.write(&context.principal.author(), vec![order.audit_change(domain, &caller, None)], once).await?;
    if let WriteOutcome::Replayed { generation, .. } = written {
        // It was done before. The response has the current counters.
        let now = show_counters(&api, domain, &caller, order.rule.as_deref(), &order.others).await?;
        return Ok(records::replayed_response(generation, now.to_string()));
    }
    let others: Vec<(&str, &str)> = order.others.iter().map(|(name, value)| (&**name, &**value)).collect();
    let limiter = api.limiter();
    let done = limiter.adjust(Some(domain.name()), None, &caller, &others, order.rule.as_deref(), order.adjustment);
    let failed = match done.await {
        Ok(Some(adjusted)) if adjusted.is_stored() => {
            if let Some(missed) = names::missed_regions(&adjusted) {
                let note = order.audit_change(domain, &caller, Some(("counter.missed", &missed)));
                let _ = api.write(&context.principal.author(), vec![note], None).await;
            }
            return Ok(adjusted_response(&caller, &adjusted));
        }
        Ok(Some(adjusted)) => not_stored(&adjusted),
        Ok(None) => no_entity(),
        Err(error) => invalid_request(&error),
    };
    // The adjustment was not made. If this can't be logged either, the response reports it.
    records::forget(&api, &context, &body).await;
    let _ = api
        .write(
            &context.principal.author(),
            vec![order.audit_change(domain, &caller, Some(("counter.failed", &failed.detail)))],
            None,
        )
        .await;
    Err(failed)
}

impl CounterBody {
    fn validate(self) -> Result<CounterAdjustment, ApiProblem> {
        let mut faults = FieldFaults::default();
        let adjustment = match (self.action, self.units) {
            (CounterAction::Reset, None) => Adjustment::Reset,
            (CounterAction::Reset, Some(_)) => {
                faults.add("units", "`units` can't be combined with a reset");
                Adjustment::Reset
            }
            (action, Some(units @ 1..=MAX_UNITS)) => match action {
                CounterAction::Credit => Adjustment::Credit(units),
                _ => Adjustment::Debit(units),
            },
            (_, _) => {
                faults.add("units", format!("it must be an integer between 1 and {MAX_UNITS}"));
                Adjustment::Reset
            }
        };
        let mut others = Vec::with_capacity(self.attributes.len());
        for (name, value) in self.attributes {
            match value {
                Value::String(value) => others.push((name, value)),
                _ => faults.add(format!("attributes.{name}"), "it must be a string"),
            }
        }
        let reason = self.reason.unwrap_or_default();
        expiry::check_reason(&reason, &mut faults);
        let action = match self.action {
            CounterAction::Reset => "counter.reset",
            CounterAction::Credit => "counter.credit",
            CounterAction::Debit => "counter.debit",
        };
        faults
            .into_result(CounterAdjustment { adjustment, rule: self.rule, others, action, reason })
            .map_err(ApiProblem::invalid)
    }
}

impl CounterAdjustment {
    /// The audit log entry: that it will be made, or, under another action, why it was not made everywhere.
    fn audit_change(&self, domain: &Domain, caller: &str, failed: Option<(&str, &str)>) -> Change {
        let units = match self.adjustment {
            Adjustment::Reset => None,
            Adjustment::Credit(units) | Adjustment::Debit(units) => Some(units),
        };
        let others: Map<String, Value> = self.others.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let mut document = json!({"units": units, "rule": self.rule, "attributes": others});
        if let Some((_, why)) = failed {
            document["failed"] = json!(why);
        } else if let Some(regions) = self.regions(domain) {
            document["regions"] = json!(regions);
        }
        Change {
            name: RecordName::new(RecordKind::Counter, domain.name(), caller),
            expect: Precondition::Any,
            document: Some(document.to_string()),
            action: failed.map_or(self.action, |(action, _)| action).to_owned(),
            reason: self.reason.clone(),
        }
    }

    /// The regions in which counters of `region: global` are changed, if there may be any.
    fn regions<'d>(&self, domain: &'d Domain) -> Option<Vec<&'d str>> {
        if let Adjustment::Debit(_) = self.adjustment {
            return None;
        }
        let is_selected = |rule: &Rule| self.rule.as_deref().is_none_or(|name| rule.name() == name);
        let is_global = domain.rules().iter().any(|rule| is_selected(rule) && rule.region().global().is_some());
        let names = domain.regions().all().filter(|_| is_global)?;
        Some(names.iter().map(|(_, name)| name).collect())
    }
}

/// The current counters of a caller.
async fn show_counters(
    api: &Api,
    domain: &Domain,
    caller: &str,
    rule: Option<&str>,
    others: &[(String, String)],
) -> Result<Value, ApiProblem> {
    if let Some(rule) = rule {
        names::rule(domain, rule)?;
    }
    let others: Vec<(&str, &str)> = others.iter().map(|(name, value)| (&**name, &**value)).collect();
    let peeked = api.limiter().peek_in_all_regions(Some(domain.name()), None, caller, &others).await;
    let peeked = peeked.map_err(|error| invalid_request(&error))?.ok_or_else(no_entity)?;
    let is_selected = |name: &RuleName| rule.is_none_or(|rule| name.name == rule);
    let counters: Vec<Value> = peeked
        .counters
        .iter()
        .filter(|(name, _)| is_selected(name))
        .map(|(name, counter)| {
            let mut one = one(name, &counter.key, &counter.limit, (&counter.reading, counter.used), peeked.at);
            one["resolved_by"] = json!(counter.by.name());
            one["mode"] = json!(mode(domain, name));
            add_region(&mut one, counter.region.as_deref());
            add_regions(&mut one, &counter.limit, &counter.regions, |_| json!({}));
            one
        })
        .collect();
    let left_out = peeked.left_out.iter().filter(|(name, _)| is_selected(name));
    Ok(json!({
        "api_key": caller,
        "domain": peeked.domain,
        "tier": names::caller_tier(peeked.tier.as_ref()),
        // The attribute with which requests name the tier.
        "tier_from": domain.tier_attribute(),
        "at": Rfc3339(peeked.at),
        "counters": counters,
        "left_out": skipped_json(left_out),
    }))
}

/// The mode of the rule.
fn mode(domain: &Domain, name: &RuleName) -> Option<String> {
    let rule = domain.rules().iter().find(|rule| rule.name() == name.name)?;
    Some(rule.mode().name().replace(':', ""))
}

fn one(name: &RuleName, key: &[String], limit: &Limit, (reading, used): (&Reading, u64), at: Timestamp) -> Value {
    let mut shown = names::limit(limit);
    if let Algorithm::Bucket { burst, .. } = limit.algorithm() {
        shown["burst"] = json!(burst);
    }
    json!({
        "rule": name.name,
        "key": key,
        "limit": shown,
        "used": used,
        "remaining": reading.remaining,
        "resets_at": Rfc3339(at.after(reading.reset_after)),
        "source": reading.source.name(),
    })
}

/// Adds the region that owns the counter, if one of them does.
pub(super) fn add_region(one: &mut Value, region: Option<&str>) {
    if let Some(region) = region {
        one["region"] = json!(region);
    }
}

/// Adds the counter in all regions, if it is one of `region: global`, each with what `first` shows of it.
fn add_regions(one: &mut Value, limit: &Limit, regions: &[RegionCounter], first: impl Fn(&RegionCounter) -> Value) {
    if regions.is_empty() {
        return;
    }
    let regions = regions.iter().map(|at| {
        let mut shown = first(at);
        shown["region"] = json!(at.region);
        shown["source"] = json!(at.reading.source.name());
        // What is not known is not shown.
        if at.is_stored() {
            shown["used"] = json!(limit.quota().saturating_sub(at.reading.remaining));
            shown["remaining"] = json!(at.reading.remaining);
        }
        shown
    });
    one["regions"] = regions.collect();
}

pub(super) fn skipped_json<'a>(left_out: impl Iterator<Item = &'a (RuleName, String)>) -> Vec<Value> {
    left_out.map(|(name, why)| json!({"rule": name.name, "why": why})).collect()
}

fn adjusted_response(caller: &str, adjusted: &AdjustmentReport) -> Response {
    let counters = adjusted.counters.iter().map(|counter| {
        let mut one = one(&counter.rule, &counter.key, &counter.limit, (&counter.reading, counter.used), adjusted.at);
        one["moved"] = json!(counter.units);
        add_region(&mut one, counter.region.as_deref());
        add_regions(&mut one, &counter.limit, &counter.regions, |at| json!({"moved": at.units}));
        one
    });
    let mut answer = json!({
        "api_key": caller,
        "domain": adjusted.domain,
        "at": Rfc3339(adjusted.at),
        "counters": counters.collect::<Vec<_>>(),
        "left_out": skipped_json(adjusted.left_out.iter()),
    });
    names::add_missed_regions(&mut answer, adjusted);
    Json(answer).into_response()
}

fn not_stored(adjusted: &AdjustmentReport) -> ApiProblem {
    let is_away = |source: Source| !source.is_recorded();
    let counters = adjusted.counters.iter().filter(|counter| is_away(counter.reading.source));
    let rules = names::join_some(counters.map(|counter| counter.rule.name.clone()).collect());
    let detail =
        format!("the counter store did not respond for {rules}; presumably nothing was changed: check, and retry");
    ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "store_away", detail)
}

fn no_entity() -> ApiProblem {
    ApiProblem::bad_request("no_entity", "the domain has no `entity`; set it in its file")
}

fn invalid_request(error: &RequestError) -> ApiProblem {
    ApiProblem::bad_request("bad_request", error.to_string())
}
