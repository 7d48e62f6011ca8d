//! Decision counts by rule and tier, from the tally of the observer.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Error;
use std::sync::Arc;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use tollgate::{Limit, Ruleset};
use tollgate_observe::{
    BanCounts, BanRule, CountKind, DecisionOutcome, LatencySnapshot, MAX_BAN_RULES, Peak, RowCounts, RowName,
    SignalStatus, TallyRow,
};

use tollgate_telemetry::metrics::MetricSource;
use tollgate_telemetry::metrics::encode::{count, family, gauge};

use super::ScrapeSources;

/// Reads the tally on scrape.
pub(super) struct DecisionMetrics {
    pub(super) sources: Arc<ScrapeSources>,
}

/// The state of one row.
struct RowSnapshot<'r> {
    row: Arc<TallyRow>,
    counts: RowCounts,
    peak: Option<Peak>,
    /// The limit of the tier, if the rule is in force and has one.
    limit: Option<&'r Limit>,
}

/// The ends of the latency buckets: powers of two of nanoseconds, from 128 ns to 8.6 s. Dense where decisions and stores are
/// expected, so that a quantile is off by less than half; coarse past 16 ms.
const BUCKETS: [u32; 22] = [7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 28, 30, 33];

/// Keys that are labels.
const MAX_RANKS: usize = 10;

impl MetricSource for DecisionMetrics {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let sources = &*self.sources;
        let rules = sources.limiter.rules();
        let rows = RowSnapshot::all(sources, &rules);
        outcomes(encoder, &rows)?;
        limits(encoder, &rows)?;
        envoy_counts(encoder, &rows)?;
        latency(encoder, sources)?;
        top_denied(encoder, &(sources.top_denied)())?;
        let is_other =
            |rows: &RowSnapshot<'_>| rows.row.name().domain() == RowName::OTHER && rows.labels()[1].1 == RowName::OTHER;
        signals(encoder, sources)?;
        bans(encoder, sources, &rules)?;
        gauge(encoder, "tollgate_series_other", &u32::from(rows.iter().any(is_other)))?;
        let mut entries = family(encoder, "tollgate_decision_log_entries")?;
        let log = (sources.log_entries)();
        let results = [
            ("written", log.written),
            ("dropped", log.dropped),
            ("failed", log.failed),
            ("summarized", log.summarized),
        ];
        results.into_iter().try_for_each(|(result, entered)| count(&mut entries, &[("result", result)], entered))
    }
}

