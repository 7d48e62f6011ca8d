//! The one place that reads a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate_core::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The machine's wall clock, read through its cycle counter.
///
/// Asking the operating system costs as much as the rest of a decision's arithmetic. So the counter tells the microseconds and
/// the wall clock is asked every 100 ms what to add to them: what an administrator or NTP does to it is followed within
/// that time.
#[derive(Debug)]
pub struct SystemClock {
    counter: quanta::Clock,
    start: u64,
    /// What to add to the counter's microseconds.
    offset: AtomicU64,
    /// The counter's microseconds at which to ask the wall clock again.
    ask_at: AtomicU64,
}

/// Measures short times by the cycle counter. It tells no moment, only how long something took.
#[derive(Clone, Debug)]
pub struct Stopwatch {
    counter: quanta::Clock,
}

/// When a [`Stopwatch`] was pressed.
#[derive(Clone, Copy, Debug)]
pub struct Pressed(u64);

/// How many microseconds the wall clock is not asked for.
const ANCHORED_FOR: u64 = 100_000;

/// A clock that moves when it is told to. Clones share their time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    micros: Arc<AtomicU64>,
}

impl SystemClock {
    /// The microseconds that the counter has counted.
    fn counted(&self) -> u64 {
        self.counter.delta_as_nanos(self.start, self.counter.raw()) / 1_000
    }

    /// Asks the wall clock. A thread that is put aside between the two readings would be wrong by that long, so the best of a
    /// few tries counts.
    #[cold]
    #[allow(clippy::disallowed_methods)] // The one place.
    fn anchor(&self) {
        const TRIES: usize = 5;
        const CLOSE: u64 = 10;
        let mut best = (u64::MAX, 0, 0);
        for _ in 0..TRIES {
            let before = self.counted();
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let apart = self.counted().saturating_sub(before);
            let wall = since.as_secs().saturating_mul(1_000_000) + u64::from(since.subsec_micros());
            best = best.min((apart, before, wall));
            if apart <= CLOSE {
                break;
            }
        }
        let (_, counted, wall) = best;
        // Several threads may come here at once: what they write differs by less than they could tell.
        self.offset.store(wall.wrapping_sub(counted), Ordering::Relaxed);
        self.ask_at.store(counted + ANCHORED_FOR, Ordering::Relaxed);
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        let counter = quanta::Clock::new();
        let clock = SystemClock { start: counter.raw(), counter, offset: AtomicU64::new(0), ask_at: AtomicU64::new(0) };
        clock.anchor();
        clock
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let counted = self.counted();
        if counted >= self.ask_at.load(Ordering::Relaxed) {
            self.anchor();
        }
        Timestamp::from_micros(counted.wrapping_add(self.offset.load(Ordering::Relaxed)))
    }
}

impl Stopwatch {
    /// Begins to measure.
    pub fn press(&self) -> Pressed {
        Pressed(self.counter.raw())
    }

    /// The nanoseconds between two moments.
    pub fn between(&self, begun: Pressed, ended: Pressed) -> u64 {
        self.counter.delta_as_nanos(begun.0, ended.0)
    }
}

impl Default for Stopwatch {
    fn default() -> Stopwatch {
        Stopwatch { counter: quanta::Clock::new() }
    }
}

impl ManualClock {
    /// A clock that stands at this moment.
    pub fn at(moment: Timestamp) -> ManualClock {
        let clock = ManualClock::default();
        clock.set(moment);
        clock
    }

    /// Moves it, forward or back.
    pub fn set(&self, moment: Timestamp) {
        self.micros.store(moment.as_micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "compared with the wall clock itself")]
    fn the_counter_tells_the_wall_clocks_time() {
        let wall = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
        let clock = SystemClock::default();
        // Ten thousand readings, some of them after the wall clock was asked again.
        for round in 0..10_000u64 {
            if round % 1_000 == 0 {
                clock.ask_at.store(0, Ordering::Relaxed);
            }
            let (before, told, after) = (wall(), clock.now().as_micros(), wall());
            let slack = 5_000;
            assert!(told + slack >= before && told <= after + slack, "{before} {told} {after}");
        }
    }
}
