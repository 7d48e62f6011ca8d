//! Metrics that are read on scrape: the state of components.

mod decisions;
mod events;
mod gateway;
mod scrape;
mod shared;
mod sums;

use std::sync::Arc;

use tollgate::{Clock as _, Limiter, SystemClock, Timestamp};
use tollgate_events::{EventStream, Subscriptions};
use tollgate_gateway::Gateway;
use tollgate_store::Counters;
use tollgate_telemetry::Health;
use tollgate_telemetry::metrics::Metrics;

use crate::decisions::DecisionLogCounts;
use crate::observe::Observability;
use tollgate_wire::Receipts;

/// The components that a scrape reads.
pub struct ScrapeSources {
    pub limiter: Arc<Limiter<Counters>>,
    pub health: Arc<Health>,
    pub receipts: Arc<Receipts>,
    pub observability: Arc<Observability>,
    /// The keys with the most refusals of the last 5 minutes, most first, as scrapers may see them: hashed, unless
    /// `metrics_show_keys` is set.
    pub top_denied: Box<dyn Fn() -> Vec<(String, u64)> + Send + Sync>,
    /// Counts of decision log entries.
    pub log_entries: Box<dyn Fn() -> DecisionLogCounts + Send + Sync>,
}

/// Registers all of them.
pub fn register(metrics: &Metrics, sources: ScrapeSources) {
    let sources = Arc::new(sources);
    metrics.add(scrape::Scrape { sources: sources.clone(), control: metrics.control().clone() });
    metrics.add_unprefixed(shared::Aliases(sources.clone()));
    metrics.add_unprefixed(decisions::DecisionMetrics { sources });
}

/// Registers the metrics of the gateway. Without one there are no series.
pub fn register_gateway(metrics: &Metrics, gateway: Option<Arc<Gateway>>) {
    let status = move || gateway.as_ref().map(|gateway| gateway.status()).unwrap_or_default();
    metrics.add(gateway::GatewayMetrics(Box::new(status)));
}

/// Registers the metrics of events and their sinks.
pub fn register_events(metrics: &Metrics, stream: Arc<EventStream>, sinks: Arc<Subscriptions>) {
    let clock = SystemClock::default();
    let status = move || sinks.status(clock.now());
    metrics.add(events::EventMetrics { stream, status: Box::new(status) });
}

impl ScrapeSources {
    /// These components, with the keys and the decision log counts of `observability`.
    pub fn new(
        limiter: Arc<Limiter<Counters>>,
        health: Arc<Health>,
        receipts: Arc<Receipts>,
        observability: Arc<Observability>,
    ) -> ScrapeSources {
        let (clock, keys, log) = (SystemClock::default(), observability.clone(), observability.clone());
        ScrapeSources {
            limiter,
            health,
            receipts,
            observability,
            top_denied: Box::new(move || keys.top_denied(clock.now())),
            log_entries: Box::new(move || log.decisions.counts()),
        }
    }

    fn now(&self) -> Timestamp {
        self.receipts.now()
    }
}

#[cfg(test)]
mod tests;
