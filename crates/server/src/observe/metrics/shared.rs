//! What the store of the counters tells of itself, also under the names that other limiters have for it.

use std::fmt::Error;
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use tollgate_observe::Ruling;
use tollgate_store::guarded::{Circuit, GuardStatus, Level, ShardStatus};

use super::scrape::{Parts, count, counter, family, gauge};
use crate::counters::SharedStatus;

/// The three families that dashboards for other limiters look for: the same values, without our prefix.
#[derive(Debug)]
pub(super) struct Aliases(pub(super) Arc<OnceLock<Parts>>);

/// What counters in memory are called among shards.
const MEMORY: &str = "memory";

impl Collector for Aliases {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let names = ["ratelimit_redis_errors", "ratelimit_failopen", "ratelimit_circuit_state"];
        failures(&mut encoder, names, &status(self.0.get()).guard)
    }
}

/// What the store says of itself.
pub(super) fn status(parts: Option<&Parts>) -> SharedStatus {
    match parts.and_then(|parts| parts.limiter.store().shared()) {
        Some(store) => store.status(),
        None => SharedStatus { guard: in_memory(parts), ..SharedStatus::default() },
    }
}

/// Counters in memory are one shard, which never fails. What passed without it: too many checks at once, or a check that panicked.
fn in_memory(parts: Option<&Parts>) -> GuardStatus {
    let totals = parts.map(|parts| parts.sight.observer.tally().totals()).unwrap_or_default();
    let (shed, panic) = (totals[Ruling::Shed as usize], totals[Ruling::Assumed as usize]);
    let shard = ShardStatus {
        name: MEMORY.to_owned(),
        circuit: Circuit::Closed,
        errors: vec![("timeout", 0), ("unreachable", 0), ("refused", 0)],
        last_error: None,
        warning: None,
    };
    let reasons = [("open", 0), ("timeout", 0), ("unreachable", 0), ("refused", 0), ("shed", shed), ("panic", panic)];
    GuardStatus { shards: vec![shard], fail_open: reasons.into(), ..GuardStatus::default() }
}

/// All families.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder,
    SharedStatus { guard, redis }: &SharedStatus,
) -> Result<(), Error> {
    failures(encoder, ["store_errors", "failopen", "circuit_state"], guard)?;
    gauge(encoder, "store_level", &level(guard.level))?;
    gauge(encoder, "store_replicas", &guard.replicas)?;
    gauge(encoder, "store_local_keys", &guard.local)?;
    gauge(encoder, "store_owed_keys", &guard.owed)?;
    gauge(encoder, "store_errands", &guard.waiting)?;
    counter(encoder, "store_errands_dropped", guard.dropped)?;
    counter(encoder, "store_claims", redis.claims)?;
    counter(encoder, "store_script_calls", redis.calls)?;
    counter(encoder, "store_batches", redis.batches)?;
    counter(encoder, "store_connections_lost", redis.lost)?;
    counter(encoder, "store_unsound_values", redis.unsound)?;
    by_reason(family(encoder, "store_resent")?, &redis.resent)
}

fn failures(encoder: &mut DescriptorEncoder, names: [&str; 3], guard: &GuardStatus) -> Result<(), Error> {
    let [errors, fail_open, circuits] = names;
    let mut series = family(encoder, errors)?;
    for shard in &guard.shards {
        for (reason, errors) in &shard.errors {
            count(&mut series, &[("shard", &shard.name), ("reason", reason)], *errors)?;
        }
    }
    by_reason(family(encoder, fail_open)?, &guard.fail_open)?;
    let mut series = family(encoder, circuits)?;
    guard.shards.iter().try_for_each(|shard| {
        let state: u32 = match shard.circuit {
            Circuit::Closed => 0,
            Circuit::HalfOpen => 1,
            Circuit::Open => 2,
        };
        series.encode_family(&[("shard", shard.name.as_str())])?.encode_gauge(&state)
    })
}

fn by_reason(mut series: MetricEncoder<'_>, counts: &[(&'static str, u64)]) -> Result<(), Error> {
    counts.iter().try_for_each(|(reason, passed)| count(&mut series, &[("reason", reason)], *passed))
}

fn level(level: Level) -> u32 {
    match level {
        Level::Normal => 0,
        Level::Degraded => 1,
        Level::LocalOnly => 2,
        Level::Open => 3,
    }
}
