//! Throttling of warnings that could occur thousands of times a second.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Span, Timestamp};
use tollgate_store::{Clock, SystemClock};

/// Logs an event at most once per [`LogThrottle::INTERVAL`]. Each call site has its own `static`.
///
/// ```ignore
/// static REFUSED: LogThrottle = LogThrottle::new();
/// REFUSED.log(|suppressed| warn!(suppressed, "too many connections: one was refused"));
/// ```
#[derive(Debug, Default)]
pub struct LogThrottle {
    /// When the next event may be logged, in microseconds.
    next_at: AtomicU64,
    /// Events that were suppressed since the last one.
    suppressed: AtomicU64,
}

static CLOCK: LazyLock<SystemClock> = LazyLock::new(SystemClock::default);

impl LogThrottle {
    /// The time between two events.
    pub const INTERVAL: Span = Span::from_secs(10);

    pub const fn new() -> LogThrottle {
        LogThrottle { next_at: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Calls `event` unless it is throttled, with the number of events that were suppressed since the last.
    pub fn log(&self, event: impl FnOnce(u64)) {
        if let Some(suppressed) = self.admit(CLOCK.now()) {
            event(suppressed);
        }
    }

    /// Whether to log at this time: `Some` with the number of events that were suppressed since the last.
    pub fn admit(&self, now: Timestamp) -> Option<u64> {
        let (now, interval) = (now.as_micros(), LogThrottle::INTERVAL.as_micros());
        let next_at = self.next_at.load(Ordering::Relaxed);
        // A time further ahead than an interval means that the clock was set back.
        let throttled = now < next_at && next_at - now <= interval;
        let next = now.saturating_add(interval);
        // Of several threads at once, one logs.
        if throttled || self.next_at.compare_exchange(next_at, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.suppressed.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(seconds: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000 * seconds)
    }

    #[test]
    fn the_first_event_is_logged_then_one_every_ten_seconds() {
        let throttle = LogThrottle::new();
        assert_eq!(throttle.admit(second(1_000)), Some(0));
        assert_eq!(throttle.admit(second(1_000)), None);
        assert_eq!(throttle.admit(second(1_009)), None);
        assert_eq!(throttle.admit(second(1_010)), Some(2));
        assert_eq!(throttle.admit(second(1_011)), None);
        assert_eq!(throttle.admit(second(9_999)), Some(1));
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_block_it() {
        let throttle = LogThrottle::new();
        assert_eq!(throttle.admit(second(5_000)), Some(0));
        assert_eq!(throttle.admit(second(1_000)), Some(0));
        assert_eq!(throttle.admit(second(1_001)), None);
    }

    #[test]
    fn of_many_threads_one_logs() {
        let throttle = LogThrottle::new();
        let logged = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..1_000).filter(|_| throttle.admit(second(7)).is_some()).count()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!(logged, 1);
        assert_eq!(throttle.admit(second(17)), Some(7_999));
    }

    #[test]
    fn the_system_clock_is_used() {
        static THROTTLE: LogThrottle = LogThrottle::new();
        let mut logged = Vec::new();
        (0..100).for_each(|_| THROTTLE.log(|suppressed| logged.push(suppressed)));
        assert_eq!(logged, [0]);
    }
}
