//! Metric families with labels, and the series that each has from the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::UnmatchedChecks;

use super::{ListenerMetrics, Repair, RulesMetrics, SnapshotMetrics, SourceCounters, TraceMetrics, WireMetrics, table};

/// The values of the label `wire`.
const WIRES: [&str; 4] = ["gateway", "grpc", "http", "resp"];
/// The values of the label `listener`.
const LISTENERS: [&str; 5] = ["admin", "gateway", "grpc", "http", "resp"];

/// The values of the label `policy`.
const POLICIES: [&str; 4] = ["comfort", "cost", "quota", "security"];

#[derive(Debug)]
pub(super) struct WireFamilies {
    decisions: Family<DecisionLabels, Counter>,
    bad_requests: Family<WireLabels, Counter>,
    authorize_unmatched: Counter,
    authorize_bad_cost: Counter,
    replays: Family<WireLabels, Counter>,
    conflicts: Family<WireLabels, Counter>,
    soft_limits_passed: Family<WireLabels, Counter>,
    not_held: Family<WireLabels, Counter>,
    unknown_domain: Family<WireLabels, Counter>,
    unmatched: Family<DomainLabels, Counter>,
    shed: Family<PolicyLabels, Counter>,
    repaired: Family<RepairLabels, Counter>,
    in_flight: Family<WireLabels, Gauge>,
}

#[derive(Debug)]
pub(super) struct ListenerFamilies {
    open: Family<ListenerLabels, Gauge>,
    accepted: Family<ListenerLabels, Counter>,
    refused: Family<ListenerLabels, Counter>,
    tls_failures: Family<ListenerLabels, Counter>,
}

