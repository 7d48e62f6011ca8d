//! A bound on what clients may make a listener hold: the memory of requests that have begun to arrive and have not ended.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many bytes may be held at a time.
#[derive(Debug)]
pub(crate) struct Budget {
    most: usize,
    held: AtomicUsize,
}

/// What one request holds, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Share<'b> {
    budget: &'b Budget,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(most: usize) -> Budget {
        Budget { most, held: AtomicUsize::new(0) }
    }

    /// A share of so many bytes; none if that is more than there is.
    pub(crate) fn take(&self, bytes: usize) -> Option<Share<'_>> {
        let mut share = Share { budget: self, bytes: 0 };
        share.grow(bytes).then_some(share)
    }
}

impl Share<'_> {
    /// Holds more, if there is more. What is not had is not counted.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let before = self.budget.held.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.budget.most;
        if fits {
            self.bytes += bytes;
        } else {
            self.budget.held.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_held_than_may_be() {
        let budget = Budget::new(10);
        let mut one = budget.take(4).unwrap();
        assert!(one.grow(5));
        assert!(!one.grow(2));
        assert!(budget.take(2).is_none());
        let last = budget.take(1).unwrap();
        assert!(budget.take(1).is_none());
        drop(one);
        assert!(budget.take(9).is_some());
        drop(last);
        assert!(budget.take(10).is_some());
        assert!(budget.take(usize::MAX).is_none());
    }
}
