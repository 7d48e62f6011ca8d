//! Overview of the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};
use tollgate_observe::{DecisionOutcome, HistoryRange, Quantiles, RefusingRule};
use tollgate_records::Rfc3339;

use super::history::{line_json, nanos_to_seconds, second_json};
use super::{AdminState, ResultsBody, hundredths, items, seconds};
use crate::api::extract::{EmptyQuery, Query};
use crate::api::{ApiResult, RequestContext};
use crate::scopes::AccessScope;

/// Components that are listed even while healthy.
const COMPONENTS: [&str; 4] = ["control", "data", "rules", "store"];

/// Rules that are listed because they refuse.
const MAX_REFUSING: usize = 5;

/// Show an overview of the server: rates, latency, store, rules, health, and the last ten minutes
///
/// `refusing` has the rules that refused most in the last minute, or would have.
#[utoipa::path(
    get, path = "/admin/v1/overview", operation_id = "overview", tag = "seeing",
    responses((status = 200, body = Object), (status = "default", response = crate::api::description::Failed))
)]
pub(crate) async fn show(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let mut overview = overview(&state);
    overview["servers"] = items::servers(&state).into();
    let (line, at, refusing) = {
        let history = state.observability.sampler.history();
        (history.line(HistoryRange::TenMinutes), history.at(), history.refusing(MAX_REFUSING))
    };
    overview["history"] = line_json(&line, at);
    overview["refusing"] = refusing.into_iter().map(|rule| refusing_json(&state, rule)).collect();
    Ok(Json(overview).into_response())
}

/// The part that changes every second.
pub(super) fn overview(state: &AdminState) -> Value {
    let (observability, now) = (&state.observability, state.control.now());
    // From one sample, under one lock.
    let (at, second, totals, rates, unmatched, decision, store) = {
        let history = observability.sampler.history();
        let latencies = (history.decision_latency(), history.store_latency());
        let rates = (history.rates(), history.unmatched_share());
        (history.at(), history.second(), history.totals(), rates.0, rates.1, latencies.0, latencies.1)
    };
    json!({
        // The difference of two overviews covers exactly the time between their `at`.
        "at": Rfc3339(at),
        // The newest point of the history.
        "second": second_json(second),
        "server": {
            "name": observability.name,
            "version": env!("CARGO_PKG_VERSION"),
            "region": observability.region,
            "started_at": Rfc3339(observability.started_at),
            "uptime_seconds": seconds(now.since(observability.started_at)),
        },
        "rates": by_outcome(rates.map(hundredths), hundredths(rates.iter().sum())),
        "totals": by_outcome(totals, totals.iter().sum()),
        "latency": {"decision": latency(decision), "store": latency(store)},
        "in_flight": state.metrics.in_flight(),
        // Over the last minute, with attributes that no rule reads.
        "unmatched": {
            "share": unmatched.unwrap_or(0.0),
            "attributes": if unmatched.is_some_and(|share| share > 0.0) { unknown_attributes(state) } else { Vec::new() },
        },
        "store": store_json(state),
        "rules": rules(state),
        "control": {
            "kind": state.control.kind(),
            "generation": state.control.generation(),
            "snapshot_age_seconds": state.control.age().map(seconds),
        },
        "health": health(state),
        "log": items::log(state),
    })
}

/// Attributes of requests that met no rule, without those that rules read by now.
fn unknown_attributes(state: &AdminState) -> Vec<String> {
    let rules = state.limiter().rules();
    let is_unknown = |domain: &str, attribute: &str| {
        rules.domains().iter().any(|other| other.name() == domain && !other.knows(attribute))
    };
    let mut names: Vec<String> = state
        .metrics
        .unmatched_checks()
        .attributes()
        .into_iter()
        .filter_map(|(domain, name)| is_unknown(&domain, &name).then_some(name))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn by_outcome<T: Into<Value>>(counts: [T; DecisionOutcome::ALL.len()], sum: T) -> Value {
    let members = DecisionOutcome::ALL.into_iter().map(DecisionOutcome::name).zip(counts).chain([("decisions", sum)]);
    members.map(|(name, count)| (name.to_owned(), count.into())).collect::<Map<_, _>>().into()
}

fn latency(quantiles: Option<Quantiles>) -> Value {
    let Some(Quantiles { p50, p99, p999, count }) = quantiles else {
        return json!({"p50": null, "p99": null, "p999": null, "count": 0});
    };
    json!({"p50": nanos_to_seconds(p50), "p99": nanos_to_seconds(p99), "p999": nanos_to_seconds(p999), "count": count})
}

fn store_json(state: &AdminState) -> Value {
    let store = state.observability.sampler.store();
    let circuits = store.circuits.iter();
    let circuits: Vec<_> = circuits.map(|(shard, circuit)| json!({"shard": shard, "state": circuit.name()})).collect();
    json!({
        "kind": if state.limiter().store().shared().is_some() { "redis" } else { "memory" },
        "level": store.level.name(),
        "since": store.since.map(Rfc3339),
        "circuits": circuits,
        "keys": store.keys,
        "evicted": store.evicted,
    })
}

fn rules(state: &AdminState) -> Value {
    let rules = state.limiter().rules();
    let reload = state.control.rules().reloads().borrow().clone();
    json!({
        "generation": rules.generation(),
        "rules": rules.domains().iter().map(|domain| domain.rules().len()).sum::<usize>(),
        "domains": rules.domains().len(),
        "valid": reload.error.is_none(),
        "last_error": reload.error,
        "last_reload": reload.at.map(Rfc3339),
    })
}

fn health(state: &AdminState) -> Vec<Value> {
    let mut parts: BTreeMap<&str, Option<String>> = COMPONENTS.into_iter().map(|part| (part, None)).collect();
    parts.extend(state.health.conditions().into_iter().map(|(part, why)| (part, Some(why))));
    parts.into_iter().map(|(part, why)| json!({"part": part, "degraded": why.is_some(), "why": why})).collect()
}

fn refusing_json(state: &AdminState, RefusingRule { domain, rule, rates }: RefusingRule) -> Value {
    let rules = state.limiter().rules();
    let of = rules.domains().iter().find(|other| other.name() == domain);
    let found = of.and_then(|of| of.rules().iter().find(|other| other.name() == rule));
    let mode = found.map(|rule| rule.mode().name().replace(':', ""));
    json!({"domain": domain, "rule": rule, "mode": mode, "rates": ResultsBody::rates(rates)})
}
