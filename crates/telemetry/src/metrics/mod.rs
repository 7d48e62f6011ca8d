//! All metrics: the interface of dashboards and alerts. [`table`] lists them; docs/metrics.md is generated from it.
//!
//! Names follow Prometheus: base units, `_total` for counters. Every family exists from the first scrape on, with 0 where nothing
//! has happened, so that an alert can distinguish "zero" from "missing". Labels have small fixed sets of values, or are names of
//! rules and tiers up to a bound; only the ten keys in `ratelimit_top_denied` are values of callers.

mod changes;
mod control;
pub mod encode;
mod families;
mod guardrails;
mod plain;
mod process;
mod receipts;
mod repairs;
mod sources;
pub mod table;

use std::fmt;
use std::sync::{Arc, OnceLock};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tollgate_core::{Source, Span, Timestamp};

use families::{DomainLabels, ListenerFamilies, PolicyLabels, SecondsGauge, WireFamilies};
use sources::MetricSources;

use crate::UnmatchedChecks;

pub use changes::{ChangeKind, ChangeMetrics, WrittenChange};
pub use control::ControlMetrics;
pub use guardrails::{GuardedWrite, GuardrailMetrics};
pub use receipts::ReceiptMetrics;
pub use repairs::{Repair, Repairs};
pub use sources::MetricSource;

/// The metrics of a server.
pub struct Metrics {
    registry: Registry,
    by_wire: WireFamilies,
    by_listener: ListenerFamilies,
    rules: RulesMetrics,
    snapshots: SnapshotMetrics,
    traces: TraceMetrics,
    receipts: ReceiptMetrics,
    control: ControlMetrics,
    changes: ChangeMetrics,
    guardrails: GuardrailMetrics,
    log_lines_lost: Counter,
    admin_logins_failed: Counter,
    unmatched_checks: Arc<UnmatchedChecks>,
    /// Sources whose names get the prefix.
    prefixed: MetricSources,
    /// Sources with names of their own.
    unprefixed: MetricSources,
}

/// The metrics of one wire. Handles are looked up once, so that counting is a single addition.
#[derive(Clone, Debug)]
pub struct WireMetrics {
    allowed: SourceCounters,
    denied: SourceCounters,
    bad_requests: Counter,
    /// Requests of proxies that passed because no rule applied, or because they were invalid.
    pub authorize_unmatched: Counter,
    /// Requests of proxies with an invalid cost.
    pub authorize_bad_cost: Counter,
    /// Checks answered from a stored response with the same idempotency key.
    pub replays: Counter,
    /// Checks whose idempotency key belongs to another request.
    pub conflicts: Counter,
    /// Soft limits that requests exceeded.
    pub soft_limits_passed: Counter,
    /// Concurrency limits that did not apply to a check.
    pub not_held: Counter,
    /// Checks of a domain that has no rules.
    pub unknown_domain: Counter,
    wire: &'static str,
    /// Checks that met no rule, by wire and domain.
    unmatched: Family<DomainLabels, Counter>,
    /// That of the first domain: mostly there is one only.
    first_unmatched: Arc<OnceLock<(String, Counter)>>,
    unmatched_checks: Arc<UnmatchedChecks>,
    /// Checks that were decided without the store, by wire and policy.
    shed: Family<PolicyLabels, Counter>,
    /// By [`Repair`].
    repaired: [Counter; Repair::ALL.len()],
    in_flight: Gauge,
}

/// Decisions by source.
#[derive(Clone, Debug)]
struct SourceCounters {
    store: Counter,
    lease: Counter,
    cache: Counter,
    summed: Counter,
    local: Counter,
    assumed: Counter,
    shed: Counter,
}

/// The metrics of one listener.
#[derive(Clone, Debug)]
pub struct ListenerMetrics {
    open: Gauge,
    accepted: Counter,
    refused: Counter,
    tls_failures: Counter,
}

/// Counts a connection as open until it is dropped.
#[derive(Debug)]
pub struct OpenConnection(Gauge);

/// Metrics of rule reloads.
#[derive(Clone, Debug, Default)]
pub struct RulesMetrics {
    reloaded: Counter,
    refused: Counter,
    valid: Gauge,
    last_reload: SecondsGauge,
}