/// A gauge in seconds, stored in microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct SecondsGauge(Arc<AtomicU64>);

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
pub(super) struct DomainLabels {
    pub(super) wire: &'static str,
    pub(super) domain: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PolicyLabels {
    pub(super) wire: &'static str,
    pub(super) policy: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RepairLabels {
    wire: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerLabels {
    listener: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

impl WireFamilies {
    pub(super) fn register(registry: &mut Registry) -> WireFamilies {
        let by_wire = WireFamilies {
            decisions: Family::default(),
            bad_requests: Family::default(),
            authorize_unmatched: Counter::default(),
            authorize_bad_cost: Counter::default(),
            replays: Family::default(),
            conflicts: Family::default(),
            soft_limits_passed: Family::default(),
            not_held: Family::default(),
            unknown_domain: Family::default(),
            unmatched: Family::default(),
            shed: Family::default(),
            repaired: Family::default(),
            in_flight: Family::default(),
        };
        table::register(registry, "decisions", by_wire.decisions.clone());
        table::register(registry, "bad_requests", by_wire.bad_requests.clone());
        table::register(registry, "authorize_unmatched", by_wire.authorize_unmatched.clone());
        table::register(registry, "authorize_bad_cost", by_wire.authorize_bad_cost.clone());
        table::register(registry, "idempotent_replays", by_wire.replays.clone());
        table::register(registry, "idempotency_conflicts", by_wire.conflicts.clone());
        table::register(registry, "soft_limits_passed", by_wire.soft_limits_passed.clone());
        table::register(registry, "concurrency_not_applied", by_wire.not_held.clone());
        table::register(registry, "unknown_domain_checks", by_wire.unknown_domain.clone());
        table::register(registry, "unmatched_checks", by_wire.unmatched.clone());
        table::register(registry, "shed_checks", by_wire.shed.clone());
        table::register(registry, "repaired_checks", by_wire.repaired.clone());
        table::register(registry, "checks_in_flight", by_wire.in_flight.clone());
        let unmatched_checks = Arc::default();
        WIRES.into_iter().for_each(|wire| drop(by_wire.for_wire(wire, &unmatched_checks)));
        by_wire
    }

    pub(super) fn in_flight(&self) -> u64 {
        let gauge = |wire| self.in_flight.get_or_create(&WireLabels { wire }).get();
        WIRES.into_iter().map(|wire| u64::try_from(gauge(wire)).unwrap_or(0)).sum()
    }

    pub(super) fn for_wire(&self, wire: &'static str, unmatched_checks: &Arc<UnmatchedChecks>) -> WireMetrics {
        let decisions = |outcome, source| self.decisions.get_or_create_owned(&DecisionLabels { wire, outcome, source });
        let by_source = |outcome| SourceCounters {
            store: decisions(outcome, "store"),
            lease: decisions(outcome, "lease"),
            cache: decisions(outcome, "cache"),
            summed: decisions(outcome, "summed"),
            local: decisions(outcome, "local"),
            assumed: decisions(outcome, "assumed"),
            shed: decisions(outcome, "shed"),
        };
        let labels = WireLabels { wire };
        // The family exists from the first scrape on.
        drop(self.unmatched.get_or_create(&DomainLabels { wire, domain: String::new() }));
        for policy in POLICIES {
            drop(self.shed.get_or_create(&PolicyLabels { wire, policy }));
        }
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
            unknown_domain: self.unknown_domain.get_or_create_owned(&labels),
            wire,
            unmatched: self.unmatched.clone(),
            first_unmatched: Arc::default(),
            unmatched_checks: unmatched_checks.clone(),
            shed: self.shed.clone(),
            repaired: Repair::ALL
                .map(|repair| self.repaired.get_or_create_owned(&RepairLabels { wire, reason: repair.name() })),
            in_flight: self.in_flight.get_or_create_owned(&labels),
        }
    }
}

impl ListenerFamilies {
    pub(super) fn register(registry: &mut Registry) -> ListenerFamilies {
        let by_listener = ListenerFamilies {
            open: Family::default(),
            accepted: Family::default(),
            refused: Family::default(),
            tls_failures: Family::default(),
        };
        table::register(registry, "connections_open", by_listener.open.clone());
        table::register(registry, "connections_accepted", by_listener.accepted.clone());
        table::register(registry, "connections_refused", by_listener.refused.clone());
        table::register(registry, "tls_handshake_failures", by_listener.tls_failures.clone());
        LISTENERS.into_iter().for_each(|listener| drop(by_listener.for_listener(listener)));
        by_listener
    }

    pub(super) fn for_listener(&self, listener: &'static str) -> ListenerMetrics {
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
    table::register(registry, "rules_reloads", reloads.clone());
    table::register(registry, "rules_valid", metrics.valid.clone());
    table::register(registry, "rules_last_reload_success_timestamp_seconds", metrics.last_reload.clone());
    let result = |result| reloads.get_or_create_owned(&ResultLabels { result });
    RulesMetrics { reloaded: result("ok"), refused: result("bad"), ..metrics }
}

pub(super) fn snapshots(registry: &mut Registry) -> SnapshotMetrics {
    let (snapshots, metrics) = (Family::default(), SnapshotMetrics::default());
    table::register(registry, "snapshots", snapshots.clone());
    table::register(registry, "snapshot_size_bytes", metrics.bytes.clone());
    table::register(registry, "snapshot_duration_seconds", metrics.duration.clone());
    table::register(registry, "snapshot_last_success_timestamp_seconds", metrics.last_written.clone());
    let result = |result| snapshots.get_or_create_owned(&ResultLabels { result });
    SnapshotMetrics { written: result("ok"), failed: result("bad"), ..metrics }
}

pub(super) fn traces(registry: &mut Registry) -> TraceMetrics {
    let spans = Family::default();
    table::register(registry, "trace_spans", spans.clone());
    let result = |result| spans.get_or_create_owned(&ResultLabels { result });
    TraceMetrics { exported: result("ok"), failed: result("bad"), dropped: result("dropped") }
}

impl SecondsGauge {
    pub(super) fn set(&self, micros: u64) {
        self.0.store(micros, Ordering::Relaxed);
    }
}

impl EncodeMetric for SecondsGauge {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), std::fmt::Error> {
        encoder.encode_gauge(&(self.0.load(Ordering::Relaxed) as f64 / 1e6))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}
