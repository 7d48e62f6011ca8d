//! What decisions came to, by rule and tier, as the tally of this server's observer has it.

use std::collections::HashMap;
use std::fmt::Error;
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use tollgate::{Limit, Ruleset};
use tollgate_observe::{Count, Counts, Peak, Row, RowName, Ruling, Times};

use super::asked::Asked;
use super::scrape::{Parts, count, family, gauge};

/// Reads the tally when somebody asks.
#[derive(Debug)]
pub(super) struct Decisions {
    pub(super) parts: Arc<OnceLock<Parts>>,
    pub(super) asked: Arc<Asked>,
}

/// A rule and tier, as it stood when it was read.
struct Stood<'r> {
    row: Arc<Row>,
    counts: Counts,
    peak: Option<Peak>,
    /// What the tier is held to, if the rule is in force and says so itself.
    limit: Option<&'r Limit>,
}

/// Where the buckets of times end: powers of two of nanoseconds, from 128 ns to 8.6 s. All of them where decisions and stores are to be
/// expected, so that what a quantile says is off by less than half; past 16 ms only whether it was a little or far too long.
const BUCKETS: [u32; 22] = [7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 28, 30, 33];

/// The most keys that are labels.
const MOST_RANKS: usize = 10;

impl Collector for Decisions {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let encoder = &mut encoder;
        let parts = self.parts.get();
        let rules = parts.map(|parts| parts.limiter.rules());
        let stood = match (parts, &rules) {
            (Some(parts), Some(rules)) => Stood::all(parts, rules),
            _ => Vec::new(),
        };
        outcomes(encoder, &stood)?;
        limits(encoder, &stood)?;
        by_names_of_envoy(encoder, &stood)?;
        times(encoder, parts)?;
        top_denied(encoder, &self.asked.top_denied())?;
        let is_other =
            |stood: &Stood<'_>| stood.row.name().domain() == RowName::OTHER && stood.labels()[1].1 == RowName::OTHER;
        gauge(encoder, "tollgate_series_other", &u32::from(stood.iter().any(is_other)))?;
        let mut entries = family(encoder, "tollgate_decision_log_entries")?;
        let log = self.asked.log_entries();
        [("written", log.written), ("dropped", log.dropped), ("failed", log.failed)]
            .into_iter()
            .try_for_each(|(result, entered)| count(&mut entries, &[("result", result)], entered))
    }
}

