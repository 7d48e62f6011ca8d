//! How the server is, on one page.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};
use tollgate::control::Moment;
use tollgate_observe::{History, Quantiles, Ruling, STEP};

use super::{See, hundredths, others, seconds};
use crate::admin::api::extract::{Nothing, Query};
use crate::admin::api::{Answer, Asked};
use crate::admin::who::Scope;

/// Parts whose health is told also while they are well.
const PARTS: [&str; 4] = ["control", "data", "rules", "store"];

/// How the server is: rates, times, store, rules, health, and the last five minutes
#[utoipa::path(
    get, path = "/admin/v1/overview", operation_id = "overview", tag = "seeing",
    responses((status = 200, body = Object), (status = "default", response = crate::admin::api::openapi::Failed))
)]
pub(crate) async fn show(State(see): State<Arc<See>>, asked: Asked, Query(Nothing {}): Query<Nothing>) -> Answer {
    asked.may(Scope::Read)?;
    let mut overview = overview(&see);
    overview["servers"] = others::servers(&see).into();
    overview["history"] = history(&see.sight.pulse.history());
    Ok(Json(overview).into_response())
}

/// What of it changes from second to second.
pub(super) fn overview(see: &See) -> Value {
    let (sight, now) = (&see.sight, see.control.now());
    // Of one look: taken together, and given back at once.
    let (at, totals, rates, decision, store) = {
        let history = sight.pulse.history();
        (history.at(), history.totals(), history.rates(), history.decision_times(), history.store_times())
    };
    json!({
        // Who takes two of these apart gets the time in which that was counted.
        "at": Moment(at),
        "server": {
            "name": sight.name,
            "version": env!("CARGO_PKG_VERSION"),
            "region": sight.region,
            "started_at": Moment(sight.started_at),
            "uptime_seconds": seconds(now.since(sight.started_at)),
        },
        "rates": by_ruling(rates.map(hundredths), hundredths(rates.iter().sum())),
        "totals": by_ruling(totals, totals.iter().sum()),
        "latency": {"decision": times(decision), "store": times(store)},
        "in_flight": see.metrics.in_flight(),
        "store": store_of(see),
        "rules": rules(see),
        "control": {
            "kind": see.control.kind(),
            "generation": see.control.generation(),
            "snapshot_age_seconds": see.control.age().map(seconds),
        },
        "health": health(see),
        "log": others::log(see),
    })
}

fn by_ruling<T: Into<Value>>(counts: [T; Ruling::ALL.len()], sum: T) -> Value {
    let members = Ruling::ALL.into_iter().map(Ruling::name).zip(counts).chain([("decisions", sum)]);
    members.map(|(name, count)| (name.to_owned(), count.into())).collect::<Map<_, _>>().into()
}

fn times(quantiles: Option<Quantiles>) -> Value {
    let Some(Quantiles { p50, p99, p999, count }) = quantiles else {
        return json!({"p50": null, "p99": null, "p999": null, "count": 0});
    };
    json!({"p50": nanos(p50), "p99": nanos(p99), "p999": nanos(p999), "count": count})
}

/// Nanoseconds, told as seconds.
fn nanos(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn store_of(see: &See) -> Value {
    let store = see.sight.pulse.store();
    let circuits = store.circuits.iter();
    let circuits: Vec<_> = circuits.map(|(shard, circuit)| json!({"shard": shard, "state": circuit.name()})).collect();
    json!({
        "kind": if see.limiter().store().shared().is_some() { "redis" } else { "memory" },
        "level": store.level.name(),
        "since": store.since.map(Moment),
        "circuits": circuits,
        "keys": store.keys,
        "evicted": store.evicted,
    })
}

fn rules(see: &See) -> Value {
    let rules = see.limiter().rules();
    let reload = see.control.rules().reloads().borrow().clone();
    json!({
        "generation": rules.generation(),
        "rules": rules.domains().iter().map(|domain| domain.rules().len()).sum::<usize>(),
        "domains": rules.domains().len(),
        "valid": reload.error.is_none(),
        "last_error": reload.error,
        "last_reload": reload.at.map(Moment),
    })
}

fn health(see: &See) -> Vec<Value> {
    let mut parts: BTreeMap<&str, Option<String>> = PARTS.into_iter().map(|part| (part, None)).collect();
    parts.extend(see.health.conditions().into_iter().map(|(part, why)| (part, Some(why))));
    parts.into_iter().map(|(part, why)| json!({"part": part, "degraded": why.is_some(), "why": why})).collect()
}

/// The last minutes, second by second.
fn history(history: &History) -> Value {
    let rates = |ruling: Ruling| -> Value {
        history.seconds().map(|second| hundredths(second.rates[ruling as usize])).collect()
    };
    let times = |of: fn(Quantiles) -> u64| -> Value {
        history.seconds().map(|second| second.took.map(|took| nanos(of(took)))).collect()
    };
    let mut told: Map<String, Value> =
        Ruling::ALL.into_iter().map(|ruling| (ruling.name().to_owned(), rates(ruling))).collect();
    told.insert("p50".to_owned(), times(|took| took.p50));
    told.insert("p99".to_owned(), times(|took| took.p99));
    told.insert("p999".to_owned(), times(|took| took.p999));
    told.insert("step_seconds".to_owned(), seconds(STEP).into());
    told.insert("to".to_owned(), json!(Moment(history.at())));
    told.into()
}
