//! What is read when somebody asks: the state of parts that know it themselves.

use std::collections::BTreeMap;
use std::fmt::Error;
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use tollgate::{Limiter, MemoryStats, MemoryStore, Timestamp};

use super::control::ControlMetrics;
use super::{shared, table};
use crate::counters::Counters;
use crate::health::Health;
use crate::observe::Sight;
use crate::receipts::Receipts;

/// The parts.
pub(super) struct Parts {
    pub(super) limiter: Arc<Limiter<Counters>>,
    pub(super) health: Arc<Health>,
    pub(super) receipts: Arc<Receipts>,
    pub(super) sight: Arc<Sight>,
}

/// Reads them.
#[derive(Debug)]
pub(super) struct Scrape {
    pub(super) parts: Arc<OnceLock<Parts>>,
    pub(super) control: ControlMetrics,
}

/// Parts whose health has a series from the start.
const HEALTH_OF: [&str; 5] = ["data", "rules", "store", "store_config", "tls"];

/// What the rules in force are.
#[derive(Default)]
struct Rules {
    generation: u64,
    domains: usize,
    rules: usize,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let parts = self.parts.get();
        build(&mut encoder)?;
        rules(&mut encoder, &parts.map(|parts| Rules::in_force(&parts.limiter)).unwrap_or_default())?;
        let counters = parts.map(|parts| parts.limiter.store());
        memory(&mut encoder, &counters.and_then(Counters::memory).map(MemoryStore::stats).unwrap_or_default())?;
        shared::encode(&mut encoder, &shared::status(parts))?;
        receipts(&mut encoder, parts.map(|parts| &*parts.receipts))?;
        gauge(&mut encoder, "control_snapshot_age_seconds", &self.control.age(parts.map(Parts::now)))?;
        health(&mut encoder, parts.map(|parts| &*parts.health))
    }
}

impl Parts {
    pub(super) fn now(&self) -> Timestamp {
        self.receipts.now()
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

impl Rules {
    fn in_force(limiter: &Limiter<Counters>) -> Rules {
        let rules = limiter.rules();
        Rules {
            generation: rules.generation(),
            domains: rules.domains().len(),
            rules: rules.domains().iter().map(|domain| domain.rules().len()).sum(),
        }
    }
}

fn build(encoder: &mut DescriptorEncoder) -> Result<(), Error> {
    family(encoder, "build")?.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
}

fn rules(encoder: &mut DescriptorEncoder, rules: &Rules) -> Result<(), Error> {
    gauge(encoder, "rules_generation", &rules.generation)?;
    gauge(encoder, "rules_domains", &rules.domains)?;
    gauge(encoder, "rules_loaded", &rules.rules)
}

fn memory(encoder: &mut DescriptorEncoder, stats: &MemoryStats) -> Result<(), Error> {
    gauge(encoder, "store_keys", &stats.keys)?;
    counter(encoder, "store_swept_keys", stats.swept)?;
    counter(encoder, "store_evicted_keys", stats.evicted)?;
    gauge(encoder, "store_once_records", &stats.once)?;
    counter(encoder, "store_evicted_once_records", stats.once_evicted)
}

fn receipts(encoder: &mut DescriptorEncoder, receipts: Option<&Receipts>) -> Result<(), Error> {
    let (open, unsettled) = receipts.map(Receipts::open_and_unsettled).unwrap_or_default();
    gauge(encoder, "receipts_open", &open)?;
    gauge(encoder, "receipts_unsettled", &unsettled)
}

fn health(encoder: &mut DescriptorEncoder, health: Option<&Health>) -> Result<(), Error> {
    let ready = u32::from(health.is_some_and(Health::is_ready));
    gauge(encoder, "ready", &ready)?;
    let mut degraded: BTreeMap<&str, u32> = HEALTH_OF.into_iter().map(|part| (part, 0)).collect();
    degraded.extend(health.iter().flat_map(|health| health.conditions()).map(|(part, _)| (part, 1)));
    let mut encoder = family(encoder, "degraded")?;
    degraded.iter().try_for_each(|(part, is)| encoder.encode_family(&[("part", *part)])?.encode_gauge(is))
}

/// Begins a family, as the table describes it.
pub(super) fn family<'e>(encoder: &'e mut DescriptorEncoder, name: &'e str) -> Result<MetricEncoder<'e>, Error> {
    let described = table::described(name);
    let kind = described.map_or(MetricType::Unknown, |described| described.kind.metric_type());
    encoder.encode_descriptor(name, &format!("{}.", table::help(name)), None, kind)
}

pub(super) fn gauge(encoder: &mut DescriptorEncoder, name: &str, value: &impl EncodeGaugeValue) -> Result<(), Error> {
    family(encoder, name)?.encode_gauge(value)
}

pub(super) fn counter(encoder: &mut DescriptorEncoder, name: &str, value: u64) -> Result<(), Error> {
    family(encoder, name)?.encode_counter::<NoLabelSet, u64, f64>(&value, None)
}

/// One of the counts of a family.
pub(super) fn count(family: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: u64) -> Result<(), Error> {
    family.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&value, None)
}
