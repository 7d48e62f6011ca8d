//! Warnings that could come a thousand times a second, told once in a while.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::{Clock, Span, SystemClock, Timestamp};

/// How often a place in the code may say the same thing: once in [`Seldom::APART`]. One `static` for each place.
///
/// ```ignore
/// static REFUSED: Seldom = Seldom::new();
/// REFUSED.say(|more| warn!(more, "too many connections: one was refused"));
/// ```
#[derive(Debug)]
pub(crate) struct Seldom {
    /// When it may speak again, in microseconds.
    silent_until: AtomicU64,
    /// How often it was silent since it spoke.
    suppressed: AtomicU64,
}

static CLOCK: LazyLock<SystemClock> = LazyLock::new(SystemClock::default);

impl Seldom {
    /// The time between two lines.
    pub(crate) const APART: Span = Span::from_secs(10);

    pub(crate) const fn new() -> Seldom {
        Seldom { silent_until: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Calls `tell` if it is time to speak again, with the number of times that it was not called since the last.
    pub(crate) fn say(&self, tell: impl FnOnce(u64)) {
        if let Some(suppressed) = self.at(CLOCK.now()) {
            tell(suppressed);
        }
    }

    /// Whether to speak at this time: if so, the number of times that the answer was no since the last.
    pub(crate) fn at(&self, now: Timestamp) -> Option<u64> {
        let (now, apart) = (now.as_micros(), Seldom::APART.as_micros());
        let until = self.silent_until.load(Ordering::Relaxed);
        // A moment further ahead than it can have been set is of a clock that was set back since.
        let silent = now < until && until - now <= apart;
        let next = now.saturating_add(apart);
        // Of several threads at once, one speaks.
        if silent || self.silent_until.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
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
    fn it_speaks_at_once_then_every_ten_seconds_and_says_how_often_it_did_not() {
        let seldom = Seldom::new();
        assert_eq!(seldom.at(second(1_000)), Some(0));
        assert_eq!(seldom.at(second(1_000)), None);
        assert_eq!(seldom.at(second(1_009)), None);
        assert_eq!(seldom.at(second(1_010)), Some(2));
        assert_eq!(seldom.at(second(1_011)), None);
        assert_eq!(seldom.at(second(9_999)), Some(1));
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_silence_it() {
        let seldom = Seldom::new();
        assert_eq!(seldom.at(second(5_000)), Some(0));
        assert_eq!(seldom.at(second(1_000)), Some(0));
        assert_eq!(seldom.at(second(1_001)), None);
    }

    #[test]
    fn of_many_threads_at_once_one_speaks() {
        let seldom = Seldom::new();
        let spoke = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| (0..1_000).filter(|_| seldom.at(second(7)).is_some()).count())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!(spoke, 1);
        assert_eq!(seldom.at(second(17)), Some(7_999));
    }

    #[test]
    fn by_the_machines_clock_it_speaks_once() {
        static SELDOM: Seldom = Seldom::new();
        let mut told = Vec::new();
        (0..100).for_each(|_| SELDOM.say(|more| told.push(more)));
        assert_eq!(told, [0]);
    }
}
