//! Statistics of a layer.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Span, Timestamp};

use tollgate::RequestError;

/// What a layer did since it was created, over all services that it wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests that passed, including undecided ones.
    pub passed: u64,
    /// Requests that a limit refused (429).
    pub refused: u64,
    /// Requests that were refused because they could not be counted, or to protect the service (503).
    pub unavailable: u64,
    /// Conflicts of idempotency keys (422).
    pub conflicts: u64,
    /// Requests that could not be decided.
    pub undecided: u64,
    /// Requests that were delayed before they passed.
    pub delayed: u64,
    /// Requests inside the service with something to settle.
    pub inside: u64,
    /// How often the slot of a running request had expired and no other was free.
    pub lost: u64,
    /// Requests whose end the store did not record at once because it is unavailable. Settlements that can be deferred
    /// are sent later; slots expire.
    pub unsettled: u64,
}

/// A request that could not be decided.
#[derive(Clone, Copy, Debug)]
pub struct Undecided<'a> {
    /// Why it could not be decided.
    pub error: &'a RequestError,
    /// How many others there were since the last report.
    pub others: u64,
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(super) struct LayerCounts {
    pub(super) passed: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) unavailable: AtomicU64,
    pub(super) conflicts: AtomicU64,
    pub(super) undecided: AtomicU64,
    pub(super) delayed: AtomicU64,
    pub(super) inside: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) unsettled: AtomicU64,
    /// Until when undecided requests are not reported, in microseconds.
    quiet_until: AtomicU64,
    /// How many undecided requests were not reported since the last report.
    unreported: AtomicU64,
}

/// The shortest time between two reports.
pub(super) const REPORT_INTERVAL: Span = Span::from_secs(10);

/// Increments a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl LayerCounts {
    pub(super) fn read(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            passed: read(&self.passed),
            refused: read(&self.refused),
            unavailable: read(&self.unavailable),
            conflicts: read(&self.conflicts),
            undecided: read(&self.undecided),
            delayed: read(&self.delayed),
            inside: read(&self.inside),
            lost: read(&self.lost),
            unsettled: read(&self.unsettled),
        }
    }

    /// Whether to report an undecided request: if so, how many others were not reported.
    pub(super) fn report_undecided(&self, now: Timestamp) -> Option<u64> {
        let (now, apart) = (now.as_micros(), REPORT_INTERVAL.as_micros());
        let until = self.quiet_until.load(Ordering::Relaxed);
        // A time further ahead than it can have been set means that the clock was set back.
        let silent = now < until && until - now <= apart;
        let next = now.saturating_add(apart);
        if silent || self.quiet_until.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            count(&self.unreported);
            return None;
        }
        Some(self.unreported.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_throttled_and_count_what_they_skipped() {
        let counts = LayerCounts::default();
        let reports: Vec<_> =
            [100, 101, 109, 110, 119, 5, 6].map(|second| counts.report_undecided(Timestamp::from_secs(second))).into();
        assert_eq!(reports, [Some(0), None, None, Some(2), None, Some(1), None]);
    }
}
