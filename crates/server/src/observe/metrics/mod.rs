//! All metrics, in one place: what dashboards and alerts rely on. [`table`] is the list of them; docs/metrics.md is made from it.
//!
//! Names follow Prometheus: base units, `_total` for what only grows. Every family is there from the first scrape on, with 0
//! where nothing has happened, so that an alert can tell "none" from "nobody counts". Labels are of small fixed sets, or names of
//! rules and tiers up to a bound; the only value of callers that is ever one is that of the ten keys in `ratelimit_top_denied`.

mod asked;
mod control;
mod decisions;
mod families;
mod plain;
mod process;
mod receipts;
mod scrape;
mod shared;
mod table;

use std::fmt;
use std::sync::{Arc, OnceLock};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tollgate::{Limiter, Source, Span, Timestamp};

use crate::counters::Counters;
use crate::decisions::LogCounts;
use crate::health::Health;
use crate::observe::Sight;
use crate::receipts::Receipts;
use asked::Asked;
use decisions::Decisions;
use families::{ByListener, ByWire, Seconds};
use scrape::{Parts, Scrape};

pub(crate) use control::ControlMetrics;
pub(crate) use receipts::ReceiptMetrics;

/// What the server counts.
pub(crate) struct Metrics {
    registry: Registry,
    by_wire: ByWire,
    by_listener: ByListener,
    rules: RulesMetrics,
    snapshots: SnapshotMetrics,
    traces: TraceMetrics,
    receipts: ReceiptMetrics,
    control: ControlMetrics,
    log_lines_lost: Counter,
    admin_logins_failed: Counter,
    /// What is read when somebody asks.
    parts: Arc<OnceLock<Parts>>,
    asked: Arc<Asked>,
}

/// What one wire counts. The handles are taken once, so that counting is an addition.
#[derive(Clone, Debug)]
pub(crate) struct WireMetrics {
    allowed: BySource,
    denied: BySource,
    bad_requests: Counter,
    /// Proxies' requests that passed because no rule applied, or because they could not be decided.
    pub(crate) authorize_unmatched: Counter,
    /// Proxies' requests with a cost that is none.
    pub(crate) authorize_bad_cost: Counter,
    /// Checks that were decided before, under the same idempotency key.
    pub(crate) replays: Counter,
    /// Checks under an idempotency key that another has.
    pub(crate) conflicts: Counter,
    /// Soft limits that requests went past.
    pub(crate) soft_limits_passed: Counter,
    /// Limits on requests in flight that did not apply to a check.
    pub(crate) not_held: Counter,
    in_flight: Gauge,
}

/// Decisions by how sure they are.
#[derive(Clone, Debug)]
struct BySource {
    store: Counter,
    cache: Counter,
    local: Counter,
    assumed: Counter,
    shed: Counter,
}

/// What one listener counts.
#[derive(Clone, Debug)]
pub(crate) struct ListenerMetrics {
    open: Gauge,
    accepted: Counter,
    refused: Counter,
    tls_failures: Counter,
}

/// A connection that is open until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection(Gauge);

/// What became of changes of the rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct RulesMetrics {
    reloaded: Counter,
    refused: Counter,
    valid: Gauge,
    last_reload: Seconds,
}

/// What became of snapshots of the counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct SnapshotMetrics {
    written: Counter,
    failed: Counter,
    bytes: Gauge,
    duration: Seconds,
    last_written: Seconds,
}

/// What became of spans.
#[derive(Clone, Debug, Default)]
pub(crate) struct TraceMetrics {
    pub(super) exported: Counter,
    pub(super) dropped: Counter,
    pub(super) failed: Counter,
}

/// The text formats of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exposition {
    OpenMetrics,
    /// Prometheus's older one, which everything reads.
    Plain,
}

impl Metrics {
    pub(crate) fn new() -> Arc<Metrics> {
        let mut registry = Registry::default();
        let (parts, asked) = (Arc::new(OnceLock::new()), Arc::new(Asked::default()));
        registry.register_collector(Box::new(process::ProcessMetrics));
        registry.register_collector(Box::new(shared::Aliases(parts.clone())));
        registry.register_collector(Box::new(Decisions { parts: parts.clone(), asked: asked.clone() }));
        let ours = registry.sub_registry_with_prefix(table::PREFIX);
        let log_lines_lost = Counter::default();
        table::register(ours, "log_lines_lost", log_lines_lost.clone());
        let admin_logins_failed = Counter::default();
        table::register(ours, "admin_logins_failed", admin_logins_failed.clone());
        let (by_wire, by_listener) = (ByWire::register(ours), ByListener::register(ours));
        let rules = families::rules(ours);
        let (snapshots, traces) = (families::snapshots(ours), families::traces(ours));
        let (receipts, control) = (ReceiptMetrics::register(ours), ControlMetrics::register(ours));
        ours.register_collector(Box::new(Scrape { parts: parts.clone(), control: control.clone() }));
        Arc::new(Metrics {
            registry,
            by_wire,
            by_listener,
            rules,
            snapshots,
            traces,
            receipts,
            control,
            log_lines_lost,
            admin_logins_failed,
            parts,
            asked,
        })
    }

