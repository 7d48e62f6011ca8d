//! What is counted of the control plane.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// What became of what operators decide.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControlMetrics {
    generation: Gauge,
    callers: Gauge,
    up: Gauge,
    writes: Family<ResultLabels, Counter>,
    unreadable: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

impl ControlMetrics {
    pub(super) fn register(registry: &mut Registry) -> ControlMetrics {
        let metrics = ControlMetrics::default();
        registry.register(
            "control_generation",
            "The write to the store of record that is in force here; the same on every server that has caught up",
            metrics.generation.clone(),
        );
        registry.register(
            "control_callers",
            "Callers with a tier, an override or a block of their own",
            metrics.callers.clone(),
        );
        registry.register(
            "control_up",
            "Whether the store of record answered last; 0 also where there is none",
            metrics.up.clone(),
        );
        registry.register(
            "control_writes",
            "Writes of this server's admin API that were stored (ok), or were not (bad)",
            metrics.writes.clone(),
        );
        registry.register(
            "control_unreadable_records",
            "Records that could not be read, since a newer Tollgate wrote them: they are not in force",
            metrics.unreadable.clone(),
        );
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

    /// Whether the store of record does not answer.
    pub(crate) fn away(&self, away: bool) {
        self.up.set(i64::from(!away));
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
