//! Waiting for other processes: the only file of the tests that sleeps or reads a clock by itself.
//!
//! Production code takes the time as an argument or from a `Clock`, and a test of it moves a `ManualClock`. The clock of another
//! process can't be moved. A test that talks to one polls it, at most for as long as [`TIMEOUT`].

#![allow(clippy::disallowed_methods, reason = "another process has a clock of its own, which no test can move")]

use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How long a test waits for another process before it fails.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// No test begins in this time before a full hour: most tests end within it, also on a busy machine.
const BEFORE_FULL_HOUR: Duration = Duration::from_secs(30);

/// The pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Polls until there is a result, for [`TIMEOUT`] at most.
pub fn eventually<T>(poll: impl FnMut() -> Option<T>) -> Option<T> {
    poll_for(TIMEOUT, poll)
}

/// Polls until something holds, and fails the test if it does not within [`TIMEOUT`].
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    if eventually(|| holds().then_some(())).is_none() {
        panic!("{what}: not within {} s", TIMEOUT.as_secs());
    }
}

/// The moment at which something that is under way arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransitEnd(Instant);

impl TransitEnd {
    /// This much later than now.
    pub(crate) fn after(delay: Duration) -> TransitEnd {
        TransitEnd(Instant::now() + delay)
    }

    /// Waits for it.
    pub(crate) fn wait(self) {
        thread::sleep(self.0.saturating_duration_since(Instant::now()));
    }
}

/// If a full hour begins soon, waits until it has begun.
///
/// Windows are aligned to the clock, those of a day to full hours in any time zone with whole hours. A test that expects exact
/// refusals by a limit per hour or day would see a new window. Limits per minute need an algorithm without aligned windows.
pub(crate) fn avoid_full_hour() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let left = HOUR - Duration::from_nanos((now.as_nanos() % HOUR.as_nanos()) as u64);
    if left <= BEFORE_FULL_HOUR {
        sleep(left + POLL_INTERVAL);
    }
}

/// Blocks the thread. Only for a pause during which there is nothing to poll: wait for a condition with [`eventually`].
pub fn sleep(span: Duration) {
    thread::sleep(span);
}

fn poll_for<T>(timeout: Duration, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let result = poll();
        // A poll that takes long may be the last one, but there is at least one.
        if result.is_some() || start.elapsed() >= timeout {
            return result;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_result_ends_the_polling() {
        let mut polls = 0;
        let third = eventually(|| {
            polls += 1;
            (polls == 3).then_some("third")
        });
        assert_eq!((third, polls), (Some("third"), 3));
    }

    #[test]
    fn polling_ends_without_a_result_when_the_time_is_over() {
        let mut polls = 0;
        let none: Option<()> = poll_for(3 * POLL_INTERVAL, || {
            polls += 1;
            None
        });
        assert_eq!(none, None);
        assert!((1..=4).contains(&polls), "{polls}");
        assert_eq!(poll_for(Duration::ZERO, || Some(1)), Some(1));
    }
}
