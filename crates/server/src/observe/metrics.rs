//! All metrics, in one place.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tollgate::Source;

/// What the server counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    decisions: Family<DecisionLabels, Counter>,
    bad_requests: Family<WireLabels, Counter>,
}

/// What one wire counts. The handles are taken once, so that counting is an addition.
#[derive(Clone, Debug)]
pub(crate) struct WireMetrics {
    allowed: Counter,
    denied: Counter,
    shed: Counter,
    assumed: Counter,
    bad_requests: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    wire: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WireLabels {
    wire: &'static str,
}

impl Metrics {
    pub(crate) fn new() -> Arc<Metrics> {
        let mut registry = Registry::with_prefix("tollgate");
        let decisions = Family::default();
        registry.register("decisions", "Decisions, by wire and outcome", decisions.clone());
        let bad_requests = Family::default();
        registry.register("bad_requests", "Requests that could not be decided as they were", bad_requests.clone());
        Arc::new(Metrics { registry, decisions, bad_requests })
    }

    /// What is counted for one wire.
    pub(crate) fn wire(&self, wire: &'static str) -> WireMetrics {
        let decisions = |outcome| self.decisions.get_or_create_owned(&DecisionLabels { wire, outcome });
        WireMetrics {
            allowed: decisions("allow"),
            denied: decisions("deny"),
            shed: decisions("shed"),
            assumed: decisions("assumed"),
            bad_requests: self.bad_requests.get_or_create_owned(&WireLabels { wire }),
        }
    }
}

impl WireMetrics {
    pub(crate) fn decided(&self, allowed: bool, source: Source) {
        self.decided_many(allowed, source, 1);
    }

    /// Counts decisions that came to the same.
    pub(crate) fn decided_many(&self, allowed: bool, source: Source, count: u64) {
        if allowed { &self.allowed } else { &self.denied }.inc_by(count);
        match source {
            Source::Shed => _ = self.shed.inc_by(count),
            Source::Assumed => _ = self.assumed.inc_by(count),
            _ => {}
        }
    }

    pub(crate) fn refused_request(&self) {
        self.bad_requests.inc();
    }
}
