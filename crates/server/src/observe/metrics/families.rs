//! The families: their names, what they say, and the series that each has from the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{BySource, ListenerMetrics, RulesMetrics, SnapshotMetrics, TraceMetrics, WireMetrics};

/// Ways in which checks come.
const WIRES: [&str; 3] = ["grpc", "http", "resp"];
/// Ways in which connections come.
const LISTENERS: [&str; 4] = ["admin", "grpc", "http", "resp"];

#[derive(Debug)]
pub(super) struct ByWire {
    decisions: Family<DecisionLabels, Counter>,
    bad_requests: Family<WireLabels, Counter>,
    authorize_unmatched: Counter,
    authorize_bad_cost: Counter,
    replays: Family<WireLabels, Counter>,
    conflicts: Family<WireLabels, Counter>,
    soft_limits_passed: Family<WireLabels, Counter>,
    not_held: Family<WireLabels, Counter>,
    in_flight: Family<WireLabels, Gauge>,
}

#[derive(Debug)]
pub(super) struct ByListener {
    open: Family<ListenerLabels, Gauge>,
    accepted: Family<ListenerLabels, Counter>,
    refused: Family<ListenerLabels, Counter>,
    tls_failures: Family<ListenerLabels, Counter>,
}

/// Microseconds here, seconds there: a gauge of a time or a length of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Seconds(Arc<AtomicU64>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    wire: &'static str,
    outcome: &'static str,
    source: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WireLabels {
    wire: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerLabels {
    listener: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

impl ByWire {
    pub(super) fn register(registry: &mut Registry) -> ByWire {
        let by_wire = ByWire {
            decisions: Family::default(),
            bad_requests: Family::default(),
            authorize_unmatched: Counter::default(),
            authorize_bad_cost: Counter::default(),
            replays: Family::default(),
            conflicts: Family::default(),
            soft_limits_passed: Family::default(),
            not_held: Family::default(),
            in_flight: Family::default(),
        };
        registry.register(
            "decisions",
            "Checks that were decided, by wire, outcome (allow, deny) and source: store, cache, local, or nobody's reading but \
             the policies of the rules (assumed: the store failed; shed: too many checks at once)",
            by_wire.decisions.clone(),
        );
        registry.register(
            "bad_requests",
            "Checks that could not be decided as they were, and receipts that could not be settled, answered with an error",
            by_wire.bad_requests.clone(),
        );
        registry.register(
            "authorize_unmatched",
            "Requests of proxies that passed because no rule applied to them or they could not be decided",
            by_wire.authorize_unmatched.clone(),
        );
        registry.register(
            "authorize_bad_cost",
            "Requests of proxies whose cost was no whole number above 0, and counted as 1",
            by_wire.authorize_bad_cost.clone(),
        );
        registry.register(
            "idempotent_replays",
            "Checks that were answered as an earlier one with the same idempotency key was, and consumed nothing",
            by_wire.replays.clone(),
        );
        registry.register(
            "idempotency_conflicts",
            "Checks with an idempotency key that was used for another request, answered with an error",
            by_wire.conflicts.clone(),
        );
        registry.register(
            "soft_limits_passed",
            "Limits of rules with mode soft that requests went past",
            by_wire.soft_limits_passed.clone(),
        );
        registry.register(
            "concurrency_not_applied",
            "Limits on concurrent requests that did not apply to a check, since its caller could not release what it would hold",
            by_wire.not_held.clone(),
        );
        registry.register(
            "checks_in_flight",
            "Checks, and settlements of receipts, that have begun and not ended",
            by_wire.in_flight.clone(),
        );
        WIRES.into_iter().for_each(|wire| drop(by_wire.of(wire)));
        by_wire
    }

    pub(super) fn in_flight(&self) -> u64 {
        let of = |wire| self.in_flight.get_or_create(&WireLabels { wire }).get();
        WIRES.into_iter().map(|wire| u64::try_from(of(wire)).unwrap_or(0)).sum()
    }

    pub(super) fn of(&self, wire: &'static str) -> WireMetrics {
        let decisions = |outcome, source| self.decisions.get_or_create_owned(&DecisionLabels { wire, outcome, source });
        let by_source = |outcome| BySource {
            store: decisions(outcome, "store"),
            cache: decisions(outcome, "cache"),
            local: decisions(outcome, "local"),
            assumed: decisions(outcome, "assumed"),
            shed: decisions(outcome, "shed"),
        };
        let labels = WireLabels { wire };
        WireMetrics {
            allowed: by_source("allow"),
            denied: by_source("deny"),
            bad_requests: self.bad_requests.get_or_create_owned(&labels),
            authorize_unmatched: self.authorize_unmatched.clone(),
            authorize_bad_cost: self.authorize_bad_cost.clone(),
            replays: self.replays.get_or_create_owned(&labels),
            conflicts: self.conflicts.get_or_create_owned(&labels),
            soft_limits_passed: self.soft_limits_passed.get_or_create_owned(&labels),
            not_held: self.not_held.get_or_create_owned(&labels),
            in_flight: self.in_flight.get_or_create_owned(&labels),
        }
    }
}

impl ByListener {
    pub(super) fn register(registry: &mut Registry) -> ByListener {
        let by_listener = ByListener {
            open: Family::default(),
            accepted: Family::default(),
            refused: Family::default(),
            tls_failures: Family::default(),
        };
        registry.register("connections_open", "Connections that are open", by_listener.open.clone());
        registry.register("connections_accepted", "Connections that were served", by_listener.accepted.clone());
        registry.register(
            "connections_refused",
            "Connections that were closed at once, since there were too many",
            by_listener.refused.clone(),
        );
        registry.register(
            "tls_handshake_failures",
            "Connections on which TLS was not agreed on",
            by_listener.tls_failures.clone(),
        );
        LISTENERS.into_iter().for_each(|listener| drop(by_listener.of(listener)));
        by_listener
    }

    pub(super) fn of(&self, listener: &'static str) -> ListenerMetrics {
        let labels = ListenerLabels { listener };
        ListenerMetrics {
            open: self.open.get_or_create_owned(&labels),
            accepted: self.accepted.get_or_create_owned(&labels),
            refused: self.refused.get_or_create_owned(&labels),
            tls_failures: self.tls_failures.get_or_create_owned(&labels),
        }
    }
}

pub(super) fn rules(registry: &mut Registry) -> RulesMetrics {
    let (reloads, metrics) = (Family::default(), RulesMetrics::default());
    registry.register("rules_reloads", "Rules that were put in force (ok), or could not be (bad)", reloads.clone());
    registry.register(
        "rules_valid",
        "1 if the rules in force are the ones that are written, 0 if those can't be put in force",
        metrics.valid.clone(),
    );
    registry.register(
        "rules_last_reload_success_timestamp_seconds",
        "When rules were last put in force, in Unix time",
        metrics.last_reload.clone(),
    );
    let result = |result| reloads.get_or_create_owned(&ResultLabels { result });
    RulesMetrics { reloaded: result("ok"), refused: result("bad"), ..metrics }
}

pub(super) fn snapshots(registry: &mut Registry) -> SnapshotMetrics {
    let (snapshots, metrics) = (Family::default(), SnapshotMetrics::default());
    registry.register(
        "snapshots",
        "Snapshots of the counters that were written (ok), or were not (bad)",
        snapshots.clone(),
    );
    registry.register("snapshot_size_bytes", "The size of the last snapshot", metrics.bytes.clone());
    registry.register("snapshot_duration_seconds", "What the last snapshot took", metrics.duration.clone());
    registry.register(
        "snapshot_last_success_timestamp_seconds",
        "When a snapshot was last written, in Unix time",
        metrics.last_written.clone(),
    );
    let result = |result| snapshots.get_or_create_owned(&ResultLabels { result });
    SnapshotMetrics { written: result("ok"), failed: result("bad"), ..metrics }
}

pub(super) fn traces(registry: &mut Registry) -> TraceMetrics {
    let spans = Family::default();
    registry.register(
        "trace_spans",
        "Spans by what became of them: taken by the collector (ok), refused by it or lost on the way (bad), or too many at \
         once to be sent (dropped)",
        spans.clone(),
    );
    let result = |result| spans.get_or_create_owned(&ResultLabels { result });
    TraceMetrics { exported: result("ok"), failed: result("bad"), dropped: result("dropped") }
}

impl Seconds {
    pub(super) fn set(&self, micros: u64) {
        self.0.store(micros, Ordering::Relaxed);
    }
}

impl EncodeMetric for Seconds {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), std::fmt::Error> {
        encoder.encode_gauge(&(self.0.load(Ordering::Relaxed) as f64 / 1e6))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}
