//! When a client that was refused with 503 should try again.

use std::time::Duration;

/// The time in `Retry-After`, spread at random: clients that are refused together must not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAfter {
    least: Duration,
    most: Duration,
}

impl Default for RetryAfter {
    /// From 1 to 3 seconds.
    fn default() -> RetryAfter {
        RetryAfter { least: Duration::from_secs(1), most: Duration::from_secs(3) }
    }
}

impl RetryAfter {
    /// The longest time that can be set.
    pub const MAX: Duration = Duration::from_secs(3_600);

    /// From one time to another, which may be the same. At most [`RetryAfter::MAX`].
    pub fn between(one: Duration, other: Duration) -> RetryAfter {
        let (one, other) = (one.min(RetryAfter::MAX), other.min(RetryAfter::MAX));
        RetryAfter { least: one.min(other), most: one.max(other) }
    }

    /// A time in this range. `random` is uniform over all numbers.
    pub fn draw(self, random: u64) -> Duration {
        let range = (self.most - self.least).as_nanos();
        let part = (u128::from(random) * range) >> 64;
        self.least + Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX))
    }

    /// A time in this range in whole seconds, as the header has it: rounded up, and at least 1.
    pub fn draw_seconds(self, random: u64) -> u64 {
        let time = self.draw(random);
        (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spread_over_the_range() {
        let retry = RetryAfter::between(Duration::from_secs(10), Duration::from_secs(2));
        let rows = [(0, 2_000), (u64::MAX / 4, 4_000), (u64::MAX / 2, 6_000), (u64::MAX, 10_000)];
        for (random, millis) in rows {
            let time = retry.draw(random);
            assert!(time.abs_diff(Duration::from_millis(millis)) < Duration::from_micros(1), "{random}: {time:?}");
        }
    }

    #[test]
    fn the_header_has_whole_seconds_and_never_zero() {
        let millis = |one, other| RetryAfter::between(Duration::from_millis(one), Duration::from_millis(other));
        let rows = [
            (millis(0, 0), 0, 1),
            (millis(200, 900), u64::MAX, 1),
            (millis(1_000, 1_000), 77, 1),
            (millis(1_001, 1_001), 77, 2),
            (RetryAfter::default(), 0, 1),
            (RetryAfter::default(), u64::MAX, 3),
            (RetryAfter::between(Duration::MAX, Duration::MAX), 5, 3_600),
        ];
        for (retry, random, seconds) in rows {
            assert_eq!(retry.draw_seconds(random), seconds, "{retry:?} {random}");
        }
    }
}