/// Metrics of counter snapshots.
#[derive(Clone, Debug, Default)]
pub struct SnapshotMetrics {
    written: Counter,
    failed: Counter,
    bytes: Gauge,
    duration: SecondsGauge,
    last_written: SecondsGauge,
}

/// Metrics of spans.
#[derive(Clone, Debug, Default)]
pub struct TraceMetrics {
    pub exported: Counter,
    pub dropped: Counter,
    pub failed: Counter,
}

/// The text formats of a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    OpenMetrics,
    /// The older Prometheus format, which every scraper reads.
    Plain,
}

impl Metrics {
    pub fn new() -> Arc<Metrics> {
        let mut registry = Registry::default();
        let (prefixed, unprefixed) = (MetricSources::default(), MetricSources::default());
        registry.register_collector(Box::new(process::ProcessMetrics));
        registry.register_collector(Box::new(unprefixed.clone()));
        let prefix = registry.sub_registry_with_prefix(table::PREFIX);
        let log_lines_lost = Counter::default();
        table::register(prefix, "log_lines_lost", log_lines_lost.clone());
        let admin_logins_failed = Counter::default();
        table::register(prefix, "admin_logins_failed", admin_logins_failed.clone());
        let (by_wire, by_listener) = (WireFamilies::register(prefix), ListenerFamilies::register(prefix));
        let rules = families::rules(prefix);
        let (snapshots, traces) = (families::snapshots(prefix), families::traces(prefix));
        let (receipts, control) = (ReceiptMetrics::register(prefix), ControlMetrics::register(prefix));
        let (changes, guardrails) = (ChangeMetrics::register(prefix), GuardrailMetrics::register(prefix));
        prefix.register_collector(Box::new(prefixed.clone()));
        Arc::new(Metrics {
            registry,
            by_wire,
            by_listener,
            rules,
            snapshots,
            traces,
            receipts,
            control,
            changes,
            guardrails,
            log_lines_lost,
            admin_logins_failed,
            unmatched_checks: Arc::default(),
            prefixed,
            unprefixed,
        })
    }

    /// Adds metrics that are collected at each scrape. Their names get the prefix `tollgate_`.
    pub fn add(&self, source: impl MetricSource) {
        self.prefixed.add(source);
    }

    /// Adds metrics that are collected at each scrape, under their own names.
    pub fn add_unprefixed(&self, source: impl MetricSource) {
        self.unprefixed.add(source);
    }

    /// The metrics of one wire: `grpc`, `http` or `resp`.
    pub fn wire(&self, wire: &'static str) -> WireMetrics {
        self.by_wire.for_wire(wire, &self.unmatched_checks)
    }

    /// Checks that met no rule, on all wires.
    pub fn unmatched_checks(&self) -> &UnmatchedChecks {
        &self.unmatched_checks
    }

    /// The metrics of one listener: a wire's, or `admin`.
    pub fn listener(&self, listener: &'static str) -> ListenerMetrics {
        self.by_listener.for_listener(listener)
    }

    /// Checks in flight on all wires.
    pub fn in_flight(&self) -> u64 {
        self.by_wire.in_flight()
    }

    pub fn rules(&self) -> &RulesMetrics {
        &self.rules
    }

    pub fn snapshots(&self) -> &SnapshotMetrics {
        &self.snapshots
    }

    pub fn traces(&self) -> &TraceMetrics {
        &self.traces
    }

    pub fn receipts(&self) -> &ReceiptMetrics {
        &self.receipts
    }

    pub fn control(&self) -> &ControlMetrics {
        &self.control
    }

    pub fn changes(&self) -> &ChangeMetrics {
        &self.changes
    }

    pub fn guardrails(&self) -> &GuardrailMetrics {
        &self.guardrails
    }

    /// The counter of lost log lines.
    pub fn log_lines_lost(&self) -> Counter {
        self.log_lines_lost.clone()
    }

    /// The counter of failed logins to the admin listener.
    pub fn admin_logins_failed(&self) -> Counter {
        self.admin_logins_failed.clone()
    }

