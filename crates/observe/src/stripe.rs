//! Numbers that many threads add to without waiting for each other.
//!
//! An addition that two cores make to one number costs as much as the rest of a decision. So each thread has a stripe of its own,
//! and who reads adds the stripes up. A stripe that belongs to one thread needs no locked addition either. Threads past the number of
//! stripes share one, by locked additions.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The stripe of all threads that have none of their own.
const SHARED: usize = 0;

/// The most stripes.
const MOST: usize = 64;

/// How many stripes there are: one for each core, and the shared one.
static STRIPES: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from).clamp(1, MOST - 1) + 1);

/// A bit for each stripe that a living thread has.
static TAKEN: AtomicU64 = AtomicU64::new(1);

/// What a thread has of its own.
struct Mine {
    stripe: usize,
    /// Checks until the next one is timed.
    untimed: Cell<u32>,
}

thread_local! {
    static MINE: Mine = Mine::take();
}

/// A cache line or two, so that no two threads write to one.
#[derive(Debug)]
#[repr(align(128))]
struct Stripe<const N: usize>([AtomicU64; N]);

/// `N` numbers that only grow.
#[derive(Debug)]
pub(crate) struct Striped<const N: usize>(Box<[Stripe<N>]>);

impl Mine {
    fn take() -> Mine {
        let untimed = Cell::new(0);
        let mut taken = TAKEN.load(Ordering::Relaxed);
        loop {
            let stripe = taken.trailing_ones() as usize;
            if stripe >= *STRIPES {
                return Mine { stripe: SHARED, untimed };
            }
            // What the last owner wrote must be seen by the next.
            match TAKEN.compare_exchange_weak(taken, taken | 1 << stripe, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Mine { stripe, untimed },
                Err(now) => taken = now,
            }
        }
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        if self.stripe != SHARED {
            TAKEN.fetch_and(!(1 << self.stripe), Ordering::AcqRel);
        }
    }
}

/// Whether this is one of every so many calls on this thread.
#[inline]
pub(crate) fn is_one_in(every: u32) -> bool {
    let due = |mine: &Mine| match mine.untimed.get() {
        0 => {
            mine.untimed.set(every.saturating_sub(1));
            true
        }
        left => {
            mine.untimed.set(left - 1);
            false
        }
    };
    MINE.try_with(due).unwrap_or(false)
}

/// The number of this thread's stripe. Threads that have none of their own have the same.
#[inline]
pub(crate) fn number() -> usize {
    MINE.try_with(|mine| mine.stripe).unwrap_or(SHARED)
}

impl<const N: usize> Striped<N> {
    pub(crate) fn new() -> Striped<N> {
        Striped((0..*STRIPES).map(|_| Stripe([const { AtomicU64::new(0) }; N])).collect())
    }

    /// Where this thread adds.
    #[inline]
    pub(crate) fn mine(&self) -> Adding<'_, N> {
        // A thread that is ending shares.
        let stripe = number();
        Adding { numbers: &self.0[stripe].0, shared: stripe == SHARED }
    }

    /// The sums.
    pub(crate) fn sums(&self) -> [u64; N] {
        let mut sums = [0u64; N];
        for stripe in &self.0 {
            for (sum, number) in sums.iter_mut().zip(&stripe.0) {
                *sum = sum.wrapping_add(number.load(Ordering::Relaxed));
            }
        }
        sums
    }
}

/// The numbers that one thread adds to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adding<'s, const N: usize> {
    numbers: &'s [AtomicU64; N],
    shared: bool,
}

impl<const N: usize> Adding<'_, N> {
    #[inline]
    pub(crate) fn add(&self, at: usize, by: u64) {
        let number = &self.numbers[at];
        if self.shared {
            number.fetch_add(by, Ordering::Relaxed);
        } else {
            // Nobody else writes to it.
            number.store(number.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_whatever_threads_come_and_go() {
        let numbers = Striped::<3>::new();
        // More at once than there are stripes, and more in all.
        for _ in 0..4 {
            std::thread::scope(|scope| {
                for _ in 0..2 * *STRIPES + 1 {
                    scope.spawn(|| (0..10_000).for_each(|_| numbers.mine().add(1, 2)));
                }
            });
        }
        assert_eq!(numbers.sums(), [0, 4 * (2 * *STRIPES as u64 + 1) * 20_000, 0]);
    }

    #[test]
    fn one_in_so_many_is_due() {
        let due = |every| (0..1_000).filter(|_| is_one_in(every)).count();
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(due(8), 125));
            scope.spawn(|| assert_eq!(due(1), 1_000));
        });
    }
}
