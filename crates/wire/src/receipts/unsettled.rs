//! Counts receipts that expired before they were settled, without storing them.
//!
//! An issued receipt increments and a settled one decrements the counter of the time step in which the receipt expires.
//! When a step is over, its count is the number of unsettled receipts. A server may settle receipts of another: one of
//! them counts up and the other down, and only their sum is meaningful.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tollgate::{Span, Timestamp};

/// Counts unsettled receipts.
#[derive(Debug)]
pub(super) struct UnsettledReceipts {
    /// For receipts with a hold of up to [`SHORT_HOLD`].
    short: TimeRing,
    /// For longer ones, whatever is left of their time when they are settled.
    long: TimeRing,
    /// The count of all steps that are over.
    over: AtomicI64,
}

/// A ring of future time steps, each with a count. A step that is over is reused for a later one.
#[derive(Debug)]
struct TimeRing {
    /// The length of a step, in microseconds.
    width: u64,
    counts: Box<[AtomicI64]>,
    /// The last step that is over and has been swept.
    swept: AtomicU64,
}

/// How many steps ahead are counted.
const STEPS: usize = 1024;
/// The longest hold that is counted by the second.
const SHORT_HOLD: Span = Span::from_secs(1_000);
/// The step for longer holds. All steps together exceed the longest `hold` of a rule, a week.
const LONG_STEP: Span = Span::from_secs(600);

impl UnsettledReceipts {
    pub(super) fn new(now: Timestamp) -> UnsettledReceipts {
        let ring = |step: Span| TimeRing::new(step.as_micros(), now);
        UnsettledReceipts { short: ring(Span::from_secs(1)), long: ring(LONG_STEP), over: AtomicI64::new(0) }
    }

    /// Counts an issued receipt.
    pub(super) fn add_issued(&self, until: Timestamp, hold: Span, now: Timestamp) {
        self.add(until, hold, now, 1);
    }

    /// Counts a settled receipt.
    pub(super) fn add_settled(&self, until: Timestamp, hold: Span, now: Timestamp) {
        self.add(until, hold, now, -1);
    }

    /// How many expired unsettled. Negative if others issued what was settled here.
    pub(super) fn count(&self, now: Timestamp) -> i64 {
        let passed = self.short.sweep(now) + self.long.sweep(now);
        self.over.fetch_add(passed, Ordering::Relaxed) + passed
    }

    /// How many are open, as of the last count.
    pub(super) fn open(&self) -> i64 {
        let rings = [&self.short, &self.long].into_iter();
        rings.flat_map(|ring| &ring.counts).map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn add(&self, until: Timestamp, hold: Span, now: Timestamp, by: i64) {
        let ring = if hold <= SHORT_HOLD { &self.short } else { &self.long };
        // On every call, so that no step is reused before it is swept.
        let over = ring.sweep(now) + ring.add(until, by);
        if over != 0 {
            self.over.fetch_add(over, Ordering::Relaxed);
        }
    }
}

impl TimeRing {
    fn new(width: u64, now: Timestamp) -> TimeRing {
        let counts = std::iter::repeat_with(AtomicI64::default).take(STEPS).collect();
        TimeRing { width, counts, swept: AtomicU64::new(now.as_micros() / width) }
    }

    /// Counts in the step in which a receipt expires; returns the count if that step is over. A thread that is
    /// preempted here may count in a step that has been swept meanwhile: that count is swept when the ring has wrapped
    /// around, late but not lost.
    fn add(&self, until: Timestamp, by: i64) -> i64 {
        let step = until.as_micros().div_ceil(self.width);
        if step <= self.swept.load(Ordering::Relaxed) {
            return by;
        }
        self.count(step).fetch_add(by, Ordering::Relaxed);
        0
    }

