//! What a store that servers share tells of itself, also under the names that other limiters have for it.

use std::fmt::Error;
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use tollgate_store::guarded::{Circuit, GuardStatus, Level};

use super::scrape::{Parts, counter, gauge};
use crate::counters::SharedStatus;

/// The three families that dashboards for other limiters look for: the same values, without our prefix.
#[derive(Debug)]
pub(super) struct Aliases(pub(super) Arc<OnceLock<Parts>>);

/// A family: its name and what it says.
type Named = (&'static str, &'static str);

const ERRORS: &str =
    "Claims that a shard of the store did not settle, by shard and reason: timeout, unreachable, refused.";
const FAIL_OPEN: &str = "Requests that passed although the store did not count all of them, by reason: open (its circuit \
                         is), timeout, unreachable, refused, shed (too many checks at once), panic.";
const CIRCUITS: &str = "Whether claims are sent to a shard of the store: 0 closed (they are), 1 half-open (it is being \
                        tried), 2 open (it failed too often).";

impl Collector for Aliases {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let status = self.0.get().map(Parts::shared).unwrap_or_default();
        failures(
            &mut encoder,
            [
                ("ratelimit_redis_errors", ERRORS),
                ("ratelimit_failopen", FAIL_OPEN),
                ("ratelimit_circuit_state", CIRCUITS),
            ],
            &status.guard,
        )
    }
}

/// All families. Without such a store those by shard and reason have no series.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder,
    SharedStatus { guard, redis }: &SharedStatus,
) -> Result<(), Error> {
    failures(encoder, [("store_errors", ERRORS), ("failopen", FAIL_OPEN), ("circuit_state", CIRCUITS)], guard)?;
    let help =
        "How much of the store answers: 0 normal, 1 degraded, 2 local-only, 3 open (requests pass that nobody counts).";
    gauge(encoder, "store_level", help, &level(guard.level))?;
    gauge(encoder, "store_replicas", "Servers that share the store, as last heard; 0 if none do.", &guard.replicas)?;
    gauge(
        encoder,
        "store_local_keys",
        "Counters in local memory while the store is away, or not told yet.",
        &guard.local,
    )?;
    gauge(encoder, "store_owed_keys", "Local counters that the store has not been told of yet.", &guard.owed)?;
    gauge(
        encoder,
        "store_errands",
        "What waits to be told to the store: units to give back, receipts settled meanwhile.",
        &guard.waiting,
    )?;
    let help = "What the store could not be told or given back, and never will be.";
    counter(encoder, "store_errands_dropped", help, guard.dropped)?;
    counter(encoder, "store_claims", "Claims that were sent to the store.", redis.claims)?;
    counter(encoder, "store_script_calls", "Calls of the script that settles claims.", redis.calls)?;
    counter(encoder, "store_batches", "Round trips to the store.", redis.batches)?;
    counter(encoder, "store_connections_lost", "Connections to the store that broke.", redis.lost)?;
    let help = "Values in the store that were not what they should be, and counted as fresh.";
    counter(encoder, "store_unsound_values", help, redis.unsound)?;
    let help = "Claims that were sent again, by the answer that proved that they had not been settled.";
    by_reason(family(encoder, ("store_resent", help), MetricType::Counter)?, &redis.resent)
}

fn failures(encoder: &mut DescriptorEncoder, named: [Named; 3], guard: &GuardStatus) -> Result<(), Error> {
    let [errors, fail_open, circuits] = named;
    let mut series = family(encoder, errors, MetricType::Counter)?;
    for shard in &guard.shards {
        for (reason, count) in &shard.errors {
            let labels = [("shard", shard.name.as_str()), ("reason", *reason)];
            series.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(count, None)?;
        }
    }
    by_reason(family(encoder, fail_open, MetricType::Counter)?, &guard.fail_open)?;
    let mut series = family(encoder, circuits, MetricType::Gauge)?;
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
    counts.iter().try_for_each(|(reason, count)| {
        series.encode_family(&[("reason", *reason)])?.encode_counter::<NoLabelSet, u64, f64>(count, None)
    })
}

fn family<'e>(
    encoder: &'e mut DescriptorEncoder,
    (name, help): Named,
    kind: MetricType,
) -> Result<MetricEncoder<'e>, Error> {
    encoder.encode_descriptor(name, help, None, kind)
}

fn level(level: Level) -> u32 {
    match level {
        Level::Normal => 0,
        Level::Degraded => 1,
        Level::LocalOnly => 2,
        Level::Open => 3,
    }
}
