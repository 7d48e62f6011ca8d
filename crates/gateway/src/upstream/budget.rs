//! A bound on retries: they must not multiply the load of an upstream that fails.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::server::now;

/// Tokens for retries. Every request adds its share, and a few come with time.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    /// In thousandths of a retry.
    tokens: AtomicI64,
    /// The second in which the least was last added.
    second: AtomicU64,
}

/// Retries that are always possible in a second.
const LEAST: i64 = 3;
/// The most that is saved, in seconds of traffic at the least rate and in retries.
const MOST: i64 = 100;

impl Default for RetryBudget {
    fn default() -> RetryBudget {
        RetryBudget { tokens: AtomicI64::new(LEAST * 1_000), second: AtomicU64::new(0) }
    }
}

impl RetryBudget {
    /// Counts a request. `share` of the requests may be retried.
    pub(crate) fn deposit(&self, share: f64) {
        if self.tokens.load(Ordering::Relaxed) < MOST * 1_000 {
            self.tokens.fetch_add((share * 1_000.0) as i64, Ordering::Relaxed);
        }
    }

    /// Takes a retry.
    pub(crate) fn withdraw(&self) -> bool {
        let second = now() / 1_000_000;
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.tokens.fetch_max(LEAST * 1_000, Ordering::Relaxed);
        }
        let before = self.tokens.fetch_sub(1_000, Ordering::Relaxed);
        if before >= 1_000 {
            return true;
        }
        self.tokens.fetch_add(1_000, Ordering::Relaxed);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_the_requests_and_a_few() {
        let budget = RetryBudget::default();
        let first = (0..100).filter(|_| budget.withdraw()).count();
        // A second may begin meanwhile.
        assert!((3..=6).contains(&first), "{first}");
        for _ in 0..100 {
            budget.deposit(0.2);
        }
        let more = (0..100).filter(|_| budget.withdraw()).count();
        assert!((20..=26).contains(&more), "{more}");
    }

    #[test]
    fn what_is_saved_has_a_bound() {
        let budget = RetryBudget::default();
        for _ in 0..1_000_000 {
            budget.deposit(0.2);
        }
        assert!((0..1_000).filter(|_| budget.withdraw()).count() <= MOST as usize + 4);
    }
}
