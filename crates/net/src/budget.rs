//! A bound on the memory of requests that are still arriving.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of bytes that may be in use at a time.
#[derive(Debug)]
pub struct Budget {
    max: usize,
    used: AtomicUsize,
}

/// The bytes of one request; dropping it returns them.
#[derive(Debug)]
pub struct Reservation<'b> {
    budget: &'b Budget,
    bytes: usize,
}

impl Budget {
    pub fn new(max: usize) -> Budget {
        Budget { max, used: AtomicUsize::new(0) }
    }

    /// Reserves bytes; `None` if fewer are left.
    pub fn reserve(&self, bytes: usize) -> Option<Reservation<'_>> {
        let mut reservation = Reservation { budget: self, bytes: 0 };
        reservation.grow(bytes).then_some(reservation)
    }
}

impl Reservation<'_> {
    /// Reserves more bytes, or none of them if fewer are left.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let before = self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.budget.max;
        if fits {
            self.bytes += bytes;
        } else {
            self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }
}

impl Reservation<'_> {
    /// Makes it this many bytes, or leaves it as it is if fewer are left.
    pub fn resize(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes {
            return self.grow(bytes - self.bytes);
        }
        if bytes < self.bytes {
            self.budget.used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
            self.bytes = bytes;
        }
        true
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_never_exceeded() {
        let budget = Budget::new(10);
        let mut one = budget.reserve(4).unwrap();
        assert!(one.grow(5));
        assert!(!one.grow(2));
        assert!(budget.reserve(2).is_none());
        let last = budget.reserve(1).unwrap();
        assert!(budget.reserve(1).is_none());
        drop(one);
        assert!(budget.reserve(9).is_some());
        drop(last);
        assert!(budget.reserve(10).is_some());
        assert!(budget.reserve(usize::MAX).is_none());
    }

    #[test]
    fn a_reservation_is_resized_within_the_bound() {
        let budget = Budget::new(10);
        let mut one = budget.reserve(0).unwrap();
        assert!(one.resize(8) && !one.resize(11));
        assert!(budget.reserve(3).is_none());
        assert!(one.resize(7));
        let mut other = budget.reserve(3).unwrap();
        assert!(one.resize(0) && other.resize(10));
        drop((one, other));
        assert!(budget.reserve(10).is_some());
    }
}
