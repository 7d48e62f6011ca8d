//! Metrics of the counters that each server counts by itself.

use std::collections::BTreeMap;
use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use tollgate::Ruleset;
use tollgate_store::SummedStatus;
use tollgate_telemetry::metrics::encode::{counter, family, gauge};

/// The names of the rules in force whose requests each server counts: domains and rules.
pub(super) fn rules(rules: &Ruleset) -> Vec<(String, String)> {
    let named = rules.domains().iter().flat_map(|domain| domain.rules().iter().map(move |rule| (domain, rule)));
    let summed = named.filter(|(_, rule)| rule.is_summed());
    summed.map(|(domain, rule)| (domain.name().to_owned(), rule.name().to_owned())).collect()
}

/// All families. Each of these rules has its series from the first scrape on.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder,
    sums: &SummedStatus,
    rules: Vec<(String, String)>,
) -> Result<(), Error> {
    // Here, and in the fleet.
    let mut rules: BTreeMap<(String, String), (u64, u64)> = rules.into_iter().map(|rule| (rule, (0, 0))).collect();
    for one in &sums.counters {
        let key = one.key.key();
        let rule = (key.scope().domain().to_owned(), key.scope().rule().to_owned());
        let (here, fleet) = rules.entry(rule).or_default();
        *here += one.here;
        *fleet = fleet.saturating_add(one.here).saturating_add(one.others.unwrap_or(0));
    }
    let mut series = family(encoder, "summed_in_flight")?;
    for ((domain, rule), (here, _)) in &rules {
        series.encode_family(&[("domain", &**domain), ("rule", &**rule)])?.encode_gauge(here)?;
    }
    let mut series = family(encoder, "summed_in_flight_fleet")?;
    for ((domain, rule), (_, fleet)) in &rules {
        series.encode_family(&[("domain", &**domain), ("rule", &**rule)])?.encode_gauge(fleet)?;
    }
    gauge(encoder, "summed_age_seconds", &sums.age.map_or(0.0, |age| age.as_micros() as f64 / 1e6))?;
    gauge(encoder, "summed_stale", &u32::from(sums.is_stale))?;
    gauge(encoder, "summed_servers", &sums.servers)?;
    counter(encoder, "summed_notes_dropped", sums.dropped_notes)?;
    counter(encoder, "summed_without_place", sums.without_place)
}