    /// Encodes all metrics as text.
    pub fn text(&self, exposition: Exposition) -> Result<String, fmt::Error> {
        let mut text = String::with_capacity(16 * 1024);
        encode(&mut text, &self.registry)?;
        Ok(match exposition {
            Exposition::OpenMetrics => text,
            Exposition::Plain => plain::from_open_metrics(&text),
        })
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl WireMetrics {
    /// Counts a check of this domain that met no rule. `unknown` lists those of its attributes that no rule reads.
    #[cold]
    pub fn unmatched<'a, A: Iterator<Item = &'a str>>(&self, domain: &str, unknown: impl FnOnce() -> A) {
        let counter = |domain: &str| {
            self.unmatched.get_or_create_owned(&DomainLabels { wire: self.wire, domain: domain.to_owned() })
        };
        match self.first_unmatched.get_or_init(|| (domain.to_owned(), counter(domain))) {
            (first, count) if first == domain => count.inc(),
            _ => counter(domain).inc(),
        };
        self.unmatched_checks.report(self.wire, domain, unknown);
    }

    pub fn decided(&self, allowed: bool, source: Source) {
        self.decided_many(allowed, source, 1);
    }

    /// Counts several decisions of the same kind.
    pub fn decided_many(&self, allowed: bool, source: Source, count: u64) {
        let counters = if allowed { &self.allowed } else { &self.denied };
        match source {
            Source::Store => &counters.store,
            Source::Lease => &counters.lease,
            Source::Cache => &counters.cache,
            Source::Summed => &counters.summed,
            Source::Local => &counters.local,
            Source::Assumed => &counters.assumed,
            Source::Shed => &counters.shed,
        }
        .inc_by(count);
    }

    /// Counts a check that was decided without the store because there were too many, by the most important policy of its
    /// rules.
    #[cold]
    pub fn shed(&self, policy: &'static str) {
        self.shed.get_or_create(&PolicyLabels { wire: self.wire, policy }).inc();
    }

    /// How many checks of a policy were [shed](Self::shed).
    pub fn shed_by(&self, policy: &'static str) -> u64 {
        self.shed.get_or_create(&PolicyLabels { wire: self.wire, policy }).get()
    }

    /// Counts an invalid request: the caller got an error.
    pub fn refused_request(&self) {
        self.bad_requests.inc();
    }

    /// Counts a check that had an invalid part, and was decided all the same.
    pub fn repaired(&self, repair: Repair) {
        self.repaired[repair as usize].inc();
    }

    /// The same for all repairs of a check.
    #[inline]
    pub fn repaired_all(&self, repairs: Repairs) {
        if !repairs.is_empty() {
            Repair::ALL.into_iter().filter(|repair| repairs.contains(*repair)).for_each(|repair| self.repaired(repair));
        }
    }

    /// How many checks had this repair.
    pub fn repairs(&self, repair: Repair) -> u64 {
        self.repaired[repair as usize].get()
    }

    /// Checks in flight.
    pub fn in_flight(&self) -> &Gauge {
        &self.in_flight
    }
}

impl ListenerMetrics {
    /// Counts a connection as accepted, and as open until the guard is dropped.
    pub fn accepted(&self) -> OpenConnection {
        self.accepted.inc();
        self.open.inc();
        OpenConnection(self.open.clone())
    }

    /// Counts a connection that was closed at once, since there were too many.
    pub fn refused(&self) {
        self.refused.inc();
    }

    /// Counts a failed TLS handshake.
    pub fn tls_failed(&self) {
        self.tls_failures.inc();
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl RulesMetrics {
    /// Rules were loaded, at the start or later.
    pub fn reloaded(&self, at: Timestamp) {
        self.reloaded.inc();
        self.valid.set(1);
        self.last_reload.set(at.as_micros());
    }

    /// The rules could not be loaded; the last good ones stay in force.
    pub fn refused(&self) {
        self.refused.inc();
        self.valid.set(0);
    }
}

impl SnapshotMetrics {
    pub fn written(&self, at: Timestamp, took: Span, bytes: u64) {
        self.written.inc();
        self.last_written.set(at.as_micros());
        self.duration.set(took.as_micros());
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub fn failed(&self) {
        self.failed.inc();
    }
}

impl Exposition {
    /// Chooses the format for an `Accept` header.
    pub fn negotiate(accept: Option<&str>) -> Exposition {
        let is_open = accept.is_some_and(|accept| accept.contains("application/openmetrics-text"));
        if is_open { Exposition::OpenMetrics } else { Exposition::Plain }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

#[cfg(test)]
mod tests;
