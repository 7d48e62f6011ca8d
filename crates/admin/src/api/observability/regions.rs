//! Other regions, as this server sees them, and what the rules mean in several of them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use tollgate::{RegionId, RegionMode, RuleMode};
use tollgate_records::Rfc3339;
use tollgate_store::guarded::ShardStatus;
use tollgate_store::{DebitStatus, Durations, UnitCounts};

use super::{AdminState, hundredths, items, seconds};
use crate::api::extract::{EmptyQuery, Query};
use crate::api::{ApiResult, RequestContext};
use crate::observe::RegionDurations;
use crate::observe::fleet::FleetServer;
use crate::scopes::AccessScope;

/// Rules that are listed.
const MAX_RULES: usize = 200;

/// Show the other regions, as this server sees them
///
/// This region comes first. Of each other one: how the debits of rules with `region: global` are doing (`link` and `step`: 0
/// together, 1 to 6 while limits are lowered, 7 apart), what waits, what became of the units since the start, how long debits
/// (`lag`) and calls for rules with `region: home` (`calls`) took in the last minute, in seconds, and the circuit breakers of its
/// nodes. `servers` are those that share a store of record in PostgreSQL. `rules` has those with a `region` other than `each`.
#[utoipa::path(
    get, path = "/admin/v1/regions", operation_id = "regions", tag = "seeing",
    responses((status = 200, body = Object), (status = "default", response = crate::api::description::Failed))
)]
pub(crate) async fn show(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let status = state.limiter().store().shared().map(|store| store.status()).unwrap_or_default();
    let servers = servers(&state);
    let durations = state.observability.sampler.region_durations();
    let durations = durations.into_iter().chain(std::iter::repeat_with(RegionDurations::default));
    let here = state.observability.region.as_deref().map(|name| {
        let mut region = region_json(name, &servers, nodes(&status.guard.shards, RegionId::HERE));
        region["this"] = json!(true);
        region
    });
    // Regions have numbers in the order in which the store lists them.
    let others = (1..).map(RegionId::new).zip(status.debits.iter().zip(durations)).map(|(id, (debits, durations))| {
        let mut region = region_json(&debits.region, &servers, nodes(&status.guard.shards, id));
        add_debits(&mut region, debits, &durations);
        region
    });
    let (rules, omitted) = rules(&state);
    Ok(Json(json!({
        "server": state.observability.name,
        "at": Rfc3339(state.control.now()),
        "region": state.observability.region,
        "available": !status.debits.is_empty(),
        "regions": here.into_iter().chain(others).collect::<Vec<_>>(),
        "rules": rules,
        "omitted": omitted,
    }))
    .into_response())
}

/// The regions of all servers, with the decisions per second of each.
fn servers(state: &AdminState) -> Vec<(Option<String>, f64)> {
    let servers = state.observability.servers(state.limiter().rules().generation(), state.control.now());
    let load = |server: &FleetServer| items::load(state, server.this, server.info.load).decisions_per_second;
    servers.into_iter().map(|server| (server.info.region.clone(), load(&server))).collect()
}

fn region_json(name: &str, servers: &[(Option<String>, f64)], nodes: Vec<Value>) -> Value {
    let servers = servers.iter().filter(|(region, _)| region.as_deref() == Some(name));
    let (count, load) = servers.fold((0u64, 0.0), |(count, sum), (_, load)| (count + 1, sum + load));
    json!({"name": name, "this": false, "servers": count, "decisions_per_second": hundredths(load), "nodes": nodes})
}

/// The nodes of a region's store.
fn nodes(shards: &[ShardStatus], region: RegionId) -> Vec<Value> {
    let shards = shards.iter().filter(|shard| shard.region == region);
    shards.map(|shard| json!({"shard": shard.name, "state": shard.circuit.name(), "error": shard.last_error})).collect()
}

fn add_debits(region: &mut Value, debits: &DebitStatus, RegionDurations { lag, calls }: &RegionDurations) {
    let UnitCounts { sent, unsure, aged, dropped, evicted, returned, back, back_unsure, back_dropped } = debits.units;
    region["link"] = json!(debits.link.name());
    region["step"] = json!(debits.step);
    region["oldest_seconds"] = json!(seconds(debits.oldest));
    region["waiting"] = json!(debits.waiting);
    region["units"] = json!({
        "sent": sent, "unsure": unsure + back_unsure, "aged": aged, "dropped": dropped + back_dropped,
        "evicted": evicted, "returned": returned, "back": back,
    });
    region["lag"] = durations_json(lag);
    region["calls"] = durations_json(calls);
}

/// Upper bounds of the quantiles, as far as the histogram has bounds.
fn durations_json(durations: &Durations) -> Value {
    let last = durations.buckets.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).fold(0.0, f64::max);
    let [p50, p99] = [0.5, 0.99].map(|share| durations.quantile(share).map(|bound| bound.min(last)));
    json!({"count": durations.count(), "p50": p50, "p99": p99})
}

/// The rules whose limits mean something in several regions together, and how many are not listed.
fn rules(state: &AdminState) -> (Vec<Value>, usize) {
    let rules = state.limiter().rules();
    let all = rules.domains().iter().flat_map(|domain| domain.rules().iter().map(move |rule| (domain, rule)));
    let mut regional = all.filter(|(_, rule)| *rule.region() != RegionMode::Each && rule.mode() != RuleMode::Off);
    let listed = regional.by_ref().take(MAX_RULES).map(|(domain, rule)| {
        json!({
            "domain": domain.name(), "rule": rule.name(), "mode": rule.mode().name().replace(':', ""),
            "region": rule.region().name(), "terms": rule.region().text(),
            // While other regions can't be reached.
            "apart": rule.region().global().map(|terms| terms.apart.name()),
        })
    });
    (listed.collect(), regional.count())
}
