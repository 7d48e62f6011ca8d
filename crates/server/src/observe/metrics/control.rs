//! What is counted of the control plane.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tollgate::Timestamp;

use super::table;

/// What became of what operators decide.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControlMetrics {
    generation: Gauge,
    callers: Gauge,
    up: Gauge,
    writes: Family<ResultLabels, Counter>,
    unreadable: Counter,
    /// When the store of record last said what is in force, in microseconds; 0 where there is none.
    heard: Arc<AtomicU64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

impl ControlMetrics {
    pub(super) fn register(registry: &mut Registry) -> ControlMetrics {
        let metrics = ControlMetrics::default();
        table::register(registry, "control_generation", metrics.generation.clone());
        table::register(registry, "control_callers", metrics.callers.clone());
        table::register(registry, "control_up", metrics.up.clone());
        table::register(registry, "control_writes", metrics.writes.clone());
        table::register(registry, "control_unreadable_records", metrics.unreadable.clone());
        for result in ["ok", "bad"] {
            drop(metrics.writes.get_or_create_owned(&ResultLabels { result }));
        }
        metrics
    }

    /// A generation is in force, under which so many callers are known.
    pub(crate) fn in_force(&self, generation: u64, callers: usize) {
        self.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
        self.callers.set(i64::try_from(callers).unwrap_or(i64::MAX));
    }

    /// The store of record does not answer.
    pub(crate) fn away(&self) {
        self.up.set(0);
    }

    /// The store of record said what is in force.
    pub(crate) fn heard(&self, at: Timestamp) {
        self.up.set(1);
        self.heard.store(at.as_micros(), Ordering::Relaxed);
    }

    /// There is a store of record, and what is in force is as old as this at least.
    pub(crate) fn begun(&self, at: Timestamp) {
        self.heard.store(at.as_micros(), Ordering::Relaxed);
    }

    /// When that was.
    pub(crate) fn heard_at(&self) -> Option<Timestamp> {
        let heard = self.heard.load(Ordering::Relaxed);
        (heard > 0).then_some(Timestamp::from_micros(heard))
    }

    /// How many seconds ago.
    pub(super) fn age(&self, now: Option<Timestamp>) -> f64 {
        let age = self.heard_at().zip(now).map(|(heard, now)| now.since(heard));
        age.unwrap_or_default().as_micros() as f64 / 1e6
    }

    /// A write was asked for, and whether it was stored.
    pub(crate) fn written(&self, stored: bool) {
        self.writes.get_or_create(&ResultLabels { result: if stored { "ok" } else { "bad" } }).inc();
    }

    /// A record could not be read.
    pub(crate) fn unreadable(&self) {
        self.unreadable.inc();
    }
}
