//! A bounded sample of recent requests, to try changes of rules on.
//!
//! Callers are sampled, not requests: those whose digest is below a bound have all of their requests recorded, so that their
//! counters can be counted again. The bound follows the traffic, so that the sample reaches back far enough. Of the busiest
//! callers, one request in so many is recorded in any case.

mod ring;
mod selection;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use tollgate::{Ask, DecisionEvent, KeyPrivacy, Source, Span, Timestamp};
use tollgate_plan::TrafficRecord;
use tollgate_rules::Domain;

use crate::decision_log::{caller, quick_caller_digest, random};
use crate::outcome::{DecisionOutcome, DecisionResult};
use ring::TrafficRing;
use selection::Selection;

pub use ring::MAX_NAMES;
pub use selection::{MAX_BUSY_CALLERS, MIN_BUSY_RATE};

/// The configuration of the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficConfig {
    /// Whether requests are recorded at all.
    pub on: bool,
    /// The memory of all records.
    pub max_bytes: usize,
    /// The part of callers that is recorded, at most, in basis points.
    pub max_callers_bps: u16,
}

/// A sample of recent requests.
#[derive(Debug)]
pub struct TrafficSample {
    config: TrafficConfig,
    selection: Selection,
    ring: Mutex<TrafficRing>,
    /// Records that were lost because another thread was adding one.
    lost: AtomicU64,
    privacy: Arc<KeyPrivacy>,
}

/// What was recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrafficExcerpt {
    /// The requests, oldest first.
    pub records: Vec<TrafficRecord>,
    /// Whether these are all requests of that time.
    pub is_complete: bool,
}

/// The state of the sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficStatus {
    /// Records.
    pub records: u64,
    /// Their memory.
    pub bytes: u64,
    /// The time of the oldest one.
    pub oldest: Option<Timestamp>,
    /// The part of callers that is recorded, in basis points.
    pub callers_bps: u16,
    /// Callers of which one request in so many is recorded.
    pub busy_callers: u64,
    /// Records that were lost because another thread was adding one.
    pub lost: u64,
}

/// The time that the sample reaches back at least, once the server has run for so long.
pub const SAMPLED_TIME: Span = Span::from_secs(15 * 60);
/// Older records are dropped, even if there is room.
pub const MAX_SAMPLED_TIME: Span = Span::from_secs(3_600);

impl Default for TrafficConfig {
    /// Off. When on: 64 MiB.
    fn default() -> TrafficConfig {
        TrafficConfig { on: false, max_bytes: 64 << 20, max_callers_bps: 10_000 }
    }
}

impl TrafficSample {
    /// An empty sample, with private values in this form.
    pub fn new(config: TrafficConfig, privacy: Arc<KeyPrivacy>) -> TrafficSample {
        TrafficSample {
            config,
            selection: Selection::new(config.max_callers_bps),
            ring: Mutex::new(TrafficRing::new(config.max_bytes)),
            lost: AtomicU64::new(0),
            privacy,
        }
    }

    /// The configuration.
    pub fn config(&self) -> &TrafficConfig {
        &self.config
    }

    /// Records a decision, if it is sampled.
    #[inline]
    pub(crate) fn record(&self, event: &DecisionEvent<'_, '_>, result: DecisionResult) {
        if !self.config.on || event.request.ask != Ask::Exactly {
            return;
        }
        let caller = caller(event);
        let digest = match caller {
            Some(caller) => quick_caller_digest(event.domain().digest(), caller),
            None => random(),
        };
        if let Some(copies) = self.selection.select(digest, caller.is_some()) {
            self.add(event, result, digest, copies);
        }
    }

    #[cold]
    fn add(&self, event: &DecisionEvent<'_, '_>, result: DecisionResult, digest: u64, copies: u32) {
        // Blocked requests are refused before any rule, and others were decided without their counters.
        let is_decided = event.verdict.source != Source::Assumed && event.verdict.source != Source::Shed;
        if result.outcome == DecisionOutcome::Blocked || !is_decided || event.request.cost == 0 {
            return;
        }
        let at = match event.settlement.at {
            at if at == Timestamp::default() => Timestamp::from_micros(self.selection.now()),
            at => at,
        };
        let mut ring = match self.ring.try_lock() {
            Ok(ring) => ring,
            Err(TryLockError::Poisoned(ring)) => ring.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        ring.add(event, at, digest, copies, self.privacy.log_secret());
    }

    /// Adjusts the sample to the traffic. Must be called about every ten seconds.
    pub fn adjust(&self, now: Timestamp) {
        let mut ring = self.ring();
        let per_hour = ring.records_per_hour();
        if let Some(below) = self.selection.adjust(now, per_hour) {
            ring.note_bound(now, below);
        }
        ring.expire(now.before(MAX_SAMPLED_TIME));
    }

    /// Whether the requests of a caller are recorded now, all of them or some.
    pub fn includes(&self, domain: &Domain, caller: &str) -> bool {
        self.config.on && self.selection.includes(quick_caller_digest(domain.digest(), caller))
    }

    /// How many requests were recorded since the start, those included that were dropped since.
    pub fn recorded(&self) -> u64 {
        self.ring().added()
    }

    /// What was recorded since a time.
    pub fn excerpt(&self, since: Timestamp) -> TrafficExcerpt {
        self.ring().excerpt(since, &self.selection)
    }

    /// The state.
    pub fn status(&self) -> TrafficStatus {
        let ring = self.ring();
        TrafficStatus {
            records: ring.len() as u64,
            bytes: ring.bytes() as u64,
            oldest: ring.oldest(),
            callers_bps: self.selection.callers_bps(),
            busy_callers: self.selection.busy_callers(),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    fn ring(&self) -> MutexGuard<'_, TrafficRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
