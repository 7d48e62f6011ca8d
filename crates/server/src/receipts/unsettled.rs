//! Receipts whose time was over before they were settled, counted without a list of them.
//!
//! What is given counts up and what is settled counts down, each in the step of time in which the receipt ends. When a step is
//! over, what is left of it was not settled. Any server may settle what another gave: then one of them counts up and the other
//! down, and only their sum says something.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tollgate::{Span, Timestamp};

/// Counts them.
#[derive(Debug)]
pub(super) struct Unsettled {
    /// For receipts of up to [`SHORT`].
    short: Ring,
    /// For those that last longer, whatever is left of their time when they are settled.
    long: Ring,
    /// Of all steps that are over.
    over: AtomicI64,
}

/// Steps of time ahead, each with a count. One that is over makes room for the one that is so many ahead of it.
#[derive(Debug)]
struct Ring {
    /// Microseconds of a step.
    width: u64,
    counts: Box<[AtomicI64]>,
    /// The last step that is over and whose count was taken.
    passed: AtomicU64,
}

/// How many steps ahead are counted.
const STEPS: usize = 1024;
/// The longest that receipts last which are counted by the second.
const SHORT: Span = Span::from_secs(1_000);
/// For all others a step is so long that all of them reach past the longest `hold` that a rule may have, a week.
const LONG_STEP: Span = Span::from_secs(600);

impl Unsettled {
    pub(super) fn new(now: Timestamp) -> Unsettled {
        let ring = |step: Span| Ring::new(step.as_micros(), now);
        Unsettled { short: ring(Span::from_secs(1)), long: ring(LONG_STEP), over: AtomicI64::new(0) }
    }

    /// A receipt was given that ends then, and lasts so long.
    pub(super) fn issued(&self, until: Timestamp, hold: Span, now: Timestamp) {
        self.add(until, hold, now, 1);
    }

    /// A receipt was settled that would have ended then.
    pub(super) fn settled(&self, until: Timestamp, hold: Span, now: Timestamp) {
        self.add(until, hold, now, -1);
    }

    /// How many were not settled in time. It is less than none if others gave what was settled here.
    pub(super) fn count(&self, now: Timestamp) -> i64 {
        let passed = self.short.pass(now) + self.long.pass(now);
        self.over.fetch_add(passed, Ordering::Relaxed) + passed
    }

    /// How many may still be settled, as of when it was last counted.
    pub(super) fn open(&self) -> i64 {
        let rings = [&self.short, &self.long].into_iter();
        rings.flat_map(|ring| &ring.counts).map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn add(&self, until: Timestamp, hold: Span, now: Timestamp, by: i64) {
        let ring = if hold <= SHORT { &self.short } else { &self.long };
        // At every turn, so that no step is met again before it was taken.
        let over = ring.pass(now) + ring.add(until, by);
        if over != 0 {
            self.over.fetch_add(over, Ordering::Relaxed);
        }
    }
}

impl Ring {
    fn new(width: u64, now: Timestamp) -> Ring {
        let counts = std::iter::repeat_with(AtomicI64::default).take(STEPS).collect();
        Ring { width, counts, passed: AtomicU64::new(now.as_micros() / width) }
    }

    /// Counts in the step in which a receipt ends; gives it back if that is over. A thread that is put aside here counts in a step
    /// that has passed meanwhile: that is taken when the ring has gone round, late and not lost.
    fn add(&self, until: Timestamp, by: i64) -> i64 {
        let step = until.as_micros().div_ceil(self.width);
        if step <= self.passed.load(Ordering::Relaxed) {
            return by;
        }
        self.count(step).fetch_add(by, Ordering::Relaxed);
        0
    }

    /// Takes what is left of the steps that are over by now.
    fn pass(&self, now: Timestamp) -> i64 {
        let current = now.as_micros() / self.width;
        // Who moves it on takes what lies between; a clock that was set back moves nothing.
        if self.passed.load(Ordering::Relaxed) >= current {
            return 0;
        }
        let before = self.passed.fetch_max(current, Ordering::Relaxed);
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
        let unsettled = Unsettled::new(START);
        for second in 0..3 {
            unsettled.issued(later(second + 60), HOLD, later(second));
        }
        unsettled.settled(later(61), HOLD, later(30));
        let rows = [(59, 0, 2), (60, 1, 1), (61, 1, 1), (62, 2, 0), (62, 2, 0), (5_000, 2, 0)];
        for (second, count, open) in rows {
            assert_eq!((unsettled.count(later(second)), unsettled.open()), (count, open), "{second}");
        }
    }

    #[test]
    fn one_that_goes_on_is_due_later() {
        let unsettled = Unsettled::new(START);
        unsettled.issued(later(60), HOLD, START);
        for round in 1..=100 {
            let now = later(50 * round);
            unsettled.settled(later(50 * (round - 1) + 60), HOLD, now);
            unsettled.issued(later(50 * round + 60), HOLD, now);
            assert_eq!(unsettled.count(now), 0, "{round}");
        }
        assert_eq!((unsettled.count(later(5_059)), unsettled.count(later(5_060))), (0, 1));
    }

    #[test]
    fn what_others_gave_counts_down_and_the_sum_is_the_truth() {
        let (one, other) = (Unsettled::new(START), Unsettled::new(START));
        for _ in 0..5 {
            one.issued(later(60), HOLD, START);
        }
        for _ in 0..3 {
            other.settled(later(60), HOLD, later(10));
        }
        assert_eq!((one.count(later(60)), other.count(later(60))), (5, -3));
    }

    #[test]
    fn the_longest_are_counted_too_however_long_nobody_looked() {
        let unsettled = Unsettled::new(START);
        let week = 7 * 86_400;
        unsettled.issued(START.after(LONG), LONG, START);
        unsettled.issued(START.after(LONG), LONG, START);
        // Also at the last moment: it is the same count.
        unsettled.settled(START.after(LONG), LONG, later(week - 1));
        assert_eq!(unsettled.count(later(week - 1)), 0);
        assert_eq!(unsettled.count(later(week + 600)), 1);
        assert_eq!(unsettled.count(later(100 * week)), 1);
    }

    #[test]
    fn the_ring_goes_round() {
        let unsettled = Unsettled::new(START);
        for second in 0..5_000 {
            unsettled.issued(later(second + 60), HOLD, later(second));
            if second % 10 > 0 {
                unsettled.settled(later(second + 60), HOLD, later(second));
            }
        }
        assert_eq!(unsettled.count(later(5_060)), 500);
    }

    #[test]
    fn what_comes_too_late_or_by_another_clock_is_counted_at_once() {
        let unsettled = Unsettled::new(START);
        unsettled.issued(later(60), HOLD, START);
        assert_eq!(unsettled.count(later(100)), 1);
        unsettled.settled(later(60), HOLD, later(100));
        assert_eq!(unsettled.count(later(100)), 0);
        // The clock was set back.
        unsettled.issued(later(70), HOLD, later(10));
        assert_eq!(unsettled.count(later(10)), 1);
    }
}