impl<'r> Stood<'r> {
    /// Every row, in the order of names.
    fn all(parts: &Parts, rules: &'r Ruleset) -> Vec<Stood<'r>> {
        let tally = parts.sight.observer.tally();
        tally.expect(rules);
        let (limits, now) = (configured(rules), parts.now());
        let stood = tally.rows().into_iter().map(|row| {
            let name = row.name();
            let limit = limits.get(&(name.domain(), name.rule(), name.tier())).copied();
            Stood { counts: row.counts(), peak: row.peak(now), limit, row }
        });
        stood.collect()
    }

    fn labels(&self) -> [(&'static str, &str); 3] {
        let name = self.row.name();
        [("domain", name.domain()), ("rule", name.rule()), ("tier", name.tier())]
    }
}

/// What each rule holds each tier to.
fn configured(rules: &Ruleset) -> HashMap<(&str, &str, &str), &Limit> {
    let mut limits = HashMap::new();
    for domain in rules.domains() {
        for rule in domain.rules() {
            for (place, tier) in domain.tiers().iter().enumerate() {
                let tier = if rule.is_by_tier() { &tier.name } else { RowName::DEFAULT };
                if let Some(limit) = u16::try_from(place).ok().and_then(|place| rule.limit(place)) {
                    limits.insert((domain.name(), rule.name(), tier), limit);
                }
            }
        }
    }
    limits
}

fn outcomes(encoder: &mut DescriptorEncoder, stood: &[Stood<'_>]) -> Result<(), Error> {
    let mut series = family(encoder, "ratelimit_decisions")?;
    for row in stood {
        let [domain, rule, tier] = row.labels();
        for ruling in Ruling::ALL {
            let labels = [domain, rule, tier, ("outcome", ruling.name())];
            count(&mut series, &labels, row.counts[Count::Ruled(ruling)])?;
        }
    }
    let mut series = family(encoder, "ratelimit_denied")?;
    stood.iter().try_for_each(|row| {
        let refusals = Ruling::ALL.into_iter().filter(|ruling| ruling.is_refusal());
        count(&mut series, &row.labels(), refusals.map(|ruling| row.counts[Count::Ruled(ruling)]).sum())
    })
}

fn limits(encoder: &mut DescriptorEncoder, stood: &[Stood<'_>]) -> Result<(), Error> {
    let mut series = family(encoder, "ratelimit_limit")?;
    for (row, limit) in stood.iter().filter_map(|row| Some((row, row.limit?))) {
        series.encode_family(&row.labels())?.encode_gauge(&limit.amount())?;
    }
    // Limits of callers' own, and in emergencies, are there while somebody asks under them.
    let asked = || stood.iter().filter(|row| row.limit.is_some() || row.peak.is_some());
    let mut series = family(encoder, "ratelimit_utilization")?;
    for row in asked() {
        let used = row.peak.map_or(0, |peak| peak.used_of_1_000) as f64 / 1e3;
        series.encode_family(&row.labels())?.encode_gauge(&used)?;
    }
    let mut series = family(encoder, "ratelimit_remaining")?;
    asked().try_for_each(|row| {
        let left = row.peak.map(|peak| peak.left).or(row.limit.map(Limit::quota)).unwrap_or_default();
        series.encode_family(&row.labels())?.encode_gauge(&left)
    })
}

/// What envoyproxy/ratelimit counts for a rule, over all tiers.
struct Hits<'r> {
    domain: &'r str,
    rule: &'r str,
    /// In the order of [`ENVOYS`].
    units: [u64; ENVOYS.len()],
}

/// The ends of its names.
const ENVOYS: [&str; 6] =
    ["total_hits", "over_limit", "near_limit", "within_limit", "shadow_mode", "over_limit_with_local_cache"];

fn by_names_of_envoy(encoder: &mut DescriptorEncoder, stood: &[Stood<'_>]) -> Result<(), Error> {
    let mut rules: Vec<Hits<'_>> = Vec::new();
    for row in stood.iter().filter(|row| row.row.name().is_of_a_rule()) {
        let (name, counts) = (row.row.name(), &row.counts);
        let (hits, over) = (counts[Count::Hits], counts[Count::Over]);
        let (near, within) = (counts[Count::Near], hits.saturating_sub(over));
        let units = [hits, over, near, within, counts[Count::OverInShadow], counts[Count::OverFromCache]];
        // Rows are in order, so the tiers of a rule are next to each other.
        match rules.last_mut().filter(|last| (last.domain, last.rule) == (name.domain(), name.rule())) {
            Some(last) => last.units.iter_mut().zip(units).for_each(|(sum, units)| *sum += units),
            None => rules.push(Hits { domain: name.domain(), rule: name.rule(), units }),
        }
    }
    for (at, end) in ENVOYS.into_iter().enumerate() {
        let name = format!("ratelimit_service_rate_limit_{end}");
        let mut series = family(encoder, &name)?;
        for rule in &rules {
            // As a gauge: a counter's name would have to end in `_total`, and theirs do not.
            series.encode_family(&[("domain", rule.domain), ("key1", rule.rule)])?.encode_gauge(&rule.units[at])?;
        }
    }
    Ok(())
}

fn times(encoder: &mut DescriptorEncoder, parts: Option<&Parts>) -> Result<(), Error> {
    let observer = parts.map(|parts| &parts.sight.observer);
    let decision = observer.map(|observer| observer.decision_times().times()).unwrap_or_default();
    let store = observer.map(|observer| observer.store_times().times()).unwrap_or_default();
    let mut series = family(encoder, "ratelimit_check_duration_seconds")?;
    for (part, times) in [("decision", decision), ("store", store)] {
        let (sum, count) = (times.sum() as f64 / 1e9, times.count());
        series.encode_family(&[("part", part)])?.encode_histogram::<NoLabelSet>(sum, count, &buckets(&times), None)?;
    }
    Ok(())
}

/// How many times are in each bucket, and past the last.
fn buckets(times: &Times) -> Vec<(f64, u64)> {
    let mut before = 0;
    let ends = BUCKETS.into_iter().map(|bits| 1u64 << bits);
    let cumulative = ends.map(|end| (end as f64 / 1e9, times.below(end))).chain([(f64::INFINITY, times.count())]);
    cumulative.map(|(end, below)| (end, below - std::mem::replace(&mut before, below))).collect()
}

fn top_denied(encoder: &mut DescriptorEncoder, keys: &[(String, u64)]) -> Result<(), Error> {
    let mut series = family(encoder, "ratelimit_top_denied")?;
    keys.iter().take(MOST_RANKS).zip(1..).try_for_each(|((key, refusals), rank)| {
        series.encode_family(&[("rank", rank.to_string().as_str()), ("key", key.as_str())])?.encode_gauge(refusals)
    })
}

#[cfg(test)]
mod tests;
