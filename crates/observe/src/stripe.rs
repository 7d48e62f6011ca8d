//! Counters that many threads add to without contention.
//!
//! An atomic addition that two cores contend for costs as much as the rest of a decision. So each thread has its own stripe, and
//! reads add the stripes up. A stripe of a single thread needs no locked addition either. When there are more threads than
//! stripes, the remaining ones share a stripe by locked additions.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The stripe of threads without their own.
const SHARED: usize = 0;

/// The maximal number of stripes.
const MAX_STRIPES: usize = 64;

/// The number of stripes: one per core, and the shared one.
static STRIPES: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from).clamp(1, MAX_STRIPES - 1) + 1);

/// A bit for each stripe in use by a thread.
static USED_STRIPES: AtomicU64 = AtomicU64::new(1);

/// The state of one thread.
struct ThreadStripe {
    stripe: usize,
    /// Checks until the next timed one.
    untimed: Cell<u32>,
}

thread_local! {
    static THREAD_STRIPE: ThreadStripe = ThreadStripe::claim();
}

/// Aligned so that no two threads write to one cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Stripe<const N: usize>([AtomicU64; N]);

/// `N` counters that only grow.
#[derive(Debug)]
pub(crate) struct StripedCounters<const N: usize>(Box<[Stripe<N>]>);

impl ThreadStripe {
    fn claim() -> ThreadStripe {
        let untimed = Cell::new(0);
        let mut used = USED_STRIPES.load(Ordering::Relaxed);
        loop {
            let stripe = used.trailing_ones() as usize;
            if stripe >= *STRIPES {
                return ThreadStripe { stripe: SHARED, untimed };
            }
            // Publishes the last owner's writes to the next one.
            match USED_STRIPES.compare_exchange_weak(used, used | 1 << stripe, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return ThreadStripe { stripe, untimed },
                Err(now) => used = now,
            }
        }
    }
}

impl Drop for ThreadStripe {
    fn drop(&mut self) {
        if self.stripe != SHARED {
            USED_STRIPES.fetch_and(!(1 << self.stripe), Ordering::AcqRel);
        }
    }
}

/// Whether this is one of every `every` calls on this thread.
#[inline]
pub(crate) fn is_one_in(every: u32) -> bool {
    let due = |local: &ThreadStripe| match local.untimed.get() {
        0 => {
            local.untimed.set(every.saturating_sub(1));
            true
        }
        left => {
            local.untimed.set(left - 1);
            false
        }
    };
    THREAD_STRIPE.try_with(due).unwrap_or(false)
}

/// This thread's stripe. Threads without their own get the shared one.
#[inline]
pub(crate) fn number() -> usize {
    THREAD_STRIPE.try_with(|local| local.stripe).unwrap_or(SHARED)
}

impl<const N: usize> StripedCounters<N> {
    pub(crate) fn new() -> StripedCounters<N> {
        StripedCounters((0..*STRIPES).map(|_| Stripe([const { AtomicU64::new(0) }; N])).collect())
    }

    /// This thread's stripe.
    #[inline]
    pub(crate) fn local(&self) -> LocalStripe<'_, N> {
        // A thread that is ending uses the shared stripe.
        self.of_thread(number())
    }

    /// The stripe of the thread with this [`number`].
    #[inline]
    pub(crate) fn of_thread(&self, stripe: usize) -> LocalStripe<'_, N> {
        LocalStripe { numbers: &self.0[stripe].0, shared: stripe == SHARED }
    }

    /// The sums over all stripes.
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

/// The counters that one thread adds to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalStripe<'s, const N: usize> {
    numbers: &'s [AtomicU64; N],
    shared: bool,
}

impl<const N: usize> LocalStripe<'_, N> {
    #[inline]
    pub(crate) fn add(&self, at: usize, by: u64) {
        let number = &self.numbers[at];
        if self.shared {
            number.fetch_add(by, Ordering::Relaxed);
        } else {
            // No other thread writes to it.
            number.store(number.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_whatever_threads_come_and_go() {
        let numbers = StripedCounters::<3>::new();
        // More at once than there are stripes, and more in all.
        for _ in 0..4 {
            std::thread::scope(|scope| {
                for _ in 0..2 * *STRIPES + 1 {
                    scope.spawn(|| (0..10_000).for_each(|_| numbers.local().add(1, 2)));
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
