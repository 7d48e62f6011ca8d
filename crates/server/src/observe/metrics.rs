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
    authorize_unmatched: Counter,
    authorize_bad_cost: Counter,
}

/// What one wire counts. The handles are taken once, so that counting is an addition.
#[derive(Clone, Debug)]
pub(crate) struct WireMetrics {
    allowed: Counter,
    denied: Counter,
    shed: Counter,
    assumed: Counter,
    bad_requests: Counter,
    /// Proxies' requests that passed because no rule applied, or because they could not be decided.
    pub(crate) authorize_unmatched: Counter,
    /// Proxies' requests with a cost that is none.
    pub(crate) authorize_bad_cost: Counter,
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
        let authorize_unmatched = Counter::default();
        let help = "Requests of proxies that passed because no rule applied or they could not be decided";
        registry.register("authorize_unmatched", help, authorize_unmatched.clone());
        let authorize_bad_cost = Counter::default();
        let help = "Requests of proxies whose cost was no whole number above 0, and counted as 1";
        registry.register("authorize_bad_cost", help, authorize_bad_cost.clone());
        Arc::new(Metrics { registry, decisions, bad_requests, authorize_unmatched, authorize_bad_cost })
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
            authorize_unmatched: self.authorize_unmatched.clone(),
            authorize_bad_cost: self.authorize_bad_cost.clone(),
        }
    }
}

impl WireMetrics {
    pub(crate) fn decided(&self, allowed: bool, source: Source) {
        if allowed { &self.allowed } else { &self.denied }.inc();
        match source {
            Source::Shed => _ = self.shed.inc(),
            Source::Assumed => _ = self.assumed.inc(),
            _ => {}
        }
    }

    pub(crate) fn refused_request(&self) {
        self.bad_requests.inc();
    }
}
