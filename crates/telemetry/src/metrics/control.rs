//! Metrics of the control plane.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tollgate_core::Timestamp;

use super::table;

/// Metrics of the control plane.
#[derive(Clone, Debug, Default)]
pub struct ControlMetrics {
    generation: Gauge,
    callers: Gauge,
    up: Gauge,
    unconfirmed: Gauge,
    writes: Family<ResultLabels, Counter>,
    unreadable: Counter,
    /// When the store of record was last read, in microseconds; 0 without one.
    last_contact: Arc<AtomicU64>,
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
        table::register(registry, "control_unconfirmed", metrics.unconfirmed.clone());
        table::register(registry, "control_writes", metrics.writes.clone());
        table::register(registry, "control_unreadable_records", metrics.unreadable.clone());
        for result in ["ok", "bad"] {
            drop(metrics.writes.get_or_create_owned(&ResultLabels { result }));
        }
        metrics
    }

    /// Sets the generation in force and the number of its callers.
    pub fn set_generation(&self, generation: u64, callers: usize) {
        self.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
        self.callers.set(i64::try_from(callers).unwrap_or(i64::MAX));
    }

    /// The store of record does not answer.
    pub fn set_unavailable(&self) {
        self.up.set(0);
    }

    /// Whether the store of record is another one than the known one and waits for confirmation.
    pub fn set_unconfirmed(&self, waits: bool) {
        self.unconfirmed.set(i64::from(waits));
    }

    /// The store of record was read at this time.
    pub fn set_available(&self, at: Timestamp) {
        self.up.set(1);
        self.last_contact.store(at.as_micros(), Ordering::Relaxed);
    }

    /// There is a store of record; the controls are at least this old.
    pub fn set_oldest(&self, at: Timestamp) {
        self.last_contact.store(at.as_micros(), Ordering::Relaxed);
    }

    /// When the store of record was last read.
    pub fn last_contact(&self) -> Option<Timestamp> {
        let micros = self.last_contact.load(Ordering::Relaxed);
        (micros > 0).then_some(Timestamp::from_micros(micros))
    }

    /// Seconds since the store of record was last read.
    pub fn age(&self, now: Option<Timestamp>) -> f64 {
        let age = self.last_contact().zip(now).map(|(last, now)| now.since(last));
        age.unwrap_or_default().as_micros() as f64 / 1e6
    }

    /// Counts a write by whether it was stored.
    pub fn written(&self, stored: bool) {
        self.writes.get_or_create(&ResultLabels { result: if stored { "ok" } else { "bad" } }).inc();
    }

    /// Counts a record that could not be parsed.
    pub fn unreadable(&self) {
        self.unreadable.inc();
    }
}