impl<'r> RowSnapshot<'r> {
    /// All rows, ordered by name.
    fn all(sources: &ScrapeSources, rules: &'r Ruleset) -> Vec<RowSnapshot<'r>> {
        let tally = sources.observability.observer.tally();
        tally.prepare(rules);
        let (limits, now) = (configured(rules), sources.now());
        let rows = tally.rows().into_iter().map(|row| {
            let name = row.name();
            let limit = limits.get(&(name.domain(), name.rule(), name.tier())).copied();
            RowSnapshot { counts: row.counts(), peak: row.peak(now), limit, row }
        });
        rows.collect()
    }

    fn labels(&self) -> [(&'static str, &str); 3] {
        let name = self.row.name();
        [("domain", name.domain()), ("rule", name.rule()), ("tier", name.tier())]
    }
}

/// The limit of each rule and tier.
fn configured(rules: &Ruleset) -> HashMap<(&str, &str, &str), &Limit> {
    let mut limits = HashMap::new();
    for domain in rules.domains() {
        for rule in domain.rules() {
            for (name, row) in rule.rows(domain) {
                if let Some(limit) = rule.limit(row) {
                    limits.insert((domain.name(), rule.name(), name), limit);
                }
            }
        }
    }
    limits
}

fn outcomes(encoder: &mut DescriptorEncoder, rows: &[RowSnapshot<'_>]) -> Result<(), Error> {
    let mut series = family(encoder, "ratelimit_decisions")?;
    for row in rows {
        let [domain, rule, tier] = row.labels();
        for outcome in DecisionOutcome::ALL {
            let labels = [domain, rule, tier, ("outcome", outcome.name())];
            count(&mut series, &labels, row.counts[CountKind::Outcome(outcome)])?;
        }
    }
    let mut series = family(encoder, "ratelimit_denied")?;
    rows.iter().try_for_each(|row| {
        let refusals = DecisionOutcome::ALL.into_iter().filter(|outcome| outcome.is_refusal());
        count(&mut series, &row.labels(), refusals.map(|outcome| row.counts[CountKind::Outcome(outcome)]).sum())
    })
}

fn limits(encoder: &mut DescriptorEncoder, rows: &[RowSnapshot<'_>]) -> Result<(), Error> {
    let mut series = family(encoder, "ratelimit_limit")?;
    for (row, limit) in rows.iter().filter_map(|row| Some((row, row.limit?))) {
        series.encode_family(&row.labels())?.encode_gauge(&limit.amount())?;
    }
    // Overrides and emergency limits have a series while there are requests for them.
    let active = || rows.iter().filter(|row| row.limit.is_some() || row.peak.is_some());
    let mut series = family(encoder, "ratelimit_utilization")?;
    for row in active() {
        let used = row.peak.map_or(0, |peak| peak.used_permille) as f64 / 1e3;
        series.encode_family(&row.labels())?.encode_gauge(&used)?;
    }
    let mut series = family(encoder, "ratelimit_remaining")?;
    active().try_for_each(|row| {
        let left = row.peak.map(|peak| peak.left).or(row.limit.map(Limit::quota)).unwrap_or_default();
        series.encode_family(&row.labels())?.encode_gauge(&left)
    })
}

/// Rules that ban have series from the start.
fn bans(encoder: &mut DescriptorEncoder, sources: &ScrapeSources, rules: &Ruleset) -> Result<(), Error> {
    let names = rules.domains().iter().filter(|domain| domain.bans()).flat_map(|domain| {
        let banning = domain.rules().iter().filter(|rule| rule.ban().is_some());
        banning.map(|rule| (Box::from(domain.name()), Box::from(rule.name())))
    });
    let zeros = names.take(MAX_BAN_RULES).map(|rule| (rule, BanCounts::default()));
    let mut counts: BTreeMap<BanRule, BanCounts> = zeros.collect();
    counts.extend(sources.observability.observer.refusals().counts());
    let mut series = family(encoder, "tollgate_bans")?;
    for ((domain, rule), counts) in counts {
        let results = [("begun", counts.begun), ("exempt", counts.exempt), ("dropped", counts.dropped)];
        for (result, number) in results {
            count(&mut series, &[("domain", &*domain), ("rule", &*rule), ("result", result)], number)?;
        }
    }
    Ok(())
}

fn signals(encoder: &mut DescriptorEncoder, sources: &ScrapeSources) -> Result<(), Error> {
    let (signals, _) = sources.observability.observer.signals().status();
    let labels = |one: &SignalStatus| [("domain", one.domain.clone()), ("signal", one.signal.clone())];
    let mut series = family(encoder, "tollgate_signals_raised")?;
    for one in &signals {
        series.encode_family(&labels(one))?.encode_gauge(&one.raised)?;
    }
    let mut series = family(encoder, "tollgate_signal_keys")?;
    for one in &signals {
        series.encode_family(&labels(one))?.encode_gauge(&one.keys)?;
    }
    let mut series = family(encoder, "tollgate_signal_keys_displaced")?;
    signals
        .iter()
        .try_for_each(|one| count(&mut series, &[("domain", &*one.domain), ("signal", &*one.signal)], one.displaced))
}

/// The counts of envoyproxy/ratelimit for a rule, over all tiers.
struct Hits<'r> {
    domain: &'r str,
    rule: &'r str,
    /// In the order of [`ENVOY_SUFFIXES`].
    units: [u64; ENVOY_SUFFIXES.len()],
}

/// The suffixes of its metric names.
const ENVOY_SUFFIXES: [&str; 6] =
    ["total_hits", "over_limit", "near_limit", "within_limit", "shadow_mode", "over_limit_with_local_cache"];

fn envoy_counts(encoder: &mut DescriptorEncoder, rows: &[RowSnapshot<'_>]) -> Result<(), Error> {
    let mut rules: Vec<Hits<'_>> = Vec::new();
    for row in rows.iter().filter(|row| row.row.name().is_rule()) {
        let (name, counts) = (row.row.name(), &row.counts);
        let (hits, over) = (counts[CountKind::Hits], counts[CountKind::Over]);
        let (near, within) = (counts[CountKind::Near], hits.saturating_sub(over));
        let units = [hits, over, near, within, counts[CountKind::OverInShadow], counts[CountKind::OverFromCache]];
        // Rows are in order, so the tiers of a rule are next to each other.
        match rules.last_mut().filter(|last| (last.domain, last.rule) == (name.domain(), name.rule())) {
            Some(last) => last.units.iter_mut().zip(units).for_each(|(sum, units)| *sum += units),
            None => rules.push(Hits { domain: name.domain(), rule: name.rule(), units }),
        }
    }
    for (at, end) in ENVOY_SUFFIXES.into_iter().enumerate() {
        let name = format!("ratelimit_service_rate_limit_{end}");
        let mut series = family(encoder, &name)?;
        for rule in &rules {
            // A gauge: a counter's name would have to end in `_total`.
            series.encode_family(&[("domain", rule.domain), ("key1", rule.rule)])?.encode_gauge(&rule.units[at])?;
        }
    }
    Ok(())
}

fn latency(encoder: &mut DescriptorEncoder, sources: &ScrapeSources) -> Result<(), Error> {
    let observer = &sources.observability.observer;
    let (decision, store) = (observer.decision_latency().snapshot(), observer.store_latency().snapshot());
    let mut series = family(encoder, "ratelimit_check_duration_seconds")?;
    for (part, latency) in [("decision", decision), ("store", store)] {
        let (sum, count) = (latency.sum() as f64 / 1e9, latency.count());
        series.encode_family(&[("part", part)])?.encode_histogram::<NoLabelSet>(
            sum,
            count,
            &buckets(&latency),
            None,
        )?;
    }
    Ok(())
}

/// The number of measurements in each bucket, and past the last.
fn buckets(latency: &LatencySnapshot) -> Vec<(f64, u64)> {
    let mut before = 0;
    let ends = BUCKETS.into_iter().map(|bits| 1u64 << bits);
    let cumulative = ends.map(|end| (end as f64 / 1e9, latency.below(end))).chain([(f64::INFINITY, latency.count())]);
    cumulative.map(|(end, below)| (end, below - std::mem::replace(&mut before, below))).collect()
}

fn top_denied(encoder: &mut DescriptorEncoder, keys: &[(String, u64)]) -> Result<(), Error> {
    let mut series = family(encoder, "ratelimit_top_denied")?;
    keys.iter().take(MAX_RANKS).zip(1..).try_for_each(|((key, refusals), rank)| {
        series.encode_family(&[("rank", rank.to_string().as_str()), ("key", key.as_str())])?.encode_gauge(refusals)
    })
}

#[cfg(test)]
mod tests;
