//! How many messages are sent a second.

use crate::clock::Steady;

/// A rate of messages, with what may be sent at once.
#[derive(Debug)]
pub(super) struct Pace {
    per_second: u64,
    max_burst: u64,
    /// In millionths of a message.
    credit: u64,
    at: Steady,
}

const MILLION: u64 = 1_000_000;

impl Pace {
    pub(super) fn new(per_second: u64, max_burst: u64) -> Pace {
        Pace { per_second, max_burst, credit: max_burst.saturating_mul(MILLION), at: Steady::default() }
    }

    /// How many of these messages may be sent now.
    pub(super) fn take(&mut self, requested: usize, now: Steady) -> usize {
        let earned = now.since(self.at).as_micros().saturating_mul(self.per_second);
        self.credit = self.credit.saturating_add(earned).min(self.max_burst.saturating_mul(MILLION));
        self.at = self.at.max(now);
        let count = (self.credit / MILLION).min(requested as u64);
        self.credit -= count * MILLION;
        count as usize
    }

    /// Messages that were not sent after all.
    pub(super) fn put_back(&mut self, count: usize) {
        self.credit = self.credit.saturating_add(count as u64 * MILLION);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_messages() {
        let mut pace = Pace::new(10_000, 1_000);
        let mut sent = 0;
        for beat in 0..=100 {
            sent += pace.take(5_000, Steady::from_micros(beat * 100_000));
            // Not earned yet.
            assert_eq!(pace.take(5_000, Steady::from_micros(beat * 100_000 + 50)), 0);
        }
        assert!((100_000..=101_000).contains(&sent), "{sent}");
        let later = Steady::from_micros(3_600_000_000);
        assert_eq!((pace.take(5_000, later), pace.take(5_000, Steady::default())), (1_000, 0));
        pace.put_back(7);
        assert_eq!(pace.take(5_000, later), 7);
    }
}
