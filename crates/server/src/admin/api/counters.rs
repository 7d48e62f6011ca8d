//! One caller's counters: looked at, started afresh, credited, debited.
//!
//! What is done to counters is written to the audit log first: nothing is done that nobody could find. If the counters' store does
//! not do it then, the log says that too.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate::control::Moment;
use tollgate::control::documents::Faults;
use tollgate::{Adjusted, Adjustment, Limit, Reading, RequestError, RuleName, Source, Timestamp};
use tollgate_control::{Change, Expect, Kind, Name, Written};
use tollgate_rules::Domain;

use super::extract::{InDomain, Pairs, Path, Query};
use super::{Answer, Api, Asked, Problem, body, names, openapi, records, until};
use crate::admin::who::Scope;

/// What is to be done.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CounterBody {
    /// `reset`, `credit` or `debit`.
    #[schema(value_type = String)]
    action: Action,
    /// So many units are given back or taken.
    units: Option<u64>,
    /// Of this rule; by default of all.
    rule: Option<String>,
    /// The other values of composite keys.
    #[serde(default)]
    #[schema(value_type = Object)]
    attributes: Map<String, Value>,
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Action {
    Reset,
    Credit,
    Debit,
}

/// An order that makes sense.
struct Order {
    adjustment: Adjustment,
    rule: Option<String>,
    others: Vec<(String, String)>,
    action: &'static str,
    reason: String,
}

/// The most units: what counters count exactly.
const MOST_UNITS: u64 = (1 << 53) - 1;

/// A caller's counters. Other parameters of the query are values of composite keys
#[utoipa::path(
    get, path = "/admin/v1/counters/{caller}", operation_id = "counters_show", tag = "counters",
    params(openapi::OfDomain, ("rule" = Option<String>, Query, description = "Of this rule alone")),
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn show(State(api): State<Api>, asked: Asked, Path(caller): Path<String>, mut pairs: Pairs) -> Answer {
    asked.may(Scope::Read)?;
    let (named, rule) = (pairs.take("domain"), pairs.take("rule"));
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, named.as_deref())?;
    Ok(Json(looked(&api, domain, &caller, rule.as_deref(), &pairs.0).await?).into_response())
}

/// Changes a caller's counters
#[utoipa::path(
    post, path = "/admin/v1/counters/{caller}", operation_id = "counters_change", tag = "counters",
    params(openapi::OfDomain, openapi::Conditions), request_body = CounterBody,
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn change(
    State(api): State<Api>,
    asked: Asked,
    Path(caller): Path<String>,
    Query(named): Query<InDomain>,
    headers: HeaderMap,
    sent: Body,
) -> Answer {
    asked.may(Scope::Quota)?;
    if asked.expect != Expect::Anything {
        return Err(Problem::bad_request("bad_precondition", "counters have no generation; write without If-Match"));
    }
    let sent = body::whole(&headers, sent).await?;
    let order = body::parsed::<CounterBody>(&sent)?.order()?;
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, named.domain.as_deref())?;
    if let Some(rule) = &order.rule {
        names::rule(domain, rule)?;
    }
    let once = asked.once(&sent, "{}".to_owned());
    let written = api.write(&asked.who.author(), vec![order.noted(domain, &caller, None)], once).await?;
    if let Written::Before { generation, .. } = written {
        // It was done when it was sent before. How the counters stand is answered as of now.
        let now = looked(&api, domain, &caller, order.rule.as_deref(), &order.others).await?;
        return Ok(records::replayed(generation, now.to_string()));
    }
    let others: Vec<(&str, &str)> = order.others.iter().map(|(name, value)| (&**name, &**value)).collect();
    let limiter = api.limiter();
    let done = limiter.adjust(Some(domain.name()), None, &caller, &others, order.rule.as_deref(), order.adjustment);
    let failed = match done.await {
        Ok(Some(adjusted)) if adjusted.is_stored() => return Ok(told(&caller, &adjusted)),
        Ok(Some(adjusted)) => not_stored(&adjusted),
        Ok(None) => no_entity(),
        Err(error) => bad(&error),
    };
    // What was noted was not done. If this can't be noted either, the answer has said it.
    records::forget(&api, &asked, &sent).await;
    let _ = api.write(&asked.who.author(), vec![order.noted(domain, &caller, Some(&failed.detail))], None).await;
    Err(failed)
}

