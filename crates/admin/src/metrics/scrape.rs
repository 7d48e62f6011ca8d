//! Metrics of rules, store, receipts, control plane and health, read on scrape.

use std::collections::BTreeMap;
use std::fmt::Error;
use std::sync::Arc;

use prometheus_client::encoding::DescriptorEncoder;
use tollgate::{Limiter, MemoryStats, MemoryStore};
use tollgate_store::Counters;
use tollgate_telemetry::Health;
use tollgate_telemetry::metrics::encode::{counter, family, gauge};
use tollgate_telemetry::metrics::{ControlMetrics, MetricSource};

use super::{ScrapeSources, shared};
use tollgate_wire::Receipts;

/// RuleCounts, store, receipts, control plane and health.
pub(super) struct Scrape {
    pub(super) sources: Arc<ScrapeSources>,
    pub(super) control: ControlMetrics,
}

/// Components with a health series from the start.
const HEALTH_COMPONENTS: [&str; 13] = [
    "data",
    "events",
    "events_journal",
    "events_sinks",
    "gateway",
    "gateway_keys",
    "gateway_shedding",
    "gateway_upstreams",
    "rules",
    "store",
    "store_config",
    "sums",
    "tls",
];

/// The size of the rules in force.
#[derive(Default)]
struct RuleCounts {
    generation: u64,
    domains: usize,
    rules: usize,
}

impl MetricSource for Scrape {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let ScrapeSources { limiter, health: state, receipts: issued, .. } = &*self.sources;
        build(encoder)?;
        rules(encoder, &RuleCounts::in_force(limiter))?;
        let (stats, shared) = (limiter.store().memory().map(MemoryStore::stats), shared::status(&self.sources));
        memory(encoder, &stats.unwrap_or_default(), shared.guard.coarse)?;
        shared::encode(encoder, &shared, shared::summed(&self.sources))?;
        receipts(encoder, issued)?;
        gauge(encoder, "control_snapshot_age_seconds", &self.control.age(Some(self.sources.now())))?;
        health(encoder, state)
    }
}

impl RuleCounts {
    fn in_force(limiter: &Limiter<Counters>) -> RuleCounts {
        let rules = limiter.rules();
        RuleCounts {
            generation: rules.generation(),
            domains: rules.domains().len(),
            rules: rules.domains().iter().map(|domain| domain.rules().len()).sum(),
        }
    }
}

fn build(encoder: &mut DescriptorEncoder) -> Result<(), Error> {
    family(encoder, "build")?.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
}

fn rules(encoder: &mut DescriptorEncoder, rules: &RuleCounts) -> Result<(), Error> {
    gauge(encoder, "rules_generation", &rules.generation)?;
    gauge(encoder, "rules_domains", &rules.domains)?;
    gauge(encoder, "rules_loaded", &rules.rules)
}

/// `coarse` is the number of charges that were counted together while a shared store was unavailable.
fn memory(encoder: &mut DescriptorEncoder, stats: &MemoryStats, coarse: u64) -> Result<(), Error> {
    gauge(encoder, "store_keys", &stats.keys)?;
    counter(encoder, "store_swept_keys", stats.swept)?;
    counter(encoder, "store_evicted_keys", stats.evicted)?;
    counter(encoder, "store_coarse_charges", stats.coarse + coarse)?;
    counter(encoder, "store_uncounted_refusals", stats.uncounted)?;
    gauge(encoder, "store_once_records", &stats.once)?;
    counter(encoder, "store_evicted_once_records", stats.once_evicted)
}

fn receipts(encoder: &mut DescriptorEncoder, receipts: &Receipts) -> Result<(), Error> {
    let (open, unsettled) = receipts.open_and_unsettled();
    gauge(encoder, "receipts_open", &open)?;
    gauge(encoder, "receipts_unsettled", &unsettled)
}

fn health(encoder: &mut DescriptorEncoder, health: &Health) -> Result<(), Error> {
    let ready = u32::from(health.is_ready());
    gauge(encoder, "ready", &ready)?;
    let mut degraded: BTreeMap<&str, u32> = HEALTH_COMPONENTS.into_iter().map(|part| (part, 0)).collect();
    degraded.extend(health.conditions().into_iter().map(|(part, _)| (part, 1)));
    let mut encoder = family(encoder, "degraded")?;
    degraded.iter().try_for_each(|(part, is)| encoder.encode_family(&[("part", *part)])?.encode_gauge(is))
}
