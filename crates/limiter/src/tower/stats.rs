//! What a layer did.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Span, Timestamp};

use crate::RequestError;

/// What a layer did since it was made, on all services that it wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests that passed, those that could not be decided included.
    pub passed: u64,
    /// Requests that were refused by a limit (429).
    pub refused: u64,
    /// Requests that were refused because nobody could count them (503).
    pub unavailable: u64,
    /// Requests whose idempotency key another request has (422).
    pub conflicts: u64,
    /// Requests that could not be decided as they are.
    pub undecided: u64,
    /// Requests that were held back before they passed.
    pub delayed: u64,
    /// Requests that passed and have something to settle when they end.
    pub inside: u64,
    /// How often a request that goes on was told that its slot is not there any more, and that there is no other.
    pub lost: u64,
    /// Requests whose end the store did not hear of at once: it is away. What it can be told later, it is; slots free themselves.
    pub unsettled: u64,
}

/// A request that could not be decided.
#[derive(Clone, Copy, Debug)]
pub struct Undecided<'a> {
    /// Why.
    pub error: &'a RequestError,
    /// How many others there were since the last that was told.
    pub others: u64,
}

/// The counts behind [`Stats`].
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) passed: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) unavailable: AtomicU64,
    pub(super) conflicts: AtomicU64,
    pub(super) undecided: AtomicU64,
    pub(super) delayed: AtomicU64,
    pub(super) inside: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) unsettled: AtomicU64,
    /// Until when nobody is told of requests that can't be decided, in microseconds.
    silent_until: AtomicU64,
    /// Of how many nobody was told since the last.
    untold: AtomicU64,
}

/// The time between two that are told.
pub(super) const APART: Span = Span::from_secs(10);

/// Adds one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counts {
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

    /// Whether to tell of a request that can't be decided: if so, of how many others nobody was told.
    pub(super) fn tells(&self, now: Timestamp) -> Option<u64> {
        let (now, apart) = (now.as_micros(), APART.as_micros());
        let until = self.silent_until.load(Ordering::Relaxed);
        // A moment further ahead than it can have been set is of a clock that was set back since.
        let silent = now < until && until - now <= apart;
        let next = now.saturating_add(apart);
        if silent || self.silent_until.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            count(&self.untold);
            return None;
        }
        Some(self.untold.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_in_a_while_how_many_there_were() {
        let counts = Counts::default();
        let told: Vec<_> =
            [100, 101, 109, 110, 119, 5, 6].map(|second| counts.tells(Timestamp::from_secs(second))).into();
        assert_eq!(told, [Some(0), None, None, Some(2), None, Some(1), None]);
    }
}
