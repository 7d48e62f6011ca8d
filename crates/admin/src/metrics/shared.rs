//! Metrics of the counter store, also under the names that other limiters use.

use std::fmt::Error;
use std::sync::Arc;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use tollgate::RegionLink;
use tollgate_observe::DecisionOutcome;
use tollgate_store::guarded::{Circuit, GuardStatus, Level, ShardStatus};

use tollgate_store::{DebitStatus, Durations, LeaseCounts, LeaseStatus, SharedStatus, UnitCounts};
use tollgate_telemetry::metrics::MetricSource;
use tollgate_telemetry::metrics::encode::{count, counter, family, gauge};

use super::{ScrapeSources, sums};

/// Three families that dashboards for other limiters use: the same values without our prefix.
pub(super) struct Aliases(pub(super) Arc<ScrapeSources>);

/// The shard name of the memory store.
const MEMORY: &str = "memory";

impl MetricSource for Aliases {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let names = ["ratelimit_redis_errors", "ratelimit_failopen", "ratelimit_circuit_state"];
        failures(encoder, names, &status(&self.0).guard)
    }
}

/// The status of the store.
pub(super) fn status(sources: &ScrapeSources) -> SharedStatus {
    match sources.limiter.store().shared() {
        Some(store) => store.status(),
        None => SharedStatus { guard: in_memory(sources), ..SharedStatus::default() },
    }
}

/// The memory store is one shard that never fails. Passed without it: too many checks at once, or a check that panicked.
fn in_memory(sources: &ScrapeSources) -> GuardStatus {
    let totals = sources.observability.observer.tally().totals();
    let (shed, panic) = (totals[DecisionOutcome::Shed as usize], totals[DecisionOutcome::Assumed as usize]);
    let shard = ShardStatus {
        name: MEMORY.to_owned(),
        region: tollgate::RegionId::HERE,
        circuit: Circuit::Closed,
        errors: vec![("timeout", 0), ("unreachable", 0), ("refused", 0), ("late", 0)],
        last_error: None,
        warning: None,
    };
    let reasons = [("open", 0), ("timeout", 0), ("unreachable", 0), ("refused", 0), ("shed", shed), ("panic", panic)];
    GuardStatus { shards: vec![shard], fail_open: reasons.into(), ..GuardStatus::default() }
}

/// The names of the rules that servers count for each other. With counters in memory there are none.
pub(super) fn summed(sources: &ScrapeSources) -> Vec<(String, String)> {
    let is_shared = sources.limiter.store().shared().is_some();
    if is_shared { sums::rules(&sources.limiter.rules()) } else { Vec::new() }
}

/// All families, with the names of the rules that servers count for each other.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder,
    SharedStatus { guard, transport, leases, debits, sums }: &SharedStatus,
    summed: Vec<(String, String)>,
) -> Result<(), Error> {
    failures(encoder, ["store_errors", "failopen", "circuit_state"], guard)?;
    gauge(encoder, "store_level", &level(guard.level))?;
    gauge(encoder, "store_replicas", &guard.replicas)?;
    gauge(encoder, "store_local_keys", &guard.local)?;
    gauge(encoder, "store_owed_keys", &guard.owed)?;
    gauge(encoder, "store_errands", &guard.waiting)?;
    counter(encoder, "store_errands_dropped", guard.dropped)?;
    counter(encoder, "store_claims", transport.claims)?;
    counter(encoder, "store_script_calls", transport.calls)?;
    counter(encoder, "store_batches", transport.batches)?;
    counter(encoder, "store_connections_lost", transport.lost)?;
    counter(encoder, "store_unsound_values", transport.unsound)?;
    by_reason(family(encoder, "store_resent")?, &transport.resent)?;
    lease_families(encoder, leases)?;
    region_families(encoder, debits, &guard.calls_elsewhere)?;
    sums::encode(encoder, sums, summed)
}

/// Other regions: what was debited there, and calls for limits that they own.
fn region_families(encoder: &mut DescriptorEncoder, debits: &[DebitStatus], calls: &[Durations]) -> Result<(), Error> {
    let mut series = family(encoder, "region_lag_seconds")?;
    debits.iter().try_for_each(|debit| histogram(&mut series, &debit.region, &debit.lag))?;
    let mut series = family(encoder, "region_oldest_seconds")?;
    for DebitStatus { region, oldest, .. } in debits {
        series.encode_family(&[("region", region.as_str())])?.encode_gauge(&(oldest.as_micros() as f64 / 1e6))?;
    }
    let mut series = family(encoder, "region_units")?;
    for DebitStatus { region, units, .. } in debits {
        let UnitCounts { sent, unsure, aged, dropped, evicted, returned, back, back_unsure, back_dropped } = *units;
        let (unsure, dropped) = (unsure + back_unsure, dropped + back_dropped);
        for (how, units) in [
            ("sent", sent),
            ("unsure", unsure),
            ("aged", aged),
            ("dropped", dropped),
            ("evicted", evicted),
            ("returned", returned),
            ("back", back),
        ] {
            count(&mut series, &[("region", region), ("how", how)], units)?;
        }
    }
    let mut series = family(encoder, "region_apart")?;
    for DebitStatus { region, link, .. } in debits {
        series.encode_family(&[("region", region.as_str())])?.encode_gauge(&u32::from(*link == RegionLink::Apart))?;
    }
    let mut series = family(encoder, "region_step")?;
    for DebitStatus { region, step, .. } in debits {
        series.encode_family(&[("region", region.as_str())])?.encode_gauge(&u32::from(*step))?;
    }
    let mut series = family(encoder, "region_calls_seconds")?;
    let names = debits.iter().map(|debit| &debit.region);
    names.zip(calls).try_for_each(|(region, calls)| histogram(&mut series, region, calls))
}

fn histogram(series: &mut MetricEncoder<'_>, region: &str, durations: &Durations) -> Result<(), Error> {
    let labels = [("region", region)];
    let mut series = series.encode_family(&labels)?;
    series.encode_histogram::<NoLabelSet>(durations.sum, durations.count(), &durations.buckets, None)
}

fn lease_families(encoder: &mut DescriptorEncoder, leases: &LeaseStatus) -> Result<(), Error> {
    let LeaseCounts { taken, spent, returned, expired, lost, unanswered, impossible, advanced, .. } = leases.counts;
    let LeaseCounts { refused, misses, ahead, back, debits, .. } = leases.counts;
    gauge(encoder, "lease_keys", &leases.keys)?;
    gauge(encoder, "lease_units_held", &leases.held)?;
    let units = [
        ("taken", taken),
        ("spent", spent),
        ("returned", returned),
        ("expired", expired + lost),
        ("unanswered", unanswered),
        ("impossible", impossible),
        ("advanced", advanced),
    ];
    let mut series = family(encoder, "lease_units")?;
    units.iter().try_for_each(|(kind, units)| count(&mut series, &[("kind", kind)], *units))?;
    let mut series = family(encoder, "lease_calls")?;
    let calls = [("miss", misses), ("ahead", ahead), ("back", back), ("debit", debits)];
    calls.iter().try_for_each(|(kind, calls)| count(&mut series, &[("kind", kind)], *calls))?;
    counter(encoder, "lease_refusals", refused)
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