    /// Sweeps the steps that are over by now.
    fn sweep(&self, now: Timestamp) -> i64 {
        let current = now.as_micros() / self.width;
        // The thread that advances it sweeps the steps between; a clock that was set back advances nothing.
        if self.swept.load(Ordering::Relaxed) >= current {
            return 0;
        }
        let before = self.swept.fetch_max(current, Ordering::Relaxed);
        let steps = (before..current).take(STEPS).map(|step| step + 1);
        steps.map(|step| self.count(step).swap(0, Ordering::Relaxed)).sum()
    }

    fn count(&self, step: u64) -> &AtomicI64 {
        &self.counts[(step % STEPS as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_767_225_600);
    const HOLD: Span = Span::from_secs(60);
    const LONG: Span = Span::from_secs(7 * 86_400);

    fn later(seconds: u64) -> Timestamp {
        START.after(Span::from_secs(seconds))
    }

    #[test]
    fn only_what_is_over_and_was_not_settled_counts() {
        let unsettled = UnsettledReceipts::new(START);
        for second in 0..3 {
            unsettled.add_issued(later(second + 60), HOLD, later(second));
        }
        unsettled.add_settled(later(61), HOLD, later(30));
        let rows = [(59, 0, 2), (60, 1, 1), (61, 1, 1), (62, 2, 0), (62, 2, 0), (5_000, 2, 0)];
        for (second, count, open) in rows {
            assert_eq!((unsettled.count(later(second)), unsettled.open()), (count, open), "{second}");
        }
    }

    #[test]
    fn one_that_goes_on_is_due_later() {
        let unsettled = UnsettledReceipts::new(START);
        unsettled.add_issued(later(60), HOLD, START);
        for round in 1..=100 {
            let now = later(50 * round);
            unsettled.add_settled(later(50 * (round - 1) + 60), HOLD, now);
            unsettled.add_issued(later(50 * round + 60), HOLD, now);
            assert_eq!(unsettled.count(now), 0, "{round}");
        }
        assert_eq!((unsettled.count(later(5_059)), unsettled.count(later(5_060))), (0, 1));
    }

    #[test]
    fn what_others_gave_counts_down_and_the_sum_is_the_truth() {
        let (one, other) = (UnsettledReceipts::new(START), UnsettledReceipts::new(START));
        for _ in 0..5 {
            one.add_issued(later(60), HOLD, START);
        }
        for _ in 0..3 {
            other.add_settled(later(60), HOLD, later(10));
        }
        assert_eq!((one.count(later(60)), other.count(later(60))), (5, -3));
    }

    #[test]
    fn the_longest_are_counted_too_however_long_nobody_looked() {
        let unsettled = UnsettledReceipts::new(START);
        let week = 7 * 86_400;
        unsettled.add_issued(START.after(LONG), LONG, START);
        unsettled.add_issued(START.after(LONG), LONG, START);
        // Up to the last moment: it is the same count.
        unsettled.add_settled(START.after(LONG), LONG, later(week - 1));
        assert_eq!(unsettled.count(later(week - 1)), 0);
        assert_eq!(unsettled.count(later(week + 600)), 1);
        assert_eq!(unsettled.count(later(100 * week)), 1);
    }

    #[test]
    fn the_ring_goes_round() {
        let unsettled = UnsettledReceipts::new(START);
        for second in 0..5_000 {
            unsettled.add_issued(later(second + 60), HOLD, later(second));
            if second % 10 > 0 {
                unsettled.add_settled(later(second + 60), HOLD, later(second));
            }
        }
        assert_eq!(unsettled.count(later(5_060)), 500);
    }

    #[test]
    fn what_comes_too_late_or_by_another_clock_is_counted_at_once() {
        let unsettled = UnsettledReceipts::new(START);
        unsettled.add_issued(later(60), HOLD, START);
        assert_eq!(unsettled.count(later(100)), 1);
        unsettled.add_settled(later(60), HOLD, later(100));
        assert_eq!(unsettled.count(later(100)), 0);
        // The clock was set back.
        unsettled.add_issued(later(70), HOLD, later(10));
        assert_eq!(unsettled.count(later(10)), 1);
    }
}
