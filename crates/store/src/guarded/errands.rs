//! What is to be told to the store when it can be: bounded.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::owned::Errand;

/// The most that wait. What comes past that is dropped: units that are not given back only make the store stricter.
const MOST_WAITING: usize = 10_000;

/// Errands that wait.
#[derive(Debug, Default)]
pub(super) struct Errands {
    waiting: Mutex<VecDeque<Errand>>,
    dropped: AtomicU64,
}

impl Errands {
    pub(super) fn push(&self, errand: Errand) {
        let mut waiting = self.waiting();
        if waiting.len() < MOST_WAITING {
            waiting.push_back(errand);
        } else {
            self.drop_one();
        }
    }

    /// The next ones, at most so many.
    pub(super) fn take(&self, most: usize) -> Vec<Errand> {
        let mut waiting = self.waiting();
        let most = most.min(waiting.len());
        waiting.drain(..most).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting().len()
    }

    pub(super) fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Errand>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::{ClaimId, Timestamp};

    #[test]
    fn what_comes_past_the_bound_is_dropped_and_counted() {
        let errands = Errands::default();
        for id in 0..MOST_WAITING as u128 + 3 {
            errands.push(Errand { id: ClaimId(id), charges: Vec::new(), verdict: None, until: Timestamp::MAX });
        }
        assert_eq!((errands.len(), errands.dropped()), (MOST_WAITING, 3));
        let first: Vec<u128> = errands.take(2).iter().map(|errand| errand.id.0).collect();
        assert_eq!((first, errands.len()), (vec![0, 1], MOST_WAITING - 2));
        assert_eq!(errands.take(usize::MAX).len(), MOST_WAITING - 2);
    }
}