    /// The parts whose state is read when somebody asks: rules, store, health, receipts. Until then there are none. Told once.
    pub(crate) fn watch(
        &self,
        limiter: Arc<Limiter<Counters>>,
        health: Arc<Health>,
        receipts: Arc<Receipts>,
        sight: Arc<Sight>,
    ) {
        // A second call would be of the same server.
        let _ = self.parts.set(Parts { limiter, health, receipts, sight });
    }

    /// Who is asked for the keys with the most refusals of the last 5 minutes, most first, as they may be shown to whoever scrapes:
    /// hashed, unless `metrics_show_keys` is set. Told once.
    pub(crate) fn ask_for_top_denied(&self, source: impl Fn() -> Vec<(String, u64)> + Send + Sync + 'static) {
        self.asked.ask_for_top_denied(source);
    }

    /// Who is asked what became of the entries of the decision log. Told once.
    pub(crate) fn ask_for_log_entries(&self, source: impl Fn() -> LogCounts + Send + Sync + 'static) {
        self.asked.ask_for_log_entries(source);
    }

    /// What is counted for one wire: `grpc`, `http` or `resp`.
    pub(crate) fn wire(&self, wire: &'static str) -> WireMetrics {
        self.by_wire.of(wire)
    }

    /// What is counted for one listener: a wire's, or `admin`.
    pub(crate) fn listener(&self, listener: &'static str) -> ListenerMetrics {
        self.by_listener.of(listener)
    }

    /// Checks that have begun and not ended, on all wires.
    pub(crate) fn in_flight(&self) -> u64 {
        self.by_wire.in_flight()
    }

    pub(crate) fn rules(&self) -> &RulesMetrics {
        &self.rules
    }

    pub(crate) fn snapshots(&self) -> &SnapshotMetrics {
        &self.snapshots
    }

    pub(crate) fn traces(&self) -> &TraceMetrics {
        &self.traces
    }

    pub(crate) fn receipts(&self) -> &ReceiptMetrics {
        &self.receipts
    }

    pub(crate) fn control(&self) -> &ControlMetrics {
        &self.control
    }

    /// For the log, which counts what it could not write.
    pub(crate) fn log_lines_lost(&self) -> Counter {
        self.log_lines_lost.clone()
    }

    /// For who guards the admin listener.
    pub(crate) fn admin_logins_failed(&self) -> Counter {
        self.admin_logins_failed.clone()
    }

    /// All of it as text.
    pub(crate) fn text(&self, exposition: Exposition) -> Result<String, fmt::Error> {
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
    pub(crate) fn decided(&self, allowed: bool, source: Source) {
        self.decided_many(allowed, source, 1);
    }

    /// Counts what was decided alike at once.
    pub(crate) fn decided_many(&self, allowed: bool, source: Source, count: u64) {
        let by = if allowed { &self.allowed } else { &self.denied };
        match source {
            Source::Store => &by.store,
            Source::Cache => &by.cache,
            Source::Local => &by.local,
            Source::Assumed => &by.assumed,
            Source::Shed => &by.shed,
        }
        .inc_by(count);
    }

    /// A request that can't be decided as it is: the caller got an error.
    pub(crate) fn refused_request(&self) {
        self.bad_requests.inc();
    }

    /// Checks that have begun and not ended.
    pub(crate) fn in_flight(&self) -> &Gauge {
        &self.in_flight
    }
}

impl ListenerMetrics {
    /// A connection came and is served. It counts as open as long as the answer lives.
    pub(crate) fn accepted(&self) -> OpenConnection {
        self.accepted.inc();
        self.open.inc();
        OpenConnection(self.open.clone())
    }

    /// A connection came and was closed at once, since there were too many.
    pub(crate) fn refused(&self) {
        self.refused.inc();
    }

    /// A client and we did not agree on TLS.
    pub(crate) fn tls_failed(&self) {
        self.tls_failures.inc();
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl RulesMetrics {
    /// Rules were put in force, at the start or later.
    pub(crate) fn reloaded(&self, at: Timestamp) {
        self.reloaded.inc();
        self.valid.set(1);
        self.last_reload.set(at.as_micros());
    }

    /// The rules as they are written can't be put in force; others are.
    pub(crate) fn refused(&self) {
        self.refused.inc();
        self.valid.set(0);
    }
}

impl SnapshotMetrics {
    pub(crate) fn written(&self, at: Timestamp, took: Span, bytes: u64) {
        self.written.inc();
        self.last_written.set(at.as_micros());
        self.duration.set(took.as_micros());
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(crate) fn failed(&self) {
        self.failed.inc();
    }
}

impl Exposition {
    /// What a client that sends this `Accept` header understands.
    pub(crate) fn accepted(accept: Option<&str>) -> Exposition {
        let open = accept.is_some_and(|accept| accept.contains("application/openmetrics-text"));
        if open { Exposition::OpenMetrics } else { Exposition::Plain }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

#[cfg(test)]
mod tests;
