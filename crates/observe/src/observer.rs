//! The witness of a server's decisions.

use std::sync::Arc;

use tollgate::{DecisionEvent, KeyPrivacy, Source, Timestamp, Witness};

use crate::bans::RefusalTable;
use crate::decision_log::{DecisionLog, LogConfig, ShedRequest};
use crate::heavy_hitters::{HeavyHitters, SustainedKey};
use crate::latency::LatencyHistogram;
use crate::outcome::{DecisionOutcome, DecisionResult};
use crate::signals::SignalBoard;
use crate::stripe::{StripedCounters, is_one_in};
use crate::tally::{Tally, TallyLimits};
use crate::traffic::{TrafficConfig, TrafficSample};

/// Observes every decision and maintains the statistics.
#[derive(Debug)]
pub struct Observer {
    tally: Tally,
    heavy_hitters: HeavyHitters,
    decision: LatencyHistogram,
    store: LatencyHistogram,
    log: DecisionLog,
    signals: SignalBoard,
    traffic: TrafficSample,
    refusals: RefusalTable,
    /// Decisions without a rule.
    unmatched: StripedCounters<1>,
    config: ObserverConfig,
}

/// Configuration of an observer.
#[derive(Clone, Copy, Debug)]
pub struct ObserverConfig {
    /// Shadow mode: refusals are reported, but nothing is refused.
    pub shadow: bool,
    /// One in this many checks is timed. Reading the clock costs as much as counting, so checks that take less than a
    /// microsecond are sampled.
    pub time_one_in: u32,
    /// Whether heavy hitters are counted.
    pub keys: bool,
    /// Bounds of the tally.
    pub tally: TallyLimits,
    /// Configuration of the decision log.
    pub log: LogConfig,
    /// Configuration of the sample of recent requests.
    pub traffic: TrafficConfig,
}

impl Default for ObserverConfig {
    fn default() -> ObserverConfig {
        ObserverConfig {
            shadow: false,
            time_one_in: 16,
            keys: true,
            tally: TallyLimits::default(),
            log: LogConfig::default(),
            traffic: TrafficConfig::default(),
        }
    }
}

impl Observer {
    /// Creates an observer with empty statistics. Logs and lists have private values in this form.
    pub fn new(config: ObserverConfig, privacy: Arc<KeyPrivacy>) -> Observer {
        Observer {
            tally: Tally::new(config.tally),
            heavy_hitters: HeavyHitters::new(privacy.clone()),
            decision: LatencyHistogram::default(),
            store: LatencyHistogram::default(),
            signals: SignalBoard::new(privacy.clone()),
            refusals: RefusalTable::new(privacy.clone()),
            traffic: TrafficSample::new(config.traffic, privacy.clone()),
            log: DecisionLog::new(config.log, privacy),
            unmatched: StripedCounters::new(),
            config,
        }
    }

    /// Counts by rule and tier.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The heaviest keys.
    pub fn heavy_hitters(&self) -> &HeavyHitters {
        &self.heavy_hitters
    }

    /// The signals of all domains.
    pub fn signals(&self) -> &SignalBoard {
        &self.signals
    }

    /// The sample of recent requests.
    pub fn traffic(&self) -> &TrafficSample {
        &self.traffic
    }

    /// The refusals that count towards bans.
    pub fn refusals(&self) -> &RefusalTable {
        &self.refusals
    }

    /// Counts throttles, whose limits come with the request: `allowed` and `denied` of them were decided by this source. They are
    /// reported in batches, since a pipeline has too many to report one by one.
    pub fn count_throttles(&self, allowed: u64, denied: u64, source: Source) {
        let passed = match source {
            Source::Shed => DecisionOutcome::Shed,
            Source::Assumed => DecisionOutcome::Assumed,
            Source::Store | Source::Lease | Source::Cache | Source::Summed | Source::Local => DecisionOutcome::Allow,
        };
        let refused = if self.config.shadow { DecisionOutcome::Shadow } else { DecisionOutcome::Deny };
        self.tally.count_throttles((passed, allowed), (refused, denied));
    }

    /// Logs a request that a shedder refused before its limits were checked.
    pub fn record_shed(&self, shed: &ShedRequest<'_>) {
        self.log.record_shed(shed);
    }

    /// Keys that became sustained after event number `event`, and the number of the last event.
    pub fn sustained_since(&self, event: u64, now: Timestamp) -> (u64, Vec<SustainedKey>) {
        self.heavy_hitters.sustained_since(event, now)
    }

    /// Decision latency.
    pub fn decision_latency(&self) -> &LatencyHistogram {
        &self.decision
    }

    /// Store latency.
    pub fn store_latency(&self) -> &LatencyHistogram {
        &self.store
    }

    /// The number of requests that passed because no rule applied.
    pub fn unmatched(&self) -> u64 {
        let [unmatched] = self.unmatched.sums();
        unmatched
    }

    /// The decision log.
    pub fn log(&self) -> &DecisionLog {
        &self.log
    }
}

impl Witness for Observer {
    #[inline]
    fn should_time(&self) -> bool {
        is_one_in(self.config.time_one_in)
    }

    fn record(&self, event: &DecisionEvent<'_, '_>) {
        let result = DecisionResult::from_event(event, self.config.shadow);
        self.tally.count(event, result);
        if self.config.keys {
            self.heavy_hitters.count(event, result);
        }
        self.signals.count(event);
        self.log.record(event, result);
        self.traffic.record(event, result);
        if result.outcome == DecisionOutcome::Deny && event.domain().bans() {
            self.refusals.count(event);
        }
        if event.is_unmatched() {
            self.unmatched.local().add(0, 1);
        }
        if let Some(took) = event.timing {
            let weight = u64::from(self.config.time_one_in.max(1));
            self.decision.record(took.total, weight);
            if let Some(store) = took.store {
                self.store.record(store, weight);
            }
        }
    }
}
