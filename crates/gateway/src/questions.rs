//! How often callers read their own limits.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;
use tollgate::Timestamp;

/// How often callers ask for their limits. Each question reads counters, which no limit counts.
#[derive(Debug)]
pub(crate) struct Questions {
    pub(crate) at_once: Semaphore,
    /// The second of the last question, and how many there were in it: of the callers whose hash leads here.
    places: Box<[AtomicU64]>,
    hasher: RandomState,
}

/// The most questions at the same time.
const MAX_AT_ONCE: usize = 64;
/// The most questions of a caller in a second.
const MAX_PER_SECOND: u64 = 10;
/// The places in which callers are counted. A power of two.
const PLACES: usize = 1024;
/// The bits of a place that count.
const COUNT_BITS: u32 = 16;

impl Default for Questions {
    fn default() -> Questions {
        Questions {
            at_once: Semaphore::new(MAX_AT_ONCE),
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
        }
    }
}

impl Questions {
    /// Whether a caller may ask at this time.
    pub(crate) fn admits(&self, caller: &str, at: Timestamp) -> bool {
        let second = at.as_micros() / 1_000_000;
        let place = &self.places[self.hasher.hash_one(caller) as usize % PLACES];
        let counted = place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
            let count = if before >> COUNT_BITS == second { before & ((1 << COUNT_BITS) - 1) } else { 0 };
            (count < MAX_PER_SECOND).then_some(second << COUNT_BITS | (count + 1))
        });
        counted.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_asks_so_often_in_a_second() {
        let questions = Questions::default();
        let asks = |caller, second| questions.admits(caller, Timestamp::from_secs(second));
        let admitted = (0..MAX_PER_SECOND + 5).filter(|_| asks("ada", 100)).count() as u64;
        assert_eq!(admitted, MAX_PER_SECOND);
        assert!(!asks("ada", 100) && asks("ada", 101));
    }
}