impl CounterBody {
    fn order(self) -> Result<Order, Problem> {
        let mut faults = Faults::default();
        let adjustment = match (self.action, self.units) {
            (Action::Reset, None) => Adjustment::Reset,
            (Action::Reset, Some(_)) => {
                faults.add("units", "a reset forgets all of them; write no `units`");
                Adjustment::Reset
            }
            (action, Some(units @ 1..=MOST_UNITS)) => match action {
                Action::Credit => Adjustment::Credit(units),
                _ => Adjustment::Debit(units),
            },
            (_, _) => {
                faults.add("units", format!("write a whole number from 1 to {MOST_UNITS}"));
                Adjustment::Reset
            }
        };
        let mut others = Vec::with_capacity(self.attributes.len());
        for (name, value) in self.attributes {
            match value {
                Value::String(value) => others.push((name, value)),
                _ => faults.add(format!("attributes.{name}"), "write a text"),
            }
        }
        let reason = self.reason.unwrap_or_default();
        until::reason_fits(&reason, &mut faults);
        let action = match self.action {
            Action::Reset => "counter.reset",
            Action::Credit => "counter.credit",
            Action::Debit => "counter.debit",
        };
        faults.unless(Order { adjustment, rule: self.rule, others, action, reason }).map_err(Problem::invalid)
    }
}

impl Order {
    /// What the audit log says of it.
    fn noted(&self, domain: &Domain, caller: &str, failed: Option<&str>) -> Change {
        let units = match self.adjustment {
            Adjustment::Reset => None,
            Adjustment::Credit(units) | Adjustment::Debit(units) => Some(units),
        };
        let others: Map<String, Value> = self.others.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let mut document = json!({"units": units, "rule": self.rule, "attributes": others});
        if let Some(why) = failed {
            document["failed"] = json!(why);
        }
        Change {
            name: Name::new(Kind::Counter, domain.name(), caller),
            expect: Expect::Anything,
            document: Some(document.to_string()),
            action: if failed.is_some() { "counter.failed" } else { self.action }.to_owned(),
            reason: self.reason.clone(),
        }
    }
}

/// How a caller's counters stand.
async fn looked(
    api: &Api,
    domain: &Domain,
    caller: &str,
    rule: Option<&str>,
    others: &[(String, String)],
) -> Result<Value, Problem> {
    if let Some(rule) = rule {
        names::rule(domain, rule)?;
    }
    let others: Vec<(&str, &str)> = others.iter().map(|(name, value)| (&**name, &**value)).collect();
    let standing = api.limiter().standing(Some(domain.name()), None, caller, &others).await;
    let standing = standing.map_err(|error| bad(&error))?.ok_or_else(no_entity)?;
    let is_meant = |name: &RuleName| rule.is_none_or(|rule| name.name == rule);
    let counters: Vec<Value> = standing
        .counters
        .iter()
        .filter(|(name, _)| is_meant(name))
        .map(|(name, counter)| {
            let mut one = one(name, &counter.key, &counter.limit, &counter.reading, standing.at);
            one["resolved_by"] = json!(counter.by.name());
            one
        })
        .collect();
    let left_out = standing.left_out.iter().filter(|(name, _)| is_meant(name));
    Ok(json!({
        "api_key": caller,
        "domain": standing.domain,
        "at": Moment(standing.at),
        "counters": counters,
        "left_out": left_out_told(left_out),
    }))
}

fn one(name: &RuleName, key: &[String], limit: &Limit, reading: &Reading, at: Timestamp) -> Value {
    json!({
        "rule": name.name,
        "key": key,
        "limit": names::limit(limit),
        "used": limit.quota().saturating_sub(reading.remaining),
        "remaining": reading.remaining,
        "resets_at": Moment(at.after(reading.reset_after)),
        "source": reading.source.name(),
    })
}

fn left_out_told<'a>(left_out: impl Iterator<Item = &'a (RuleName, String)>) -> Vec<Value> {
    left_out.map(|(name, why)| json!({"rule": name.name, "why": why})).collect()
}

fn told(caller: &str, adjusted: &Adjusted) -> Response {
    let counters = adjusted.counters.iter().map(|counter| {
        let mut one = one(&counter.rule, &counter.key, &counter.limit, &counter.reading, adjusted.at);
        one["moved"] = json!(counter.moved);
        one
    });
    let answer = json!({
        "api_key": caller,
        "domain": adjusted.domain,
        "at": Moment(adjusted.at),
        "counters": counters.collect::<Vec<_>>(),
        "left_out": left_out_told(adjusted.left_out.iter()),
    });
    Json(answer).into_response()
}

fn not_stored(adjusted: &Adjusted) -> Problem {
    let is_away = |source| source != Source::Store;
    let counters = adjusted.counters.iter().filter(|counter| is_away(counter.reading.source));
    let rules = names::some(counters.map(|counter| counter.rule.name.clone()).collect());
    let detail = format!(
        "the counters' store did not answer for {rules}: as far as is known nothing was done there; look, and send it again"
    );
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_away", detail)
}

fn no_entity() -> Problem {
    Problem::bad_request("no_entity", "the domain does not say who a caller is; write `entity: …` in its file")
}

fn bad(error: &RequestError) -> Problem {
    Problem::bad_request("bad_request", error.to_string())
}
