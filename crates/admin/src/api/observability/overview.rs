//! Overview of the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};
use tollgate_observe::{DecisionOutcome, History, Quantiles, STEP};
use tollgate_records::Rfc3339;

use super::{AdminState, hundredths, items, seconds};
use crate::api::extract::{EmptyQuery, Query};
use crate::api::{ApiResult, RequestContext};
use crate::scopes::AccessScope;

/// Components that are listed even while healthy.
const COMPONENTS: [&str; 4] = ["control", "data", "rules", "store"];

/// Show an overview of the server: rates, latency, store, rules, health, and the last five minutes
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
    overview["history"] = history(&state.observability.sampler.history());
    Ok(Json(overview).into_response())
}

/// The part that changes every second.
pub(super) fn overview(state: &AdminState) -> Value {
    let (observability, now) = (&state.observability, state.control.now());
    // From one sample, under one lock.
    let (at, totals, rates, decision, store) = {
        let history = observability.sampler.history();
        (history.at(), history.totals(), history.rates(), history.decision_latency(), history.store_latency())
    };
    json!({
        // The difference of two overviews covers exactly the time between their `at`.
        "at": Rfc3339(at),
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

/// Nanoseconds as seconds.
fn nanos_to_seconds(nanos_to_seconds: u64) -> f64 {
    nanos_to_seconds as f64 / 1e9
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

/// The history, second by second.
fn history(history: &History) -> Value {
    let rates = |outcome: DecisionOutcome| -> Value {
        history.seconds().map(|second| hundredths(second.rates[outcome as usize])).collect()
    };
    let latency = |of: fn(Quantiles) -> u64| -> Value {
        history.seconds().map(|second| second.took.map(|took| nanos_to_seconds(of(took)))).collect()
    };
    let mut series: Map<String, Value> =
        DecisionOutcome::ALL.into_iter().map(|outcome| (outcome.name().to_owned(), rates(outcome))).collect();
    series.insert("p50".to_owned(), latency(|took| took.p50));
    series.insert("p99".to_owned(), latency(|took| took.p99));
    series.insert("p999".to_owned(), latency(|took| took.p999));
    series.insert("step_seconds".to_owned(), seconds(STEP).into());
    series.insert("to".to_owned(), json!(Rfc3339(history.at())));
    series.into()
}
