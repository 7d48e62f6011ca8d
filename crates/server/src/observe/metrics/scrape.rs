//! What is read when somebody asks: the state of parts that know it themselves.

use std::collections::BTreeMap;
use std::fmt::Error;
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use tollgate::{Limiter, MemoryStats, MemoryStore};

use super::{log, shared};
use crate::counters::{Counters, SharedStatus};
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
pub(super) struct Scrape(pub(super) Arc<OnceLock<Parts>>);

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
        let parts = self.0.get();
        build(&mut encoder)?;
        rules(&mut encoder, &parts.map(|parts| Rules::in_force(&parts.limiter)).unwrap_or_default())?;
        let counters = parts.map(|parts| parts.limiter.store());
        memory(&mut encoder, &counters.and_then(Counters::memory).map(MemoryStore::stats).unwrap_or_default())?;
        shared::encode(&mut encoder, &parts.map(Parts::shared).unwrap_or_default())?;
        log::encode(&mut encoder, parts.map(|parts| parts.sight.decisions.counts()).unwrap_or_default())?;
        receipts(&mut encoder, parts.map(|parts| parts.receipts.unsettled()).unwrap_or_default())?;
        health(&mut encoder, parts.map(|parts| &*parts.health))
    }
}

impl Parts {
    /// What a store that servers share says of itself; nothing where there is none.
    pub(super) fn shared(&self) -> SharedStatus {
        self.limiter.store().shared().map(|store| store.status()).unwrap_or_default()
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
    encoder
        .encode_descriptor("build", "What runs.", None, MetricType::Info)?
        .encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
}

fn rules(encoder: &mut DescriptorEncoder, rules: &Rules) -> Result<(), Error> {
    gauge(encoder, "rules_generation", "Which of the rulesets since the start is in force.", &rules.generation)?;
    gauge(encoder, "rules_domains", "Domains of the rules in force.", &rules.domains)?;
    gauge(encoder, "rules_loaded", "Rules in force.", &rules.rules)
}

fn memory(encoder: &mut DescriptorEncoder, stats: &MemoryStats) -> Result<(), Error> {
    gauge(encoder, "store_keys", "Counters in memory, stale ones that are not swept yet included.", &stats.keys)?;
    counter(encoder, "store_swept_keys", "Stale counters that were removed.", stats.swept)?;
    let help = "Live counters that were removed because the store was full: their callers start afresh.";
    counter(encoder, "store_evicted_keys", help, stats.evicted)?;
    gauge(encoder, "store_once_records", "Records of claims that are settled once.", &stats.once)?;
    let help = "Such records that were removed before their time because there were too many.";
    counter(encoder, "store_evicted_once_records", help, stats.once_evicted)
}

fn receipts(encoder: &mut DescriptorEncoder, unsettled: i64) -> Result<(), Error> {
    let help = "Receipts that were not settled in time: of those that this server gave, fewer those that it settled. Who settles \
                what another server gave counts down, below 0 if need be: the sum over all servers is the truth.";
    gauge(encoder, "receipts_unsettled", help, &unsettled)
}

fn health(encoder: &mut DescriptorEncoder, health: Option<&Health>) -> Result<(), Error> {
    let ready = u32::from(health.is_some_and(Health::is_ready));
    gauge(encoder, "ready", "1 if the server wants work, 0 while it starts or stops.", &ready)?;
    let mut degraded: BTreeMap<&str, u32> = HEALTH_OF.into_iter().map(|part| (part, 0)).collect();
    degraded.extend(health.iter().flat_map(|health| health.conditions()).map(|(part, _)| (part, 1)));
    let help = "1 if a part is not as it should be: the health page says why.";
    let mut encoder = encoder.encode_descriptor("degraded", help, None, MetricType::Gauge)?;
    degraded.iter().try_for_each(|(part, is)| encoder.encode_family(&[("part", *part)])?.encode_gauge(is))
}

pub(super) fn gauge(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    value: &impl EncodeGaugeValue,
) -> Result<(), Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(value)
}

pub(super) fn counter(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: u64) -> Result<(), Error> {
    encoder
        .encode_descriptor(name, help, None, MetricType::Counter)?
        .encode_counter::<NoLabelSet, u64, f64>(&value, None)
}
