//! Clocks. No other module reads the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate_core::{Span, Timestamp};

/// A source of time.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;

    /// The time on a clock that is never set.
    fn steady(&self) -> Steady;
}

/// Microseconds on a clock that is never set, since a moment that differs for each clock. For what must not last longer
/// because somebody sets the wall clock back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Steady(u64);

impl Steady {
    /// From microseconds.
    pub const fn from_micros(micros: u64) -> Steady {
        Steady(micros)
    }

    /// In microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The moment `span` later.
    #[must_use]
    pub const fn after(self, span: Span) -> Steady {
        Steady(self.0.saturating_add(span.as_micros()))
    }

    /// The time from `earlier` to this moment, or zero if `earlier` is later.
    pub const fn since(self, earlier: Steady) -> Span {
        Span::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// The machine's wall clock, read through its cycle counter.
///
/// A system call costs as much as the rest of a decision's arithmetic. The cycle counter therefore provides the
/// microseconds, and the offset to the wall clock is updated every 100 ms. Adjustments of the wall clock by an
/// administrator or NTP take effect within that time.
#[derive(Debug)]
pub struct SystemClock {
    counter: quanta::Clock,
    start: u64,
    /// The offset of the wall clock from the counter, in microseconds.
    offset: AtomicU64,
    /// The counter's microseconds at which the offset must be updated.
    update_at: AtomicU64,
}

/// Measures short durations by the cycle counter.
#[derive(Clone, Debug)]
pub struct Stopwatch {
    counter: quanta::Clock,
}

/// A point in time of a [`Stopwatch`].
#[derive(Clone, Copy, Debug)]
pub struct StopwatchMark(u64);

/// The interval at which the offset is updated, in microseconds.
const UPDATE_INTERVAL: u64 = 100_000;

/// A clock that is set by hand. Clones share their time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    micros: Arc<AtomicU64>,
}

impl SystemClock {
    /// The microseconds on the counter.
    fn counted(&self) -> u64 {
        self.counter.delta_as_nanos(self.start, self.counter.raw()) / 1_000
    }

    /// Reads the wall clock and updates the offset. A thread that is preempted between the two readings would be
    /// wrong by that time, so the closest of a few attempts counts.
    #[cold]
    #[allow(clippy::disallowed_methods)] // This module is the exception.
    fn update_offset(&self) {
        const TRIES: usize = 5;
        const CLOSE: u64 = 10;
        let mut best = (u64::MAX, 0, 0);
        for _ in 0..TRIES {
            let before = self.counted();
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let gap = self.counted().saturating_sub(before);
            let wall = since.as_secs().saturating_mul(1_000_000) + u64::from(since.subsec_micros());
            best = best.min((gap, before, wall));
            if gap <= CLOSE {
                break;
            }
        }
        let (_, counted, wall) = best;
        // Several threads may run this at once. Their results differ by less than the clock's precision.
        self.offset.store(wall.wrapping_sub(counted), Ordering::Relaxed);
        self.update_at.store(counted + UPDATE_INTERVAL, Ordering::Relaxed);
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        let counter = quanta::Clock::new();
        let clock =
            SystemClock { start: counter.raw(), counter, offset: AtomicU64::new(0), update_at: AtomicU64::new(0) };
        clock.update_offset();
        clock
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let counted = self.counted();
        if counted >= self.update_at.load(Ordering::Relaxed) {
            self.update_offset();
        }
        Timestamp::from_micros(counted.wrapping_add(self.offset.load(Ordering::Relaxed)))
    }

    fn steady(&self) -> Steady {
        Steady(self.counted())
    }
}

impl Stopwatch {
    /// The current point in time.
    pub fn mark(&self) -> StopwatchMark {
        StopwatchMark(self.counter.raw())
    }

    /// The nanoseconds between two points in time.
    pub fn between(&self, begun: StopwatchMark, ended: StopwatchMark) -> u64 {
        self.counter.delta_as_nanos(begun.0, ended.0)
    }
}

impl Default for Stopwatch {
    fn default() -> Stopwatch {
        Stopwatch { counter: quanta::Clock::new() }
    }
}

impl ManualClock {
    /// A clock that shows this time.
    pub fn at(moment: Timestamp) -> ManualClock {
        let clock = ManualClock::default();
        clock.set(moment);
        clock
    }

    /// Sets the clock, forward or back.
    pub fn set(&self, moment: Timestamp) {
        self.micros.store(moment.as_micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst))
    }

    fn steady(&self) -> Steady {
        Steady(self.micros.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "compared with the wall clock itself")]
    fn the_counter_follows_the_wall_clock() {
        let wall = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
        let clock = SystemClock::default();
        // Ten thousand readings, some of them after an update of the offset.
        for round in 0..10_000u64 {
            if round % 1_000 == 0 {
                clock.update_at.store(0, Ordering::Relaxed);
            }
            let (before, shown, after) = (wall(), clock.now().as_micros(), wall());
            let slack = 5_000;
            assert!(shown + slack >= before && shown <= after + slack, "{before} {shown} {after}");
        }
    }
}
